"""From what is wanted to a plan: an accuracy, a budget of time or of energy, and what to expect.

Cycles to an accuracy go as 1 / S to leading order (docs/THEORY.md), so an accuracy is a sum of S over the
cycles. How large a sum is a matter of evidence: of the user's own runs, or of ours on MNIST.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil, floor, inf

import numpy as np

from flwr_mel._validate import complain, number
from flwr_mel.allocation.allocate import allocate
from flwr_mel.allocation.goals import Cheapest, PerCost, Soonest
from flwr_mel.allocation.objective import Goal, Objective
from flwr_mel.allocation.problem import AllocationProblem
from flwr_mel.allocation.solution import Solution
from flwr_mel.solvers.exact import Exact

#: Test accuracy of the paper's network on MNIST, and the sum of S at which it was reached in our sweeps:
#: tenth, middle and ninetieth percent of the runs that reached it. IID data that are shipped, and FL with
#: uneven labels (Dirichlet 0.5).
SHIPPED: Mapping[float, tuple[float, float, float]] = {
    0.9: (12000, 21800, 34200),
    0.92: (23400, 28500, 46600),
    0.94: (46300, 55600, 73200),
    0.95: (68900, 84000, 105800),
    0.96: (119000, 133100, 159000),
    0.965: (154500, 174000, 202400),
    0.97: (223000, 252000, 294100),
}
UNEVEN: Mapping[float, tuple[float, float, float]] = {
    0.9: (26700, 36100, 57700),
    0.92: (41400, 51900, 77300),
    0.94: (79800, 97700, 134300),
    0.95: (120700, 152800, 214300),
}
_OURS = (
    "the sums of S at which the paper's network reached accuracies on MNIST in our sweeps, {}; other data "
    "and models need other sums: give your own"
)
_WHERE = ("IID data that are shipped", "FL with uneven labels (Dirichlet 0.5)")

#: A gap that is good enough for advice, and quick to prove.
_TOLERANCE = 0.02


@dataclass(frozen=True, slots=True)
class Way:
    """One way to get there: what a cycle is, how many of them, and what they come to.

    Parameters
    ----------
    objective : str
        By its name.
    staleness : int
        c.
    cycle_time_s : float
        T: when the last learner reports.
    progress, energy_j : float
        S and joules of one cycle.
    bias : float
        chi^2 of a plain average.
    cycles : int
        To the accuracy, or within the budgets.
    cycles_range : tuple of int
        The same for an easy and a hard run.
    time_s, total_energy_j : float
        Of all cycles.
    within : bool
        Whether the budgets hold.
    """

    objective: str
    staleness: int
    cycle_time_s: float
    progress: float
    energy_j: float
    bias: float
    cycles: int = 0
    cycles_range: tuple[int, int] = (0, 0)
    time_s: float = 0.0
    total_energy_j: float = 0.0
    within: bool = True


@dataclass(frozen=True, slots=True)
class Aim:
    """The best way to what was asked for.

    Parameters
    ----------
    best : Way
        T, c, objective, and what to expect.
    average : str
        How to average: "data" or "nova".
    accuracy : float or None
        Asked for, or expected within the budgets; None where the evidence does not reach.
    ways : tuple of Way
        All that were looked at, best first.
    evidence : str
        What the expectation rests on.
    text : str
        The answer in words.
    """

    best: Way
    average: str
    accuracy: float | None
    ways: tuple[Way, ...]
    evidence: str
    text: str


def aim(
    problem: AllocationProblem,
    *,
    accuracy: float | None = None,
    time_budget_s: float | None = None,
    energy_budget_j: float | None = None,
    staleness_up_to: int = 5,
    federated: bool = False,
    evidence: Mapping[float, tuple[float, float, float]] | None = None,
) -> Aim:
    """Find objective, T and c for an accuracy, a budget, or both.

    With an accuracy alone the way that takes least time is best; within a time budget, the one with the least
    energy; without an accuracy, the one that makes most progress within the budgets.

    Parameters
    ----------
    problem : AllocationProblem
        The learners and the limits; its cycle time is the longest allowed.
    accuracy : float, optional
        To reach, between 0 and 1.
    time_budget_s, energy_budget_j : float, optional
        Of all cycles; joules of all learners together.
    staleness_up_to : int
        The largest c considered.
    federated : bool
        Whether data stay with the learners.
    evidence : mapping, optional
        From accuracies to the sum of S that an easy, a usual and a hard run need. None: ours, on MNIST.
    """
    given = {"accuracy": accuracy, "time_budget_s": time_budget_s, "energy_budget_j": energy_budget_j}
    for name, value in given.items():
        if value is not None:
            number(name, value, above=0)
    if all(value is None for value in given.values()):
        raise complain("accuracy", "given unless time_budget_s or energy_budget_j is", None)
    known = evidence or (UNEVEN if federated else SHIPPED)
    need = None if accuracy is None else _needed(known, accuracy)
    limits = time_budget_s or inf, energy_budget_j or inf
    ways = [_counted(way, need, *limits) for way in _ways(problem, staleness_up_to)]
    order = sorted(ways, key=lambda way: _rank(way, need is not None, limits))
    best = order[0]
    reached = accuracy if accuracy is not None else _reached(known, best.cycles * best.progress)
    average = "nova" if federated else "data"
    rests = "what was given" if evidence else _OURS.format(_WHERE[federated])
    return Aim(best, average, reached, tuple(order), rests, _words(best, average, reached, need is not None))


def _ways(problem: AllocationProblem, most: int) -> Iterator[Way]:
    """Solve a cycle for every objective and a few c."""
    goals: list[Goal] = [Objective.EPOCHS, Objective.PROGRESS, Soonest(tolerance=_TOLERANCE)]
    priced = bool((problem.coefficients.g2 > 0).all())
    for c in sorted({0, min(2, most), most}):
        mine = problem.replace(staleness=c)
        soon = None
        for goal in [*goals, *([Cheapest()] if priced else [])]:
            found = allocate(mine, Exact(objective=goal))
            way = _way(goal, c, found)
            soon = way if isinstance(goal, Soonest) else soon
            yield way
        if priced and soon is not None:  # half way between the two, by what a cycle of the soonest costs
            goal = PerCost(1 / soon.cycle_time_s, 1 / soon.energy_j, tolerance=_TOLERANCE)
            yield _way(goal, c, allocate(mine, Exact(objective=goal)))


def _way(goal: Goal, staleness: int, found: Solution) -> Way:
    return Way(
        str(goal),
        staleness,
        float(found.time_s.max()),
        found.progress,
        float(found.energy_j.sum()),
        found.bias,
    )


def _needed(known: Mapping[float, tuple[float, float, float]], accuracy: float) -> tuple[float, float, float]:
    """Return the sums of S to an accuracy, between those that are known (straight lines in log S)."""
    points = sorted(known)
    if accuracy > points[-1]:
        raise complain("accuracy", f"at most {points[-1]:g}, as far as the evidence goes", accuracy)
    low, usual, high = (
        float(np.exp(np.interp(accuracy, points, np.log([known[a][i] for a in points])))) for i in range(3)
    )
    return low, usual, high


def _reached(known: Mapping[float, tuple[float, float, float]], progress: float) -> float | None:
    """Return the accuracy that a sum of S usually reaches; None below what is known."""
    points = sorted(known)
    usual = [known[a][1] for a in points]
    return float(np.interp(np.log(progress), np.log(usual), points)) if progress >= usual[0] else None


def _counted(
    way: Way, need: tuple[float, float, float] | None, time_budget_s: float, energy_budget_j: float
) -> Way:
    """Count the cycles to what is needed, or those that the budgets pay for."""
    if need is None:
        cycles = floor(min(time_budget_s / way.cycle_time_s, energy_budget_j / (way.energy_j or 1e-300)))
        low = high = cycles
    else:
        low, cycles, high = (ceil(sum_ / way.progress) for sum_ in need)
    time_s, energy_j = cycles * way.cycle_time_s, cycles * way.energy_j
    within = cycles > 0 and time_s <= time_budget_s and energy_j <= energy_budget_j
    return replace(
        way, cycles=cycles, cycles_range=(low, high), time_s=time_s, total_energy_j=energy_j, within=within
    )


def _rank(way: Way, to_accuracy: bool, limits: tuple[float, float]) -> tuple[float, ...]:
    """Order ways: within the budgets first, then by what is scarce."""
    if not to_accuracy:
        return (not way.within, -way.cycles * way.progress, way.time_s)
    time_budget_s, energy_budget_j = limits
    over = max(way.time_s / time_budget_s, way.total_energy_j / energy_budget_j)
    if not way.within:
        return (1, over)
    frugal = np.isfinite(time_budget_s) and not np.isfinite(energy_budget_j)
    return (0, way.total_energy_j, way.time_s) if frugal else (0, way.time_s, way.total_energy_j)


def _words(way: Way, average: str, accuracy: float | None, to_accuracy: bool) -> str:
    low, high = way.cycles_range
    count = f"{way.cycles} cycles" + (f" ({low} to {high})" if low < high else "")
    goal = "an accuracy that the evidence does not reach" if accuracy is None else f"about {accuracy:.1%}"
    missed = "" if way.within else " Nothing keeps the budgets; this comes closest."
    how = (
        f"objective {way.objective}, c = {way.staleness}, T = {way.cycle_time_s:.3g} s, average by {average}"
    )
    what = f"{count} {'to' if to_accuracy else 'give'} {goal}"
    return f"{how}: {what}, {way.time_s:,.0f} s and {way.total_energy_j:,.0f} J in sum.{missed}"
