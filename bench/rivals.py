"""General solvers on the same allocation problems: the oracles of the tests, the rivals of the benchmark."""

from __future__ import annotations

from time import perf_counter

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import eye_array, kron

from flwr_mel import AllocationProblem

IntArray = npt.NDArray[np.int64]

#: Threads of CP-SAT, which needs more than one to be itself. The others have one.
WORKERS = 2


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


def cp_sat(
    problem: AllocationProblem, table: IntArray, first: int, seconds: float
) -> tuple[int | None, bool]:
    """Solve with CP-SAT: capacities as a table per learner, one variable for the window.

    Returns (sum, proven optimal). All learners must be able to take part; the table's rows are the
    epochs from `first` on that any window of the theory contains.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    rows, learners = table.shape
    low = model.new_int_var(first, first + rows - 1, "low")
    taus, caps = [], []
    for k in range(learners):
        top = int((table[:, k] >= problem.min_samples).sum())
        tau = model.new_int_var(first, first + top - 1, f"tau{k}")
        cap = model.new_int_var(0, problem.total_samples, f"cap{k}")
        model.add_element(tau - first, table[:top, k].tolist(), cap)
        model.add(tau >= low)
        model.add(tau <= low + problem.staleness)
        taus.append(tau)
        caps.append(cap)
    model.add(sum(caps) >= problem.total_samples)
    model.maximize(sum(taus))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = WORKERS
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, False
    return round(solver.objective_value), status == cp_model.OPTIMAL


def scip(problem: AllocationProblem, last: int, seconds: float) -> tuple[int | None, bool]:
    """Solve the quadratic integer programme with SCIP, as the paper states it, tau_k up to `last`.

    Returns (sum, proven optimal). All learners must be able to take part.
    """
    from pyscipopt import Model, quicksum

    c = problem.coefficients
    model = Model()
    model.hideOutput()
    model.setParam("limits/time", seconds)
    low = model.addVar(vtype="I", lb=1, ub=last)
    tau = [model.addVar(vtype="I", lb=1, ub=last) for _ in range(len(problem))]
    d = [
        model.addVar(vtype="I", lb=problem.min_samples, ub=problem.total_samples) for _ in range(len(problem))
    ]
    for k in range(len(problem)):
        model.addCons(
            float(c.c2[k]) * tau[k] * d[k] + float(c.c1[k]) * d[k] <= float(problem.deadline_s[k] - c.c0[k])
        )
        if np.isfinite(problem.energy_limit_j[k]):
            spare = float(problem.energy_limit_j[k] - c.g0[k])
            model.addCons(float(c.g2[k]) * tau[k] * d[k] + float(c.g1[k]) * d[k] <= spare)
        model.addCons(tau[k] >= low)
        model.addCons(tau[k] <= low + problem.staleness)
    model.addCons(quicksum(d) == problem.total_samples)
    model.setObjective(quicksum(tau), "maximize")
    model.optimize()
    if not model.getNSols():
        return None, False
    return round(model.getObjVal()), model.getStatus() == "optimal"
