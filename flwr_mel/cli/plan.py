"""``flwr-mel plan``: allocate epochs and samples to a fleet, compare schemes, ask the inverse questions."""

from __future__ import annotations

import re
from dataclasses import replace
from enum import StrEnum
from typing import Annotated

import typer

from flwr_mel.allocation import Handout, Solver
from flwr_mel.allocation.solution import Objective
from flwr_mel.cli.fleet import load
from flwr_mel.cli.replies import Question, reply_compare, reply_inverse, reply_plan
from flwr_mel.cli.shared import bad_input, stop
from flwr_mel.costs import Workload
from flwr_mel.learners import Fleet
from flwr_mel.solvers import EqualBatches, Exact
from flwr_mel.solvers.exact import Exclude

EXAMPLES = """Examples:

flwr-mel plan fleet.toml --cycle-time 10 --samples 60000 --staleness 2

flwr-mel plan fleet.toml --cycle-time 10 --samples 60000 --energy 20 --compare

flwr-mel plan fleet.csv --samples 60000 --fastest 3

flwr-mel plan fleet.toml --cycle-time 30 --samples 60000 --greenest 3 --json"""

_OPTIONS = {
    "cycle_time_s": "--cycle-time",
    "energy_limit_j": "--energy",
    "total_samples": "--samples",
    "staleness": "--staleness",
    "min_samples": "--min-samples",
    "max_epochs": "--max-epochs",
    "layers": "--layers",
}


class SolverName(StrEnum):
    """Solvers by their name on the command line."""

    EXACT = "exact"
    SUGGEST_IMPROVE = "suggest-improve"
    EQUAL = "equal"


class Mode(StrEnum):
    """Who has the data."""

    PL = "pl"
    FL = "fl"


_LIMITS, _HOW, _OUTPUT = "Limits", "How to allocate", "What to print"


def plan(
    file: Annotated[str, typer.Argument(metavar="FLEET", help="A .toml or .csv file; - is stdin (TOML).")],
    samples: Annotated[
        int, typer.Option(help="Samples of the whole fleet per cycle, d.", rich_help_panel=_LIMITS)
    ],
    cycle_time: Annotated[
        float | None,
        typer.Option(help="Seconds per cycle, T. Only --fastest does without.", rich_help_panel=_LIMITS),
    ] = None,
    energy: Annotated[
        float | None,
        typer.Option(help="Joules per learner and cycle, in place of the file's.", rich_help_panel=_LIMITS),
    ] = None,
    staleness: Annotated[
        int | None,
        typer.Option(
            help="Largest difference between two learners' epochs, c; 0 is synchronous.  \\[default: 1]",
            rich_help_panel=_LIMITS,
            show_default=False,
        ),
    ] = None,
    min_samples: Annotated[
        int, typer.Option(help="Least batch of a learner that takes part.", rich_help_panel=_LIMITS)
    ] = 1,
    max_epochs: Annotated[
        int | None, typer.Option(help="Nobody does more epochs.", rich_help_panel=_LIMITS)
    ] = None,
    mode: Annotated[
        Mode | None,
        typer.Option(
            help="pl: the server ships the samples; fl: data stay. The file's, else pl.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(
            help="Layer sizes of the network, e.g. 784,300,10. The file's, else the paper's.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    solver: Annotated[
        SolverName | None,
        typer.Option(
            help="exact (with proof), suggest-improve (the paper's) or equal batches.  \\[default: exact]",
            rich_help_panel=_HOW,
        ),
    ] = None,
    handout: Annotated[
        Handout | None,
        typer.Option(help="Rule for the samples.  \\[default: proportional]", rich_help_panel=_HOW),
    ] = None,
    objective: Annotated[
        Objective | None,
        typer.Option(
            help="epochs: the paper's mean of epochs; progress: epochs weighted by batches squared "
            "(docs/RECOMMEND.md), which fixes the batches.  \\[default: epochs]",
            rich_help_panel=_HOW,
        ),
    ] = None,
    exclude: Annotated[
        Exclude | None,
        typer.Option(
            help="Leave out only who cannot take part, or also stragglers.  \\[default: infeasible]",
            rich_help_panel=_HOW,
        ),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="All four schemes side by side.", rich_help_panel=_HOW)
    ] = False,
    fastest: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Shortest cycle in which everybody does N epochs.", rich_help_panel=_HOW
        ),
    ] = None,
    greenest: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Least energy with which everybody does N epochs.", rich_help_panel=_HOW
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="JSON on stdout, nothing else.", rich_help_panel=_OUTPUT)
    ] = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="CSV on stdout, nothing else.", rich_help_panel=_OUTPUT)
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Every row, however many learners.", rich_help_panel=_OUTPUT)
    ] = False,
) -> None:
    """Plan a cycle: epochs and samples per learner, within time, energy and staleness.

    FLEET is a .toml or .csv file, or - for TOML from stdin.
    Write an example with: flwr-mel fleet --paper

    The table shows what each learner gets, how much of its time and energy
    that takes, and which limit would first stop a larger batch.

    Exit codes: 0 done, 2 bad input, 3 infeasible (stderr says what would mend it).
    """
    inverse = {"--fastest": fastest, "--greenest": greenest}
    asked = [name for name, epochs in inverse.items() if epochs is not None]
    _at_most_one(["--json"] * json + ["--csv"] * csv)
    _at_most_one(asked + ["--compare"] * compare)
    if asked:
        free = {"--solver": solver, "--handout": handout, "--exclude": exclude, "--objective": objective}
        _refuse(asked[0], {**free, "--staleness": staleness, "--max-epochs": max_epochs})
    if cycle_time is None and fastest is None:
        stop("--cycle-time must be given, in seconds, got nothing. Only --fastest does without")
    fleet = load(file)
    with bad_input(_OPTIONS):
        workload = job_of(fleet, layers, mode)
        problem = fleet.problem(
            cycle_time_s=1.0 if cycle_time is None else cycle_time,
            total_samples=samples,
            staleness=1 if staleness is None else staleness,
            min_samples=min_samples,
            max_epochs=max_epochs,
            energy_limit_j=energy,
            workload=workload,
        )
    remarks = remarks_of(fleet, mode, layers)
    question = Question(
        file, fleet.names, problem, "pl" if workload.ship_data else "fl", json, csv, everything, remarks
    )
    if asked:
        with bad_input({"epochs": asked[0]}):
            reply_inverse(question, asked[0].removeprefix("--"), inverse[asked[0]] or 0)
        return
    chosen = _solver(solver or SolverName.EXACT, handout, exclude, objective)
    with bad_input(_OPTIONS):
        if compare:
            reply_compare(question, chosen, solver)
        else:
            reply_plan(question, chosen, solver or SolverName.EXACT, look_for_stragglers=exclude is None)


def _at_most_one(given: list[str]) -> None:
    if len(given) > 1:
        stop(f"{given[0]} and {given[1]} exclude each other: give one of them")


def _refuse(question: str, options: dict[str, object]) -> None:
    for name, value in options.items():
        if value is not None:
            stop(f"{name} must be left out with {question}, which fixes everybody's epochs, got {value}")


def job_of(fleet: Fleet, layers: str | None, mode: Mode | None) -> Workload:
    """Return the training job: the file's, changed by what the options say."""
    job = fleet.job()
    if layers is not None:
        if not re.fullmatch(r"\s*\d{1,12}(\s*[,-]\s*\d{1,12})*\s*", layers):
            stop(f"--layers must be layer sizes with commas between, e.g. 784,300,10, got {layers!r}")
        sizes = Workload.mlp([int(size) for size in re.findall(r"\d+", layers)])
        job = replace(
            job,
            model_parameters=sizes.model_parameters,
            operations_per_sample=sizes.operations_per_sample,
            features=sizes.features,
        )
    return job if mode is None else replace(job, ship_data=mode is Mode.PL)


def remarks_of(fleet: Fleet, mode: Mode | None, layers: str | None) -> list[str]:
    """Return what people should know about options that change nothing for measured learners."""
    changed = [name for name, value in (("--mode", mode), ("--layers", layers)) if value is not None]
    if not fleet.measured or not changed:
        return []
    who = "the costs" if fleet.measured == len(fleet) else f"the costs of {fleet.measured} learners"
    return [f"{who} were measured, so {' and '.join(changed)} did not change them."]


def _solver(
    name: SolverName, handout: Handout | None, exclude: Exclude | None, objective: Objective | None
) -> Solver:
    if objective is Objective.PROGRESS:
        if name is not SolverName.EXACT:
            stop(f"--objective progress must go with --solver exact, got --solver {name}")
        if handout is not None:
            stop(f"--handout must be left out with --objective progress, which fixes batches, got {handout}")
    if name is not SolverName.EXACT and exclude is Exclude.OPTIMAL:
        stop(f"--exclude optimal must go with --solver exact, got --solver {name}")
    if name is SolverName.EQUAL:
        if handout is not None:
            stop(f"--handout must be left out with --solver equal, whose batches are equal, got {handout}")
        return EqualBatches()
    rule = handout or Handout.PROPORTIONAL
    if name is SolverName.EXACT:
        goal = objective or Objective.EPOCHS
        return Exact(handout=rule, exclude=exclude or Exclude.INFEASIBLE, objective=goal)
    return _suggest_improve(rule)


def _suggest_improve(rule: Handout) -> Solver:
    try:
        import cvxpy  # noqa: F401, PLC0415 - heavy, and not part of the base install
    except ImportError:
        stop("--solver suggest-improve needs cvxpy: pip install 'flwr-mel[paper]'")
    from flwr_mel.solvers.suggest_improve import SuggestImprove  # noqa: PLC0415

    return SuggestImprove(handout=rule)
