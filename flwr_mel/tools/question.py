"""A question about a fleet: its file, its job, its limits, and the answer that nothing fits."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from flwr_mel import __version__
from flwr_mel._text import some
from flwr_mel._validate import Phrase
from flwr_mel.allocation import AllocationProblem, Diagnosis
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.problem import NO_LIMIT
from flwr_mel.allocation.screening import screen
from flwr_mel.allocation.solution import round_up
from flwr_mel.devices import Measured
from flwr_mel.paper import least_batch
from flwr_mel.tools.fleetfile import Fleet, parse_fleet, read_fleet
from flwr_mel.tools.shell import INFEASIBLE, bad_input, note, print_json

#: From the library's fields to options of another name.
OPTIONS = {
    "cycle_time_s": "--cycle-time",
    "energy_limit_j": "--energy",
    "total_samples": "--samples",
    "reference_s": "--energy-per",
}


class Mode(StrEnum):
    """Whether the server ships the samples (parallelized), or the data stay (federated)."""

    PL = "pl"
    FL = "fl"


def limit(text: str, *names: str, **more: Any) -> Any:
    """Make an option of the panel of limits."""
    return typer.Option(*names, help=text, rich_help_panel="Limits", **more)


def whole(text: str) -> int:
    """Read a whole number, also one written as the tables write it: 60,000."""
    try:
        return int(str(text).replace(",", ""))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a valid integer") from None


_LEAST = "Smallest batch of a participating learner; 0: 100 per 60,000 samples, at most half an equal share."
_MODE = "pl: the server ships the samples; fl: data stay with the learners. Default: the file's, else pl."
FleetFile = Annotated[str, typer.Argument(metavar="FLEET", help="A TOML file; - is stdin.")]
SAMPLES = "Samples of the whole fleet per cycle, d."
Energy = Annotated[float | None, limit("Joules per learner and cycle, instead of the file's limits.")]
LeastBatch = Annotated[int, limit(_LEAST)]
MaxEpochs = Annotated[int | None, limit("Largest number of epochs of a learner.")]
Where = Annotated[Mode | None, limit(_MODE)]
Json = Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")]


@dataclass(frozen=True, slots=True)
class Question:
    """The question of the user, apart from the way to solve it."""

    file: str
    names: Sequence[str]
    problem: AllocationProblem
    mode: str
    json: bool = False

    def headline(self) -> str:
        """Return the limits in one line."""
        p = self.problem
        staleness = f"staleness {p.staleness}" if p.staleness else "synchronous"
        return (
            f"{len(p):,} learners, {p.total_samples:,} samples, {p.cycle_time_s:.4g} s per cycle, "
            f"{staleness}, smallest batch {p.min_samples:,}, {self.mode.upper()}"
        )

    def print_json(self, body: Mapping[str, Any]) -> None:
        """Write an answer with its question as JSON."""
        p = self.problem
        limits = {
            "learners": len(p),
            "cycle_time_s": p.cycle_time_s,
            "total_samples": p.total_samples,
            "staleness": p.staleness,
            "min_samples": p.min_samples,
            "max_epochs": None if p.max_epochs >= NO_LIMIT else p.max_epochs,
        }
        head = {"flwr_mel": __version__, "fleet": self.file, "mode": self.mode, "problem": limits}
        print_json({**head, **body})


def load(file: str) -> Fleet:
    """Read a fleet file, or TOML from stdin for "-"; end with exit code 2 if it is broken."""
    with bad_input():
        return parse_fleet(sys.stdin.buffer.read(), "stdin") if file == "-" else read_fleet(Path(file))


def pose(
    file: str,
    *,
    min_samples: int,
    energy: float | None,
    mode: Mode | None,
    json: bool,
    **limits: Any,
) -> Question:
    """Read a fleet and pose its problem; end with exit code 2 if something is wrong with either.

    Parameters
    ----------
    file : str
        The fleet's; "-" is stdin.
    min_samples, energy, mode, json
        As the options of that name; 0 least samples: the usual.
    **limits
        Of `Fleet.problem`.
    """
    fleet = load(file)
    with bad_input(OPTIONS):
        job = fleet.job() if mode is None else replace(fleet.job(), ship_data=mode is Mode.PL)
        least = min_samples or least_batch(limits["total_samples"], len(fleet))
        problem = fleet.problem(min_samples=least, energy_limit_j=energy, workload=job, **limits)
    measured = sum(isinstance(learner, Measured) for learner in fleet.learners)
    if measured and mode is not None:
        costs = "1 learner were" if measured == 1 else f"{measured} learners were"
        note(f"the costs of {costs} measured, so --mode did not change them.")
    return Question(file, fleet.names, problem, "pl" if job.ship_data else "fl", json)


def refuse(question: Question, diagnosis: Diagnosis) -> NoReturn:
    """Say that there is no plan and what would mend it, and end with the code for it."""
    reasons: dict[str, list[str]] = {}
    for k, reason in screen(Capacities.of(question.problem))[1].items():
        reasons.setdefault(reason.explanation, []).append(question.names[k])
    lines = diagnosis_lines(diagnosis, question.names)
    if question.json:
        told = {
            "largest_total_samples": diagnosis.carried,
            "smallest_cycle_time_s": diagnosis.cycle_time_s,
            "text": " ".join(lines),
        }
        out = {name: reason for reason, names in reasons.items() for name in names}
        question.print_json({"status": "infeasible", "diagnosis": told, "skipped": out})
    typer.echo(f"{typer.style('infeasible:', fg='red', bold=True)} {lines[0]}", err=True)
    skipped = [f"Skipped, {len(names):,}: {some(names)}: {reason}." for reason, names in reasons.items()]
    for line in (*lines[1:], *skipped):
        typer.echo(f"  {line}", err=True)
    raise typer.Exit(INFEASIBLE)


def diagnosis_lines(diagnosis: Diagnosis, names: Sequence[str]) -> list[str]:
    """Say in sentences why nothing fits and what would mend it, in terms of the options."""
    fits, asked = diagnosis.carried, diagnosis.total_samples
    reason = diagnosis.detail or (
        f"with one epoch each, the learners can process {fits:,} of {asked:,} samples, "
        f"{asked - fits:,} too few"
    )
    if isinstance(reason, Phrase):
        learners = {f"learner {k}": name for k, name in enumerate(names)}
        reason = reason.told({"min_samples": "--min-samples", **learners})
    lines = [f"{reason[0].upper()}{reason[1:]}."]
    if 0 < fits < asked:
        lines.append(f"The largest --samples that fits: {fits}.")
    if diagnosis.cycle_time_s is None:
        lines.append("No --cycle-time is long enough: energy limits, max_samples or the fleet must grow.")
    else:
        lines.append(f"The smallest --cycle-time that works: {round_up(diagnosis.cycle_time_s)} s.")
    return lines
