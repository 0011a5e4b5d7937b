"""What a plan says, before it becomes a table, JSON or CSV."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import floor
from typing import Any

import numpy as np

from flwr_mel._validate import FloatArray, IntArray
from flwr_mel.allocation import AllocationProblem, Diagnosis, Reason, Solution, Status, allocate
from flwr_mel.allocation.capacity import Capacities, relaxed_synchronous
from flwr_mel.allocation.inverse import Plan
from flwr_mel.allocation.problem import NO_LIMIT
from flwr_mel.allocation.screening import screen
from flwr_mel.allocation.solution import round_up
from flwr_mel.solvers import Exact

#: Beyond this many learners the search for stragglers takes longer than the plan is worth.
MOST_FOR_STRAGGLERS = 2000


@dataclass(frozen=True, slots=True)
class Row:
    """One learner's part of a plan. `limit` is what would first stop a larger batch."""

    name: str
    epochs: int
    samples: int
    time_s: float
    energy_j: float
    energy_limit_j: float | None
    max_samples: int | None
    limit: str | None
    left_out: str | None


def rows(names: Sequence[str], problem: AllocationProblem, answer: Solution | Plan) -> list[Row]:
    """Return one row per learner, in the fleet's order.

    Parameters
    ----------
    names : sequence of str
        The learners'.
    problem : AllocationProblem
        The limits.
    answer : Solution or Plan
        The allocation.
    """
    excluded: Mapping[int, Reason] = answer.excluded if isinstance(answer, Solution) else {}
    limits = _tightest(problem, answer.epochs)
    return [
        Row(
            name=name,
            epochs=int(answer.epochs[k]),
            samples=int(answer.samples[k]),
            time_s=float(answer.time_s[k]),
            energy_j=float(answer.energy_j[k]),
            energy_limit_j=_finite(problem.energy_limit_j, k),
            max_samples=None if problem.max_samples[k] >= NO_LIMIT else int(problem.max_samples[k]),
            limit=limits[k] if answer.epochs[k] else None,
            left_out=excluded[k].explanation if k in excluded else None,
        )
        for k, name in enumerate(names)
    ]


def _finite(values: FloatArray, k: int) -> float | None:
    return float(values[k]) if np.isfinite(values[k]) else None


def _tightest(problem: AllocationProblem, epochs: IntArray) -> list[str]:
    c = problem.coefficients
    with np.errstate(divide="ignore", invalid="ignore"):
        by_time = (problem.cycle_time_s - c.c0) / (c.c2 * epochs + c.c1)
        by_energy = (problem.energy_limit_j - c.g0) / (c.g2 * epochs + c.g1)
    caps = np.stack([by_time, np.nan_to_num(by_energy, nan=np.inf), problem.max_samples])
    return [("time", "energy", "data")[i] for i in caps.argmin(axis=0)]


@dataclass(frozen=True, slots=True)
class Flooring:
    """tau*, the relaxed synchronous optimum, and what rounding it down costs HA-Sync."""

    tau: float
    floor: int
    ratio: float


def flooring(problem: AllocationProblem) -> Flooring | None:
    """Solve the relaxed synchronous problem; None if nothing fits.

    Parameters
    ----------
    problem : AllocationProblem
        The learners and the limits.
    """
    capacities = Capacities.of(problem)
    able = screen(capacities)[0]
    if not len(able) or capacities.take(able).at(1).sum() < problem.total_samples:
        return None
    tau = relaxed_synchronous(capacities.take(able), problem.total_samples)
    return Flooring(tau, floor(tau), tau / floor(tau))


@dataclass(frozen=True, slots=True)
class Stragglers:
    """Learners without whom the others do more epochs in sum."""

    names: list[str]
    sum_epochs: int
    gain: int


def stragglers(names: Sequence[str], problem: AllocationProblem, solution: Solution) -> Stragglers | None:
    """Look whether leaving able learners out would raise the sum of epochs.

    Parameters
    ----------
    names : sequence of str
        The learners'.
    problem : AllocationProblem
        The limits.
    solution : Solution
        With every able learner.
    """
    if len(problem) > MOST_FOR_STRAGGLERS or not solution.status.ok:
        return None
    better = allocate(problem, Exact(exclude="optimal"), throw=False)  # type: ignore[arg-type]
    gain = int(better.epochs.sum() - solution.epochs.sum())
    out = [names[k] for k, reason in better.excluded.items() if reason is Reason.STRAGGLER]
    return Stragglers(out, int(better.epochs.sum()), gain) if gain > 0 and out else None


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


def solution_json(solution: Solution) -> dict[str, Any]:
    """Return the outcome without the learners."""
    report: dict[str, Any] = {
        "status": str(solution.status),
        "explanation": solution.status.explanation,
        "objective": solution.mean_epochs,
        "bound": solution.bound,
        "gap": solution.gap if solution.status.ok else None,
        "sum_epochs": int(solution.epochs.sum()),
        "staleness": solution.staleness,
        "participants": int((solution.epochs > 0).sum()),
        "samples": int(solution.samples.sum()),
        "total_energy_j": float(solution.energy_j.sum()),
        "makespan_s": float(solution.time_s.max()),
        "seconds": float(solution.stats.get("seconds", 0.0)),
    }
    return report


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
    reason = re.sub(r"\blearner (\d+)", lambda found: names[int(found[1])], reason)
    reason = reason.replace("min_samples", "--min-samples")
    lines = [f"{reason[0].upper()}{reason[1:]}."]
    if 0 < fits < asked:
        lines.append(f"The largest --samples that fits: {fits}.")
    if diagnosis.cycle_time_s is None:
        lines.append("No --cycle-time is long enough: energy limits, max_samples or the fleet must grow.")
    else:
        lines.append(f"The smallest --cycle-time that works: {round_up(diagnosis.cycle_time_s)} s.")
    return lines


def row_json(row: Row) -> dict[str, Any]:
    """Return one learner as plain values."""
    return asdict(row)
