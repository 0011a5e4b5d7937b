"""Which learners can take part, and what would mend a problem that has no solution."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import IntArray, Phrase
from flwr_mel.allocation.bisection import least
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.solution import Diagnosis, Infeasible, Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flwr_mel.allocation.problem import AllocationProblem

Index = npt.NDArray[np.intp]


def take_part(
    problem: AllocationProblem, *, leave_out: bool = False
) -> tuple[Index, Capacities, dict[int, Reason]]:
    """Return the learners that can take part, their capacities, and the others with the reason.

    Parameters
    ----------
    problem : AllocationProblem
        The limits.
    leave_out : bool
        Whether the solver may leave out more.

    Raises
    ------
    Infeasible
        If they cannot carry all samples at one epoch each.
    """
    capacities = Capacities.of(problem)
    able, excluded = screen(capacities)
    mine = capacities.take(able) if excluded else capacities
    if not len(able) or not carries(mine.at(1), mine.least, problem.total_samples, leave_out=leave_out):
        raise Infeasible(diagnose(problem, leave_out=leave_out))
    return able, mine, excluded


def screen(capacities: Capacities) -> tuple[Index, dict[int, Reason]]:
    """Return the learners that can do one epoch on the smallest batch, and the others with the reason.

    Parameters
    ----------
    capacities : Capacities
        Of all learners.
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


def spread(values: IntArray, learners: int, chosen: Index) -> IntArray:
    """Write the values of some learners among all; the others have 0."""
    if len(values) == learners:
        return values
    whole = np.zeros(learners, dtype=np.int64)
    whole[chosen] = values
    return whole


def strongest(capacity: IntArray, least: int, total: int) -> IntArray:
    """Return the largest capacities, of as many learners as can have a smallest batch each.

    Parameters
    ----------
    capacity : int array
        Of learners that can take part.
    least, total : int
        d_l and d.
    """
    seats = total // least
    return capacity if seats >= len(capacity) else np.sort(capacity)[len(capacity) - seats :]


def carries(capacity: IntArray, least: int, total: int, *, leave_out: bool) -> bool:
    """Whether all or some learners can have all samples, none of them less than the smallest batch."""
    if leave_out:
        return int(strongest(capacity, least, total).sum()) >= total
    return len(capacity) * least <= total <= int(capacity.sum())


def carried(problem: AllocationProblem, cycle_time_s: float | None = None, *, leave_out: bool = False) -> int:
    """Return how many samples the learners carry at one epoch each.

    Parameters
    ----------
    problem : AllocationProblem
        The limits. Its total does not cap the learners one by one.
    cycle_time_s : float, optional
        Another cycle time for all, infinity for none.
    leave_out : bool
        Whether some may be left out, so that the others have their smallest batches.
    """
    capacities = Capacities.of(problem, cycle_time_s)
    able, _ = screen(capacities)
    if not len(able):
        return 0
    capacity = capacities.take(able).at(1)
    return int(
        (strongest(capacity, capacities.least, problem.total_samples) if leave_out else capacity).sum()
    )


def diagnose(problem: AllocationProblem, detail: str = "", *, leave_out: bool = False) -> Diagnosis:
    """Say how much is missing, and find the smallest cycle time that would do.

    Parameters
    ----------
    problem : AllocationProblem
        A problem without a solution.
    detail : str
        What a solver's own rule adds.
    leave_out : bool
        Whether the solver may leave learners out that can take part.
    """
    d, fits = problem.total_samples, carried(problem, leave_out=leave_out)
    time_s = smallest(problem.cycle_time_s, lambda t: carried(problem, t, leave_out=leave_out) >= d)
    if leave_out:
        return Diagnosis(d, min(fits, d), time_s, detail)

    def needed(cycle_time_s: float | None = None) -> int:
        return len(screen(Capacities.of(problem, cycle_time_s))[0]) * problem.min_samples

    if needed() > d:
        fits = 0
        detail = detail or _least_batches(needed(), problem)
    if time_s is not None and needed(time_s) > d:
        # A longer cycle brings in learners for whose smallest batches there are too few samples.
        detail = detail or (
            f"with one epoch each, the learners can process {fits:,} of {d:,} samples, and in a "
            f"cycle that is long enough for all, {_least_batches(needed(time_s), problem)}"
        )
        time_s = None
    return Diagnosis(d, min(fits, d), time_s, detail)


def _least_batches(needed: int, problem: AllocationProblem) -> str:
    return Phrase(
        f"the smallest batches of {needed // problem.min_samples} learners need {needed:,} of "
        f"{problem.total_samples:,} samples: lower {{}}, or let the solver leave learners out with "
        'Exact(exclude="optimal")',
        "min_samples",
    )


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
