"""Answer a question about a fleet, in the form asked for: table, JSON or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import typer

from flwr_mel.allocation import AllocationProblem, Diagnosis, Infeasible, Solution, Solver, allocate
from flwr_mel.allocation.objectives import in_words
from flwr_mel.allocation.solution import round_up
from flwr_mel.cli.drawing import facts as print_facts
from flwr_mel.cli.drawing import title
from flwr_mel.cli.plan import content, tables
from flwr_mel.cli.question import Question, diagnosis_json, diagnosis_lines, print_json, refuse
from flwr_mel.cli.shared import console, note
from flwr_mel.solvers import EqualBatches, Exact
from flwr_mel.solvers.exact import Exclude
from flwr_mel.solvers.inverse import fastest, greenest
from flwr_mel.solvers.schemes import PAPER_SCHEMES, SchemeName, scheme


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
    rows = content.rows(question.names, problem, solution)
    rounded = content.flooring(problem)
    fixed = isinstance(solver, EqualBatches) or not look_for_stragglers
    found = None if fixed else content.stragglers(question.names, problem, solution)
    if question.json:
        body = {
            "solver": name,
            **content.solution_json(solution),
            "relaxed_synchronous": vars_of(rounded),
            "stragglers": vars_of(found),
            "learners": [content.row_json(row) for row in rows],
        }
        print_json(question, body)
    elif question.csv:
        _csv(content.row_json(row) for row in rows)
    else:
        out = console()
        title(out, f"Plan of {question.file}, solver {name}", question.headline())
        tables.learner_table(out, rows, problem.cycle_time_s, everything=question.everything)
        tables.left_out(out, rows)
        print_facts(out, tables.solution_facts(solution, problem, rounded))
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
    rounded = content.flooring(problem)
    goal, bound = best.objective, _bound(problem, best, solver)
    values = {k: content.value_of(goal, problem, s) for k, s in solutions.items()}
    if question.machine:
        rows = [{"scheme": str(k), **content.solution_json(s)} for k, s in solutions.items()]
        if question.csv:
            _csv(rows)
        else:
            for row, s in zip(rows, solutions.values(), strict=True):
                wrong = s.diagnosis
                row["diagnosis"] = wrong and diagnosis_json(wrong, question.names)
            body = {"solver": name or "exact", "objective": str(goal), "bound": bound}
            print_json(question, {**body, "relaxed_synchronous": vars_of(rounded), "schemes": rows})
    else:
        out = console()
        title(out, f"Schemes on {question.file}", question.headline())
        labels = {k: _label(k, c) for k in solutions}
        measured = [tables.Measured(labels[k], s, values[k]) for k, s in solutions.items()]
        tables.scheme_table(out, measured, goal, bound)
        sync, asyn = values[SchemeName.HA_SYNC], values[SchemeName.HA_ASYN]
        times = f"HA-Asyn has {asyn / sync:.2f} times the {in_words(goal)} of HA-Sync" if sync else ""
        gain = [("gain", times)] if times else []
        print_facts(out, [*gain, *tables.flooring_facts(rounded)])
        for k, s in solutions.items():
            if s.diagnosis is not None:
                text = " ".join(diagnosis_lines(s.diagnosis, question.names))
                out.print(f"\n{labels[k]}: {text}", markup=False)
    _remarks(question)


def _bound(problem: AllocationProblem, best: Solution, solver: Solver) -> float | None:
    """Bound all allocations of all samples; None if there is none, whatever equal batches then do."""
    if not best.status.ok:
        return None
    if not isinstance(solver, Exact) or solver.exclude is Exclude.INFEASIBLE:
        return best.bound
    everybody = replace(solver, exclude=Exclude.INFEASIBLE)
    return max(best.bound, allocate(problem, everybody, throw=False).bound)


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
    rows = content.rows(question.names, problem, plan)
    if question.json:
        body = {
            "question": which,
            "status": "optimal",
            "epochs": epochs,
            "makespan_s": plan.cycle_time_s,
            "total_energy_j": plan.total_energy_j,
            "learners": [content.row_json(row) for row in rows],
        }
        print_json(question, body)
    elif question.csv:
        _csv(content.row_json(row) for row in rows)
    else:
        out = console()
        goal = "Shortest cycle" if which == "fastest" else "Least energy"
        times = "epoch" if epochs == 1 else "epochs"
        detail = f"{len(problem):,} learners, {problem.total_samples:,} samples, {question.mode.upper()}"
        title(out, f"{goal} for {epochs:,} {times} of everybody in {question.file}", detail)
        tables.learner_table(out, rows, problem.cycle_time_s, everything=question.everything)
        time_s = round_up(plan.cycle_time_s)
        facts = [("cycle time", f"{time_s} s"), ("energy", f"{plan.total_energy_j:.6g} J in sum")]
        print_facts(out, facts if which == "fastest" else facts[::-1])
    _remarks(question)


def vars_of(value: Any) -> dict[str, Any] | None:
    """Return the fields of a small record, None for None."""
    return None if value is None else {name: getattr(value, name) for name in value.__slots__}


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
