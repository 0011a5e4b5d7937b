"""Answer a question about a fleet, in the form asked for: table, JSON or CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import typer

from flwr_mel import __version__
from flwr_mel.allocation import AllocationProblem, Diagnosis, Infeasible, Solution, Solver, allocate
from flwr_mel.allocation.inverse import fastest, greenest
from flwr_mel.allocation.schemes import PAPER_SCHEMES, SchemeName, scheme
from flwr_mel.allocation.solution import round_up
from flwr_mel.cli import answers, tables
from flwr_mel.cli.shared import INFEASIBLE, console, note
from flwr_mel.solvers import EqualBatches, Exact
from flwr_mel.solvers.exact import Exclude


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


def reply_plan(question: Question, solver: Solver, name: str, *, look_for_stragglers: bool) -> None:
    """Allocate and print.

    Parameters
    ----------
    question : Question
        What was asked.
    solver : Solver
        How to solve it.
    name : str
        The solver's, for the heading.
    look_for_stragglers : bool
        Also look whether leaving learners out would pay.
    """
    problem = question.problem
    solution = allocate(problem, solver, throw=False)
    if solution.diagnosis is not None:
        refuse(question, solution.diagnosis)
    rows = answers.rows(question.names, problem, solution)
    rounded = answers.flooring(problem)
    fixed = isinstance(solver, EqualBatches) or not look_for_stragglers
    found = None if fixed else answers.stragglers(question.names, problem, solution)
    if question.json:
        body = {
            "solver": name,
            **answers.solution_json(solution),
            "relaxed_synchronous": vars_of(rounded),
            "stragglers": vars_of(found),
            "learners": [answers.row_json(row) for row in rows],
        }
        print_json(question, body)
    elif question.csv:
        _csv(answers.row_json(row) for row in rows)
    else:
        out = console()
        tables.title(out, f"Plan of {question.file}, solver {name}", question.headline())
        tables.learner_table(out, rows, problem.cycle_time_s, everything=question.everything)
        tables.left_out(out, rows)
        tables.facts(out, tables.solution_facts(solution, problem, rounded))
        if found is not None:
            tables.hint(out, found, len(problem))
    _remarks(question)


def reply_compare(question: Question, solver: Solver, name: str | None) -> None:
    """Print HA-Asyn, HA-Sync, HU-Asyn, HU-Sync and the bound side by side.

    Parameters
    ----------
    question : Question
        What was asked.
    solver : Solver
        For the heterogeneity-aware schemes.
    name : str or None
        The solver's, if the user chose one.
    """
    problem, c = question.problem, question.problem.staleness
    solutions = {}
    for which in PAPER_SCHEMES:
        mine = solver if which.aware else None
        chosen = scheme(which, None if which.synchronous else c, mine)
        solutions[which] = chosen.allocate(problem, throw=False)
    best = solutions[SchemeName.HA_ASYN]
    if not any(s.status.ok for s in solutions.values()):
        refuse(question, best.diagnosis or Diagnosis(problem.total_samples, 0, None))
    rounded = answers.flooring(problem)
    bound = _bound(problem, best, solver)
    if question.machine:
        rows = [{"scheme": str(k), **answers.solution_json(s)} for k, s in solutions.items()]
        if question.csv:
            _csv(rows)
        else:
            for row, s in zip(rows, solutions.values(), strict=True):
                wrong = s.diagnosis
                row["diagnosis"] = wrong and answers.diagnosis_json(wrong, question.names)
            body = {"solver": name or "exact", "bound": bound, "relaxed_synchronous": vars_of(rounded)}
            print_json(question, {**body, "schemes": rows})
    else:
        out = console()
        tables.title(out, f"Schemes on {question.file}", question.headline())
        labels = {k: _label(k, c) for k in solutions}
        tables.scheme_table(out, [(labels[k], s) for k, s in solutions.items()], bound)
        sync = solutions[SchemeName.HA_SYNC].mean_epochs
        gain = (
            [("gain", f"HA-Asyn does {best.mean_epochs / sync:.2f} times the epochs of HA-Sync")]
            if sync
            else []
        )
        tables.facts(out, [*gain, *tables.flooring_facts(rounded)])
        for k, s in solutions.items():
            if s.diagnosis is not None:
                text = " ".join(answers.diagnosis_lines(s.diagnosis, question.names))
                out.print(f"\n{labels[k]}: {text}", markup=False)
    _remarks(question)


def _bound(problem: AllocationProblem, best: Solution, solver: Solver) -> float | None:
    """Bound all allocations of all samples; None if there is none, whatever equal batches then do."""
    if not best.status.ok:
        return None
    if isinstance(solver, Exact) and solver.exclude is Exclude.INFEASIBLE:
        return best.bound
    return max(best.bound, allocate(problem, Exact(), throw=False).bound)


def _label(which: SchemeName, staleness: int) -> str:
    name = which.value.upper().replace("ASYN", "Asyn").replace("SYNC", "Sync")
    return name if which.synchronous else f"{name} c={staleness}"


def reply_inverse(question: Question, which: str, epochs: int) -> None:
    """Answer --fastest or --greenest.

    Parameters
    ----------
    question : Question
        What was asked.
    which : str
        "fastest" or "greenest".
    epochs : int
        Of everybody.
    """
    try:
        plan = (fastest if which == "fastest" else greenest)(question.problem, epochs)
    except Infeasible as infeasible:
        refuse(question, infeasible.diagnosis)
    problem = question.problem
    if which == "fastest":
        problem = problem.replace(cycle_time_s=plan.cycle_time_s)
    rows = answers.rows(question.names, problem, plan)
    if question.json:
        body = {
            "question": which,
            "status": "optimal",
            "epochs": epochs,
            "makespan_s": plan.cycle_time_s,
            "total_energy_j": plan.total_energy_j,
            "learners": [answers.row_json(row) for row in rows],
        }
        print_json(question, body)
    elif question.csv:
        _csv(answers.row_json(row) for row in rows)
    else:
        out = console()
        goal = "Shortest cycle" if which == "fastest" else "Least energy"
        times = "epoch" if epochs == 1 else "epochs"
        detail = f"{len(problem):,} learners, {problem.total_samples:,} samples, {question.mode.upper()}"
        tables.title(out, f"{goal} for {epochs:,} {times} of everybody in {question.file}", detail)
        tables.learner_table(out, rows, problem.cycle_time_s, everything=question.everything)
        time_s = round_up(plan.cycle_time_s)
        facts = [("cycle time", f"{time_s} s"), ("energy", f"{plan.total_energy_j:.6g} J in sum")]
        tables.facts(out, facts if which == "fastest" else facts[::-1])
    _remarks(question)


def vars_of(value: Any) -> dict[str, Any] | None:
    """Return the fields of a small record, None for None."""
    return None if value is None else {name: getattr(value, name) for name in value.__slots__}


def refuse(question: Question, diagnosis: Diagnosis) -> NoReturn:
    """Say that there is no plan and what would mend it, and end with the code for it."""
    report = answers.infeasible_json(question.problem, diagnosis, question.names)
    if question.json:
        print_json(question, report)
    first, *others = answers.diagnosis_lines(diagnosis, question.names)
    typer.echo(f"{typer.style('infeasible:', fg='red', bold=True)} {first}", err=True)
    for line in others:
        typer.echo(f"  {line}", err=True)
    reasons: dict[str, list[str]] = {}
    for name, reason in report["left_out"].items():
        reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        typer.echo(f"  Left out, {len(names):,}: {tables.some(names)}: {reason}.", err=True)
    raise typer.Exit(INFEASIBLE)


def print_json(question: Question, body: Mapping[str, Any]) -> None:
    """Write an answer with its question as JSON, and nothing else."""
    head = {
        "flwr_mel": __version__,
        "fleet": question.file,
        "mode": question.mode,
        "problem": answers.problem_json(question.problem),
    }
    typer.echo(json.dumps({**head, **body}, indent=2, allow_nan=False))


def _csv(rows: Iterable[Mapping[str, Any]]) -> None:
    text = io.StringIO()
    writer = None
    for row in rows:
        if writer is None:
            writer = csv.DictWriter(text, list(row), lineterminator="\n")
            writer.writeheader()
        writer.writerow(dict(row))
    typer.echo(text.getvalue(), nl=False)


def _remarks(question: Question) -> None:
    for remark in question.remarks:
        note(remark)
