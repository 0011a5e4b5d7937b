"""A question about a fleet: its file, its job, its limits, and the answer that nothing fits."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeAlias

import typer

from flwr_mel import __version__
from flwr_mel._validate import Phrase
from flwr_mel.allocation import AllocationProblem, Diagnosis, Status
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.problem import NO_LIMIT
from flwr_mel.allocation.screening import screen
from flwr_mel.allocation.solution import round_up
from flwr_mel.cli.drawing import some
from flwr_mel.cli.shared import INFEASIBLE, bad_input, stop
from flwr_mel.costs import Workload
from flwr_mel.fleets import Fleet, parse_fleet, read_fleet
from flwr_mel.paper import least_batch

#: From the library's fields to the options of every question.
OPTIONS = {
    "cycle_time_s": "--cycle-time",
    "energy_limit_j": "--energy",
    "total_samples": "--samples",
    "min_samples": "--min-samples",
    "max_epochs": "--max-epochs",
    "layers": "--layers",
}


class Mode(StrEnum):
    """Who has the data."""

    PL = "pl"
    FL = "fl"


LIMITS, OUTPUT = "Limits", "What to print"
FleetFile: TypeAlias = Annotated[
    str, typer.Argument(metavar="FLEET", help="A .toml or .csv file; - is stdin (TOML).")
]
Samples: TypeAlias = Annotated[
    int, typer.Option(help="Samples of the whole fleet per cycle, d.", rich_help_panel=LIMITS)
]
Energy: TypeAlias = Annotated[
    float | None,
    typer.Option(help="Joules per learner and cycle, in place of the file's.", rich_help_panel=LIMITS),
]
LeastBatch: TypeAlias = Annotated[
    int,
    typer.Option(
        help="Least batch of a learner that takes part; 0: 100 per 60,000 samples, at most half an equal "
        "share.",
        rich_help_panel=LIMITS,
    ),
]
MaxEpochs: TypeAlias = Annotated[
    int | None, typer.Option(help="Nobody does more epochs.", rich_help_panel=LIMITS)
]
Where: TypeAlias = Annotated[
    Mode | None,
    typer.Option(
        help="pl: the server ships the samples; fl: data stay. The file's, else pl.", rich_help_panel=LIMITS
    ),
]
Layers: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Layer sizes of the network, e.g. 784,300,10. The file's, else the paper's.",
        rich_help_panel=LIMITS,
    ),
]
Json: TypeAlias = Annotated[
    bool, typer.Option("--json", help="JSON on stdout, nothing else.", rich_help_panel=OUTPUT)
]


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked, apart from the way to solve it."""

    file: str
    names: Sequence[str]
    problem: AllocationProblem
    mode: str
    json: bool = False
    csv: bool = False
    everything: bool = False
    remarks: Sequence[str] = field(default_factory=list)

    @property
    def machine(self) -> bool:
        """Whether a program reads stdout."""
        return self.json or self.csv

    def headline(self) -> str:
        """Return the limits in one line."""
        p = self.problem
        staleness = f"staleness {p.staleness}" if p.staleness else "synchronous"
        return (
            f"{len(p):,} learners, {p.total_samples:,} samples, {p.cycle_time_s:.4g} s per cycle, "
            f"{staleness}, least batch {p.min_samples:,}, {self.mode.upper()}"
        )


def load(file: str) -> Fleet:
    """Read a fleet file, or TOML from stdin for "-"; end with exit code 2 if it is broken."""
    with bad_input():
        if file == "-":
            return parse_fleet(sys.stdin.buffer.read(), "stdin")
        return read_fleet(Path(file))


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


def pose(
    file: str,
    cycle_time_s: float | str,
    samples: int,
    *,
    staleness: int = 0,
    min_samples: int = 0,
    max_epochs: int | None = None,
    energy: float | None = None,
    mode: Mode | None = None,
    layers: str | None = None,
    options: Mapping[str, str] = OPTIONS,
    **output: bool,
) -> Question:
    """Read a fleet and pose its problem; end with exit code 2 if something is wrong with either.

    Parameters
    ----------
    file : str
        The fleet's; "-" is stdin.
    cycle_time_s : float or str
        T, or "best".
    samples, staleness, min_samples, max_epochs, energy, mode, layers
        As the options of that name; 0 least samples: the usual.
    options : mapping
        From fields to the options that name them in errors.
    **output
        json, csv, everything.
    """
    fleet = load(file)
    with bad_input(options):
        workload = job_of(fleet, layers, mode)
        problem = fleet.problem(
            cycle_time_s=cycle_time_s,
            total_samples=samples,
            staleness=staleness,
            min_samples=min_samples or least_batch(samples, len(fleet)),
            max_epochs=max_epochs,
            energy_limit_j=energy,
            workload=workload,
        )
    where = "pl" if workload.ship_data else "fl"
    return Question(file, fleet.names, problem, where, remarks=remarks_of(fleet, mode, layers), **output)


def print_json(question: Question, body: Mapping[str, Any]) -> None:
    """Write an answer with its question as JSON, and nothing else."""
    head = {
        "flwr_mel": __version__,
        "fleet": question.file,
        "mode": question.mode,
        "problem": problem_json(question.problem),
    }
    typer.echo(json.dumps({**head, **body}, indent=2, allow_nan=False))


def refuse(question: Question, diagnosis: Diagnosis) -> NoReturn:
    """Say that there is no plan and what would mend it, and end with the code for it."""
    report = infeasible_json(question.problem, diagnosis, question.names)
    if question.json:
        print_json(question, report)
    first, *others = diagnosis_lines(diagnosis, question.names)
    typer.echo(f"{typer.style('infeasible:', fg='red', bold=True)} {first}", err=True)
    for line in others:
        typer.echo(f"  {line}", err=True)
    reasons: dict[str, list[str]] = {}
    for name, reason in report["left_out"].items():
        reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        typer.echo(f"  Left out, {len(names):,}: {some(names)}: {reason}.", err=True)
    raise typer.Exit(INFEASIBLE)


def problem_json(problem: AllocationProblem) -> dict[str, Any]:
    """Return the limits everybody shares."""
    return {
        "learners": len(problem),
        "cycle_time_s": problem.cycle_time_s,
        "total_samples": problem.total_samples,
        "staleness": problem.staleness,
        "min_samples": problem.min_samples,
        "max_epochs": None if problem.max_epochs >= NO_LIMIT else problem.max_epochs,
    }


def diagnosis_json(diagnosis: Diagnosis, names: Sequence[str]) -> dict[str, Any]:
    """Return why nothing fits and what would mend it."""
    return {
        "total_samples": diagnosis.total_samples,
        "largest_total_samples": diagnosis.carried,
        "smallest_cycle_time_s": diagnosis.cycle_time_s,
        "text": " ".join(diagnosis_lines(diagnosis, names)),
    }


def infeasible_json(problem: AllocationProblem, diagnosis: Diagnosis, names: Sequence[str]) -> dict[str, Any]:
    """Return the whole answer to a question that has none."""
    return {
        "status": str(Status.INFEASIBLE),
        "explanation": Status.INFEASIBLE.explanation,
        "problem": problem_json(problem),
        "diagnosis": diagnosis_json(diagnosis, names),
        "left_out": {names[k]: reason.explanation for k, reason in screen(Capacities.of(problem))[1].items()},
    }


def diagnosis_lines(diagnosis: Diagnosis, names: Sequence[str]) -> list[str]:
    """Say in sentences why nothing fits and what would mend it, in terms of the options.

    Parameters
    ----------
    diagnosis : Diagnosis
        Of an infeasible problem.
    names : sequence of str
        The learners', in place of their numbers.
    """
    fits, asked = diagnosis.carried, diagnosis.total_samples
    reason = diagnosis.detail or (
        f"at one epoch each the learners carry {fits:,} of {asked:,} samples, {asked - fits:,} too few"
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
