"""Who can take part at all, and what would mend a problem that has no solution."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from flwr_mel.allocation.bisection import least
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.solution import Diagnosis, Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flwr_mel.allocation.problem import AllocationProblem


def screen(capacities: Capacities) -> tuple[npt.NDArray[np.intp], dict[int, Reason]]:
    """Split the learners into those who can do one epoch on the least batch and the others.

    Parameters
    ----------
    capacities : Capacities
        Of all learners.

    Returns
    -------
    able : int array
        Indices of learners that can take part.
    excluded : dict of int to Reason
        The others.
    """
    able = capacities.most_epochs >= 1
    out = np.flatnonzero(~able)
    excluded = dict(zip(out.tolist(), _reasons(capacities.take(out)), strict=True)) if len(out) else {}
    return np.flatnonzero(able), excluded


def _reasons(some: Capacities) -> Iterator[Reason]:
    """Say why learners cannot take part; the first reason that applies counts."""
    c, d = some.coefficients, some.least
    rules = {
        Reason.DEADLINE: c.c0 >= some.cycle_time_s,
        Reason.ENERGY: c.g0 >= some.energy_limit_j,
        Reason.MIN_BATCH_DATA: some.most < d,
        Reason.MIN_BATCH_TIME: c.time_s(1, d) > some.cycle_time_s,
    }
    reasons = [*rules, Reason.MIN_BATCH_ENERGY]
    return (reasons[i] for i in np.select(list(rules.values()), range(len(rules)), len(rules)))


def carried(problem: AllocationProblem, cycle_time_s: float | None = None) -> int:
    """Return how many samples all able learners carry at one epoch each.

    Parameters
    ----------
    problem : AllocationProblem
        The limits. Its total does not cap the answer's learners one by one.
    cycle_time_s : float, optional
        Another cycle time for all, infinity for none.
    """
    capacities = Capacities.of(problem, cycle_time_s)
    able, _ = screen(capacities)
    return int(capacities.take(able).at(1).sum()) if len(able) else 0


def diagnose(problem: AllocationProblem, detail: str = "") -> Diagnosis:
    """Say how much is missing, and find the smallest cycle time that would do.

    Parameters
    ----------
    problem : AllocationProblem
        A problem without a solution.
    detail : str
        What a solver's own rule adds.
    """
    wanted, fits = problem.total_samples, carried(problem)
    enough_time = smallest(problem.cycle_time_s, lambda time_s: carried(problem, time_s) >= wanted)
    if enough_time is not None and not detail:
        # A longer cycle may bring in learners for whose least batches there are too few samples.
        able = len(screen(Capacities.of(problem, enough_time))[0])
        if able * problem.min_samples > wanted:
            detail = (
                f"at one epoch each the learners carry {fits:,} of {wanted:,} samples, and when they could "
                f"carry all, the least batches of {able} learners need {able * problem.min_samples:,}"
            )
            enough_time = None
    return Diagnosis(wanted, min(fits, wanted), enough_time, detail)


def smallest(start: float, works: Callable[[float], bool]) -> float | None:
    """Return the smallest float from which a monotone condition holds; None if it never does.

    Bisects over the floats themselves, so the answer is exact to the last bit in at most 64 steps
    after the range is found.

    Parameters
    ----------
    start : float
        A positive number, where the search begins.
    works : callable
        False below some number, True from there on.
    """
    if not works(np.inf):
        return None
    high = start
    while not works(high):
        high *= 2
    found = _float(least(_bits(np.nextafter(0, 1)), _bits(high), lambda bits: works(_float(bits))))
    return None if np.isinf(found) else found


def _bits(x: float) -> int:
    """Positive floats in their order, as integers."""
    return int(np.float64(x).view(np.int64))


def _float(bits: int) -> float:
    return float(np.int64(bits).view(np.float64))
