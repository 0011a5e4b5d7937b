"""``flwr-mel recommend``: which scheme and which c for a fleet, and why."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flwr_mel.allocation import Infeasible
from flwr_mel.cli import plugins
from flwr_mel.cli.question import (
    LIMITS,
    OPTIONS,
    OUTPUT,
    Energy,
    FleetFile,
    Json,
    Layers,
    LeastBatch,
    MaxEpochs,
    Question,
    Samples,
    Where,
    pose,
    print_json,
    refuse,
)
from flwr_mel.cli.recommend.cross_validation import Setup, Verdict, judge
from flwr_mel.cli.recommend.printing import show
from flwr_mel.cli.shared import DatasetName, bad_input, console, missing_packages, note, refuse_given
from flwr_mel.recommend import Recommendation, worth_trying
from flwr_mel.recommend import recommend as _recommend

EXAMPLES = """Examples:

flwr-mel recommend fleet.toml --cycle-time 10 --samples 60000

flwr-mel recommend fleet.toml --cycle-time 10 --energy 10 --samples 60000 --json

flwr-mel recommend fleet.toml --cycle-time 40 --energy 10 --samples 60000 --accuracy 0.95

flwr-mel recommend fleet.toml --cycle-time 10 --samples 60000 --cross-validate --seeds 3"""


_OPTIONS = OPTIONS | {
    "staleness_up_to": "--staleness-up-to",
    "accuracy": "--accuracy",
    "time_budget_s": "--time-budget",
    "energy_budget_j": "--energy-budget",
    "data_dir": "--data-dir",
    "dataset": "--dataset",
}
_TRIALS, _WANTED = "Cross-validation", "What is wanted"


def recommend(
    file: FleetFile,
    samples: Samples,
    cycle_time: Annotated[float, typer.Option(help="Seconds per cycle, T.", rich_help_panel=LIMITS)],
    energy: Energy = None,
    accuracy: Annotated[
        float | None, typer.Option(help="Reach this, between 0 and 1.", rich_help_panel=_WANTED)
    ] = None,
    time_budget: Annotated[
        float | None, typer.Option(help="Seconds for all cycles.", rich_help_panel=_WANTED)
    ] = None,
    energy_budget: Annotated[
        float | None,
        typer.Option(help="Joules for all cycles and all learners.", rich_help_panel=_WANTED),
    ] = None,
    staleness_up_to: Annotated[int, typer.Option(help="Largest c considered.", rich_help_panel=LIMITS)] = 5,
    min_samples: LeastBatch = 0,
    max_epochs: MaxEpochs = None,
    mode: Where = None,
    layers: Layers = None,
    trials: Annotated[
        bool,
        typer.Option("--cross-validate", help="Run short simulations to pick c.", rich_help_panel=_TRIALS),
    ] = False,
    cycles: Annotated[int, typer.Option(help="Per simulation.", min=1, rich_help_panel=_TRIALS)] = 4,
    seeds: Annotated[int, typer.Option(help="Simulations per c.", min=1, rich_help_panel=_TRIALS)] = 2,
    dataset: Annotated[
        DatasetName, typer.Option(help="What to train on.", rich_help_panel=_TRIALS)
    ] = DatasetName.MNIST,
    data_dir: Annotated[str, typer.Option(help="Directory of idx files.", rich_help_panel=_TRIALS)] = "",
    json: Json = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Every candidate.", rich_help_panel=OUTPUT)
    ] = False,
) -> None:
    """Recommend a scheme: what limits the fleet, candidates by predicted gain, which c to try.

    Exit codes: 0 done, 2 bad input, 3 infeasible (stderr says what would mend it), 4 the environment.
    """
    if not trials:
        refuse_given("without --cross-validate", "cycles", "seeds", "dataset", "data_dir")
    if json:
        refuse_given("with --json, which has every candidate", "everything")
    question = pose(
        file,
        cycle_time,
        samples,
        min_samples=min_samples,
        max_epochs=max_epochs,
        energy=energy,
        mode=mode,
        layers=layers,
        options=_OPTIONS,
        json=json,
    )
    with bad_input(_OPTIONS):
        try:
            answer = _recommend(
                question.problem,
                staleness_up_to=staleness_up_to,
                federated=question.mode == "fl",
                accuracy=accuracy,
                time_budget_s=time_budget,
                energy_budget_j=energy_budget,
            )
        except Infeasible as infeasible:
            refuse(question, infeasible.diagnosis)
        verdict = None
        if trials:
            verdict = _trials(question, answer, Setup(cycles, seeds, dataset, data_dir, question.mode))
    if json:
        body: dict[str, Any] = {**answer.as_dict(), "cross_validation": verdict and verdict.as_dict()}
        print_json(question, body)
    else:
        show(console(), question, answer, verdict, everything=everything)
    for remark in question.remarks:
        note(remark)


def _trials(question: Question, answer: Recommendation, setup: Setup) -> Verdict:
    """Simulate the c that are worth it, under the best heterogeneity-aware rule, and pick one."""
    able = [c for c in (answer.best, *answer.candidates) if c.scheme.startswith("ha") and not c.caution]
    tries = worth_trying(able[0], answer.candidates).staleness
    try:
        simulate = plugins.load(plugins.TRIALS, "simulate")
        rows, notice = simulate(question.names, question.problem, able[0], tries, setup)
        return judge(rows, able[0], setup, notice)
    except ImportError as error:
        missing_packages("--cross-validate", error, "simulation")
