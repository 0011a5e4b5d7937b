"""What a plan says, before it becomes a table, JSON or CSV."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from flwr_mel._validate import FloatArray
from flwr_mel.allocation import AllocationProblem, Reason, Solution, allocate
from flwr_mel.allocation.capacity import Capacities, relaxed_synchronous
from flwr_mel.allocation.limiting import Limit, limiting
from flwr_mel.allocation.objectives import Goal
from flwr_mel.allocation.problem import NO_LIMIT
from flwr_mel.allocation.screening import screen
from flwr_mel.solvers import Exact
from flwr_mel.solvers.inverse import Plan

#: Beyond this many learners the search for stragglers takes longer than the plan is worth.
MOST_FOR_STRAGGLERS = 2000


@dataclass(frozen=True, slots=True)
class Row:
    """One learner's part of a plan. `limit` is what keeps it from more."""

    name: str
    epochs: int
    samples: int
    time_s: float
    energy_j: float
    energy_limit_j: float | None
    max_samples: int | None
    limit: Limit | None
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
    limits = limiting(problem, answer.epochs, answer.samples)
    return [
        Row(
            name=name,
            epochs=int(answer.epochs[k]),
            samples=int(answer.samples[k]),
            time_s=float(answer.time_s[k]),
            energy_j=float(answer.energy_j[k]),
            energy_limit_j=_finite(problem.energy_limit_j, k),
            max_samples=None if problem.max_samples[k] >= NO_LIMIT else int(problem.max_samples[k]),
            limit=limits[k] or None,
            left_out=excluded[k].explanation if k in excluded else None,
        )
        for k, name in enumerate(names)
    ]


def _finite(values: FloatArray, k: int) -> float | None:
    return float(values[k]) if np.isfinite(values[k]) else None


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
    return Flooring(tau, math.floor(tau), tau / math.floor(tau))


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


def solution_json(solution: Solution) -> dict[str, Any]:
    """Return the outcome without the learners."""
    report: dict[str, Any] = {
        "status": str(solution.status),
        "explanation": solution.status.explanation,
        "objective": str(solution.objective),
        "value": solution.value,
        "bound": solution.bound,
        "gap": solution.gap if math.isfinite(solution.gap) else None,
        "mean_epochs": solution.mean_epochs,
        "progress": solution.progress,
        "bias": solution.bias,
        "sum_epochs": int(solution.epochs.sum()),
        "staleness": solution.staleness,
        "participants": int((solution.epochs > 0).sum()),
        "samples": int(solution.samples.sum()),
        "total_energy_j": float(solution.energy_j.sum()),
        "makespan_s": float(solution.time_s.max()),
        "seconds": float(solution.stats.get("seconds", 0.0)),
    }
    return report


def value_of(goal: Goal, problem: AllocationProblem, solution: Solution) -> float:
    """Measure a solution by an objective, whatever it was made for.

    Parameters
    ----------
    goal : Goal
        The objective.
    problem : AllocationProblem
        The limits.
    solution : Solution
        The allocation.
    """
    counted, per = goal.measure(problem, solution.epochs, solution.samples)
    return counted / per


def row_json(row: Row) -> dict[str, Any]:
    """Return one learner as plain values."""
    return asdict(row)
