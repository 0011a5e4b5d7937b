"""HiGHS on the same allocation problems: the oracle of the tests, the rival of the benchmark."""

from __future__ import annotations

from time import perf_counter

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import eye_array, kron

from flwr_mel import AllocationProblem

IntArray = npt.NDArray[np.int64]


def capacity(problem: AllocationProblem, epochs: int) -> IntArray:
    """cap_k(tau) by plain search from the formula, written apart from the library's own code."""
    c, d = problem.coefficients, problem.total_samples

    def fits(samples: IntArray) -> npt.NDArray[np.bool_]:
        time_s = c.c2 * (epochs * samples) + c.c1 * samples + c.c0
        energy_j = c.g2 * (epochs * samples) + c.g1 * samples + c.g0
        kept = (time_s <= problem.deadline_s) & (energy_j <= problem.energy_limit_j)
        ok: npt.NDArray[np.bool_] = kept & (samples <= problem.max_samples)
        return ok

    low, high = np.zeros(len(problem), np.int64), np.full(len(problem), d, np.int64)
    while (low < high).any():
        middle = (low + high + 1) // 2
        good = fits(middle)
        low, high = np.where(good, middle, low), np.where(good, high, middle - 1)
    return low


def highs(problem: AllocationProblem, tables: dict[int, IntArray] | None = None) -> int | None:
    """Solve the window formulation with HiGHS: one binary per learner and epoch count, per window.

    Returns the largest sum of epochs over learners that can take part, None when infeasible.
    """
    return highs_within(problem, np.inf, tables)[0]


def highs_within(
    problem: AllocationProblem, seconds: float, tables: dict[int, IntArray] | None = None
) -> tuple[int | None, bool]:
    """Solve with HiGHS in limited time. Returns (sum, proven optimal).

    Windows are those the theory leaves: from the synchronous optimum c downwards. `tables` keeps the
    capacities from call to call, so that the time of a second call is that of HiGHS alone.
    """
    tables = {} if tables is None else tables

    def cap(tau: int) -> IntArray:
        if tau not in tables:
            tables[tau] = capacity(problem, tau)
        return tables[tau]

    able = np.flatnonzero(cap(1) >= problem.min_samples)
    if not len(able) or cap(1)[able].sum() < problem.total_samples:
        return None, True
    sync = 1
    while (
        sync < problem.max_epochs
        and (cap(sync + 1)[able] >= problem.min_samples).all()
        and cap(sync + 1)[able].sum() >= problem.total_samples
    ):
        sync += 1
    best, proven, end = 0, True, perf_counter() + seconds
    for start in range(sync, max(1, sync - problem.staleness) - 1, -1):
        taus = range(start, min(start + problem.staleness, problem.max_epochs) + 1)
        table = np.array([cap(tau)[able] for tau in taus])
        left = end - perf_counter()
        if left <= 0:
            return best, False
        found, done = _highs_window(table, start, problem, left)
        best, proven = max(best, found), proven and done
    return best, proven


def _highs_window(
    table: IntArray, start: int, problem: AllocationProblem, seconds: float
) -> tuple[int, bool]:
    rows, learners = table.shape
    value = np.repeat(np.arange(start, start + rows), learners).astype(float)
    one_each = kron(np.ones((1, rows)), eye_array(learners), format="csr")
    result = milp(
        -value,
        integrality=np.ones(rows * learners),
        bounds=Bounds(0, (table.ravel() >= problem.min_samples).astype(float)),
        constraints=[
            LinearConstraint(one_each, 1, 1),
            LinearConstraint(table.reshape(1, -1).astype(float), problem.total_samples, np.inf),
        ],
        options={"mip_rel_gap": 0.0, "time_limit": seconds},
    )
    # 0: optimal, 1: out of time, 2: infeasible.
    return (0 if result.x is None else round(-result.fun)), result.status != 1
