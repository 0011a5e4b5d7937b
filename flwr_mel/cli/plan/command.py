"""``flwr-mel plan``: allocate epochs and samples to a fleet, compare schemes, ask the inverse questions."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from flwr_mel.allocation import Handout, Solver
from flwr_mel.allocation.objectives import NAMED, Objective, PerCost, goal_of
from flwr_mel.cli.plan.printing import reply_compare, reply_inverse, reply_plan
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
    Samples,
    Where,
    pose,
)
from flwr_mel.cli.shared import bad_input, missing_packages, refuse_given, stop
from flwr_mel.paper import DEFAULT_STALENESS
from flwr_mel.solvers import EqualBatches, Exact
from flwr_mel.solvers.exact import Exclude

EXAMPLES = """Examples:

flwr-mel plan fleet.toml --cycle-time 10 --samples 60000 --staleness 2

flwr-mel plan fleet.toml --cycle-time 10 --samples 60000 --energy 20 --compare

flwr-mel plan fleet.toml --cycle-time best --samples 60000 --energy 20 --objective soonest

flwr-mel plan fleet.csv --samples 60000 --fastest 3

flwr-mel plan fleet.toml --cycle-time 30 --samples 60000 --greenest 3 --json"""

_OPTIONS = OPTIONS | {
    name: f"--{name}" for name in ("staleness", "solver", "handout", "exclude", "objective")
}


class SolverName(StrEnum):
    """Solvers by their name on the command line."""

    EXACT = "exact"
    SUGGEST_IMPROVE = "suggest-improve"
    EQUAL = "equal"


_HOW = "How to allocate"


def _objectives(begun: str) -> list[str]:
    return [name for name in NAMED if name.startswith(begun)]


def plan(
    file: FleetFile,
    samples: Samples,
    cycle_time: Annotated[
        str | None,
        typer.Option(
            metavar="SECONDS|best",
            help="Seconds per cycle, T; best: T is part of the answer (--objective soonest or cheapest). "
            "Only --fastest does without.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    energy: Energy = None,
    staleness: Annotated[
        int | None,
        typer.Option(
            help="Largest difference between two learners' epochs, c; 0 is synchronous.  "
            f"\\[default: {DEFAULT_STALENESS}]",
            rich_help_panel=LIMITS,
            show_default=False,
        ),
    ] = None,
    min_samples: LeastBatch = 0,
    max_epochs: MaxEpochs = None,
    mode: Where = None,
    layers: Layers = None,
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
        str | None,
        typer.Option(
            metavar="NAME",
            help="epochs: the paper's mean of epochs. These fix the batches: progress (docs/RECOMMEND.md), "
            "soonest and cheapest (most progress per second, per joule).  "
            "\\[default: epochs, with --cycle-time best soonest]",
            rich_help_panel=_HOW,
            autocompletion=_objectives,
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
    json: Json = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="CSV on stdout, nothing else.", rich_help_panel=OUTPUT)
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Every row, however many learners.", rich_help_panel=OUTPUT)
    ] = False,
) -> None:
    """Plan a cycle: epochs and samples per learner, within time, energy and staleness.

    FLEET is a .toml or .csv file, or - for TOML from stdin.
    Write an example with: flwr-mel fleet --paper

    The table shows what each learner gets, how much of its time and energy
    that takes, and what keeps it from more: time, energy, data, staleness or
    max_epochs.

    Exit codes: 0 done, 2 bad input, 3 infeasible (stderr says what would mend it), 4 the environment.
    """
    inverse = {"--fastest": fastest, "--greenest": greenest}
    asked = [name for name, epochs in inverse.items() if epochs is not None]
    _at_most_one(["--json"] * json + ["--csv"] * csv)
    _at_most_one(asked + ["--compare"] * compare)
    whole = (
        ("--json", json, "every row"),
        ("--csv", csv, "every row"),
        ("--compare", compare, "a row per scheme"),
    )
    for name, is_given, rows in whole:
        if is_given:
            refuse_given(f"with {name}, which has {rows}", "everything")
    if asked:
        free = {"--solver": solver, "--handout": handout, "--exclude": exclude, "--objective": objective}
        _refuse(asked[0], {**free, "--staleness": staleness, "--max-epochs": max_epochs})
    if fastest is not None:
        refuse_given("with --fastest, which looks for it", "cycle_time")
    if cycle_time is None and fastest is None:
        stop("--cycle-time must be given, in seconds, got nothing. Only --fastest does without")
    objective = "soonest" if cycle_time == "best" and objective is None and not asked else objective
    chosen = _solver(solver or SolverName.EXACT, handout, exclude, objective)
    if cycle_time == "best" and (asked or not isinstance(getattr(chosen, "objective", None), PerCost)):
        stop(
            "--cycle-time best must go with --objective soonest or cheapest, which weigh a cycle by its cost"
        )
    question = pose(
        file,
        _seconds(cycle_time),
        samples,
        staleness=DEFAULT_STALENESS if staleness is None else staleness,
        min_samples=min_samples,
        max_epochs=max_epochs,
        energy=energy,
        mode=mode,
        layers=layers,
        options=_OPTIONS,
        json=json,
        csv=csv,
        everything=everything,
    )
    if asked:
        with bad_input({**_OPTIONS, "epochs": asked[0]}):
            reply_inverse(question, asked[0].removeprefix("--"), inverse[asked[0]] or 0)
        return
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


def _seconds(text: str | None) -> float | str:
    """Read T; "best" is for the problem to find."""
    if text is None or text == "best":
        return text or 1.0
    try:
        return float(text)
    except ValueError:
        stop(f"--cycle-time must be seconds or best, got {text!r}")


def _solver(
    name: SolverName, handout: Handout | None, exclude: Exclude | None, objective: str | None
) -> Solver:
    with bad_input(_OPTIONS):
        goal = goal_of(objective or Objective.EPOCHS)
    if goal is not Objective.EPOCHS:
        if name is not SolverName.EXACT:
            stop(f"--objective {goal} must go with --solver exact, got --solver {name}")
        if handout is not None:
            stop(f"--handout must be left out with --objective {goal}, which fixes batches, got {handout}")
    if name is not SolverName.EXACT and exclude is Exclude.OPTIMAL:
        stop(f"--exclude optimal must go with --solver exact, got --solver {name}")
    if name is SolverName.EQUAL:
        if handout is not None:
            stop(f"--handout must be left out with --solver equal, whose batches are equal, got {handout}")
        return EqualBatches()
    rule = handout or Handout.PROPORTIONAL
    if name is SolverName.EXACT:
        return Exact(handout=rule, exclude=exclude or Exclude.INFEASIBLE, objective=goal)
    return _suggest_improve(rule)


def _suggest_improve(rule: Handout) -> Solver:
    try:
        import cvxpy  # noqa: F401, PLC0415 - heavy, and not part of the base install
    except ImportError as error:
        missing_packages("--solver suggest-improve", error, "paper")
    from flwr_mel.solvers.suggest_improve import SuggestImprove  # noqa: PLC0415

    return SuggestImprove(handout=rule)
