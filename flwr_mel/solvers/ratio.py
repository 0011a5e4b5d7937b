"""Progress per cost: Dinkelbach's method for a given cycle time, and a search over cycle times.

The largest ratio N / C is the number q at which the largest N - q C is 0. For a given q that is a problem of
the same shape as the progress (a convex function of d_k less a linear one), so the same search solves and
bounds it; its solution's ratio is the next q. If the largest N - q C is at most e, and no allocation costs
less than C_min, no ratio exceeds q + e / C_min.

A cycle whose makespan lies between a and b costs at least a seconds and carries at most what b permits. So
an interval's ratio is bounded by the capacities of its end and the time of its beginning. Intervals are cut,
best first, until the bound is near: where one more learner comes in, who must then take part, else in the
middle.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import sqrt

import numpy as np

from flwr_mel._validate import IntArray, Phrase, complain
from flwr_mel.allocation.allocate import Proposal
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.objectives import Goal, PerCost, Progress
from flwr_mel.allocation.problem import AllocationProblem
from flwr_mel.allocation.screening import carried, smallest, spread, take_part
from flwr_mel.allocation.solution import Diagnosis, Infeasible, Reason, Status
from flwr_mel.solvers.knapsack import best_epochs
from flwr_mel.solvers.options import LARGE
from flwr_mel.solvers.progress import WORK, maximise, together
from flwr_mel.solvers.worth import Point, Worth, best_handed_out, less_energy

#: Steps of Dinkelbach's method, and cycle times looked at.
_STEPS, _TIMES = 30, 120


#: Objectives that are no integers count as met from here on.
_NEARLY = 1 + 1e-9


def propose(problem: AllocationProblem, goal: Goal, *, leave_out: bool) -> Proposal:
    """Propose the allocation with the most progress, or progress per cost, or raise `Infeasible`.

    Parameters
    ----------
    problem : AllocationProblem
        The learners and the limits.
    goal : Goal
        The progress, with or without a cap on shares, or `PerCost`.
    leave_out : bool
        Whether learners that can take part may be left out.
    """
    if isinstance(goal, Progress):
        problem = _shared(problem, goal, leave_out=leave_out)
    able, mine, excluded = take_part(problem, leave_out=leave_out)
    d, learners = problem.total_samples, len(problem)
    if isinstance(goal, PerCost):
        found = best_ratio(problem, goal, optional=leave_out)
        epochs, samples, bound = found.epochs[able], found.samples[able], max(found.bound, found.value)
        optimal, stats = bound <= found.value * _NEARLY, {"times": found.times}
    else:
        start = _handed_out(mine, d, problem.staleness) if len(able) <= min(LARGE, d // mine.least) else None
        point, bound, windows = maximise(mine, d, problem.staleness, start, optional=leave_out)
        epochs, samples, optimal, stats = (
            point.epochs,
            point.samples,
            bound == point.value,
            {"windows": windows},
        )
    excluded |= {int(k): Reason.WEAK for k in able[epochs == 0]}
    status = Status.OPTIMAL if optimal else Status.FEASIBLE
    whole = spread(epochs, learners, able), spread(samples, learners, able)
    return Proposal(*whole, bound, status, excluded, stats, goal)


def _fits(problem: AllocationProblem, *, leave_out: bool) -> bool:
    try:
        take_part(problem, leave_out=leave_out)
    except Infeasible:
        return False
    return True


def _handed_out(mine: Capacities, demand: int, staleness: int) -> Point:
    """Begin the search for progress with the best hand-out of the epochs' optimum."""
    best = best_epochs(mine, demand, staleness)
    return best_handed_out(Worth(), demand, mine.at(best.epochs), mine.least, best.epochs)


def _shared(problem: AllocationProblem, goal: Progress, *, leave_out: bool) -> AllocationProblem:
    """Return the problem in which no learner may have more than its share, or raise `Infeasible`."""

    def capped(total: int) -> AllocationProblem:
        return problem.replace(max_samples=np.minimum(problem.max_samples, goal.most(total)))

    d, most = problem.total_samples, goal.most(problem.total_samples)
    if most < problem.min_samples:
        detail = Phrase(
            f"a share of {goal.max_share:g} of {d:,} samples is {most:,}, below {{}} = "
            f"{problem.min_samples:,}",
            "min_samples",
        )
        raise Infeasible(Diagnosis(d, 0, None, detail))
    try:
        take_part(capped(d), leave_out=leave_out)
    except Infeasible as infeasible:
        # The cap shrinks with the total, and so does what is carried. So the largest total is the first that
        # its own cap lets through.
        fits = infeasible.diagnosis.carried
        while fits >= problem.min_samples:
            fewer = capped(fits).replace(total_samples=fits)
            now = min(carried(fewer, leave_out=leave_out), fits)
            if now == fits:
                break
            fits = now
        fits = fits if fits and _fits(capped(fits).replace(total_samples=fits), leave_out=leave_out) else 0
        raise Infeasible(replace(infeasible.diagnosis, carried=fits)) from None
    return capped(d)


@dataclass(frozen=True, slots=True, eq=False)
class Ratio:
    """An allocation with its progress per cost, and a bound on that of all."""

    epochs: IntArray
    samples: IntArray
    value: float
    bound: float
    times: int = 1


def best_ratio(problem: AllocationProblem, goal: PerCost, *, optional: bool) -> Ratio:
    """Find the allocation with the most progress per cost, over all cycle times up to the problem's.

    Parameters
    ----------
    problem : AllocationProblem
        With a solution.
    goal : PerCost
        What seconds and joules cost.
    optional : bool
        Whether learners that can take part may be left out.
    """
    last, d = problem.cycle_time_s, problem.total_samples
    if not goal.seconds:
        return _within(problem, goal, last, last, optional=optional)
    first = smallest(last, lambda time_s: carried(_until(problem, time_s), leave_out=optional) >= d)
    first = last if first is None else min(first, last)
    # From these moments on one more learner takes part.
    joins = np.unique(problem.coefficients.time_s(1, problem.min_samples))
    best = _within(problem, goal, first, last, optional=optional)
    heap, times = [(-best.bound, first, last)], 1
    while -heap[0][0] > best.value * (1 + goal.tolerance) and times < _TIMES:
        _, low, high = heap[0]
        inside = joins[(joins > low) & (joins <= high)]
        middle = float(inside[len(inside) // 2]) if len(inside) and not optional else sqrt(low * high)
        before = float(np.nextafter(middle, 0)) if len(inside) and not optional else middle
        if not low <= before <= middle <= high or (before, middle) in ((low, low), (high, high)):
            break
        heappop(heap)
        for start, end in ((low, before), (middle, high)):
            found = _within(problem, goal, start, end, optional=optional)
            times += 1
            best = found if found.value > best.value else best
            heappush(heap, (-found.bound, start, end))
    return Ratio(best.epochs, best.samples, best.value, max(best.value, -heap[0][0]), times)


def _until(problem: AllocationProblem, time_s: float) -> AllocationProblem:
    return problem.replace(cycle_time_s=np.minimum(problem.deadline_s, time_s))


def _within(problem: AllocationProblem, goal: PerCost, low: float, high: float, *, optional: bool) -> Ratio:
    """Solve for a cycle of at most `high`, and bound the ratio of all that last from `low` to `high`."""
    capacities = Capacities.of(problem, np.minimum(problem.deadline_s, high))
    able = np.flatnonzero(capacities.most_epochs > 0)
    mine, d = capacities.take(able), problem.total_samples
    # Who cannot take part in the shortest of these cycles need not: that is a bound, no allocation.
    short = Capacities.of(problem, np.minimum(problem.deadline_s, low))
    relaxed = not optional and bool((short.most_epochs[able] == 0).any())
    _, *pair = together(mine, d, Worth())
    epochs, samples = (spread(values, len(problem), able) for values in pair)
    value = goal.measure(problem, epochs, samples)[0]
    least = goal.seconds * low + goal.joules * _least_energy(mine, d, optional or relaxed)
    if not least:
        raise complain("objective", "made of costs that are not all 0", str(goal), "Give g2, g1 or g0.")
    bound = np.inf
    for _ in range(_STEPS):
        worth = less_energy(mine, d, value * goal.joules)
        start = worth.point(epochs[able], samples[able])
        found, most, _ = maximise(
            mine, d, problem.staleness, start, optional=optional or relaxed, work=WORK // 8, worth=worth
        )
        # Everything within the interval costs at least `low` seconds.
        over = most / (worth.unit * d) - value * goal.seconds * low
        bound = min(bound, value + max(over, 0.0) / least)
        other = spread(found.epochs, len(problem), able), spread(found.samples, len(problem), able)
        before, fresh = value, goal.measure(problem, *other)[0]
        if fresh > value and (not relaxed or other[0][able].all()):
            (epochs, samples), value = other, fresh
        if value <= before * (1 + 1e-12) or not goal.joules:
            break
    return Ratio(epochs, samples, value, max(bound, value))


def _least_energy(mine: Capacities, demand: int, optional: bool) -> float:
    """Return a number of joules that no allocation of these learners goes below."""
    c, room = mine.coefficients, np.minimum(mine.at(1), demand)
    per_sample, fixed, least = c.g2 + c.g1, float(c.g0.sum()), mine.least
    if optional:  # fixed costs as a price per sample: exact for a full batch, too low for others
        per_sample, fixed, least = per_sample + c.g0 / room, 0.0, 0
    order = np.argsort(per_sample, kind="stable")
    room = (room - least)[order]
    given = np.clip(demand - least * len(mine) - (np.cumsum(room) - room), 0, room) + least
    return (float((per_sample[order] * given).sum()) + fixed) * (1 - 1e-12)
