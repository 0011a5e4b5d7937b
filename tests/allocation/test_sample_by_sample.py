"""Objectives that fix the batches against an independent formulation: a dynamic programme over samples.

Per window of epochs: the best value of every learner on every batch by the plain formula, added up learner by
learner and sample by sample. No price, no lemma, no option is shared with the solvers.
"""

import numpy as np
import pytest

from flwr_mel import AllocationProblem, Cheapest, PerCost, Progress, Soonest, Status, allocate
from flwr_mel.allocation.objectives import weighted_squares
from flwr_mel.solvers import Exact
from tests.allocation import oracle
from tests.allocation.oracle import KINDS, random_problem

#: Problems per kind and exclusion: 72 in all, or 5,000 and a few.
TRIALS = [6, pytest.param(417, marks=pytest.mark.slow)]


def squares(tau: int, batch: np.ndarray) -> np.ndarray:
    return tau * batch * batch


def largest_worth(
    problem: AllocationProblem, price: float = 0.0, *, optional: bool, gain=squares
) -> float | None:
    """The largest sum of gain(tau, d) - price * e over all allocations; None if there is none."""
    d, least, c = problem.total_samples, problem.min_samples, problem.coefficients
    columns = oracle.columns(problem)
    able = [k for k, caps in enumerate(columns) if caps]
    best = None
    for first in range(1, max((len(columns[k]) for k in able), default=0) + 1):
        sums = np.full(d + 1, -np.inf)
        sums[0] = 0.0
        for k in able:
            after = sums.copy() if optional else np.full(d + 1, -np.inf)
            batch = np.arange(d + 1)
            value = np.full(d + 1, -np.inf)
            for tau in range(first, min(first + problem.staleness, len(columns[k])) + 1):
                energy_j = c.g2[k] * (tau * batch) + c.g1[k] * batch + c.g0[k]
                fits = (batch >= least) & (batch <= columns[k][tau - 1])
                value = np.where(fits, np.maximum(value, gain(tau, batch) - price * energy_j), value)
            for n in np.flatnonzero(np.isfinite(value)).tolist():
                np.maximum(after[n:], sums[: d + 1 - n] + value[n], out=after[n:])
            sums = after
        if np.isfinite(sums[d]):
            best = float(sums[d]) if best is None else max(best, float(sums[d]))
    return best


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trials", TRIALS)
def test_progress_and_cheapest_equal_the_sample_by_sample_programme(kind, optional, trials):
    rng = np.random.default_rng([41, KINDS.index(kind), optional])
    exclude = "optimal" if optional else "infeasible"
    solved = 0
    for _ in range(trials):
        problem = random_problem(rng, kind, samples=90)
        most = largest_worth(problem, 0.0, optional=optional)
        found = allocate(problem, Exact(objective="progress", exclude=exclude), throw=False)
        assert found.status.ok == (most is not None)
        if most is None:
            continue
        solved += 1
        assert found.status is Status.OPTIMAL
        assert weighted_squares(found.epochs, found.samples) == most
        share = float(rng.uniform(0.3, 1))
        capped = allocate(problem, Exact(objective=Progress(share), exclude=exclude), throw=False)
        limit = np.minimum(problem.max_samples, Progress(share).most(problem.total_samples))
        spread = largest_worth(problem.replace(max_samples=limit), 0.0, optional=optional)
        assert capped.status.ok == (spread is not None)
        assert spread is None or weighted_squares(capped.epochs, capped.samples) == spread
        if (problem.coefficients.g0 + problem.coefficients.g1 + problem.coefficients.g2 == 0).any():
            continue  # somebody works for nothing: the ratio may have no end
        cheap = allocate(problem, Exact(objective=Cheapest(), exclude=exclude))
        assert cheap.gap < 1e-6
        # Dinkelbach's criterion: at the best ratio nothing is left to gain, at a smaller one there is.
        at = problem.total_samples * cheap.value
        assert largest_worth(problem, at * (1 + 1e-6), optional=optional) <= 1e-6 * most
        assert largest_worth(problem, at * (1 - 1e-6), optional=optional) >= -1e-6 * most
    assert solved >= trials // 3


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trials", [4, pytest.param(60, marks=pytest.mark.slow)])
def test_no_cycle_time_beats_the_bound_on_progress_per_cost(kind, optional, trials):
    rng = np.random.default_rng([47, KINDS.index(kind), optional])
    exclude = "optimal" if optional else "infeasible"
    solved = 0
    for _ in range(trials):
        problem = random_problem(rng, kind, samples=60)
        goal = Soonest() if rng.random() < 0.5 else PerCost(1.0, float(rng.uniform(0, 5)))
        found = allocate(problem, Exact(objective=goal, exclude=exclude), throw=False)
        if not found.status.ok:
            continue
        solved += 1
        d, makespan = problem.total_samples, float(found.time_s.max())
        assert found.gap <= goal.tolerance or found.status is Status.FEASIBLE
        later = max(float(problem.deadline_s.max()), makespan)
        for time_s in (
            makespan,
            later,
            *(makespan * rng.uniform(0.2, 1.0, 4)),
            *rng.uniform(makespan, later, 3),
        ):
            within = problem.replace(cycle_time_s=np.minimum(problem.deadline_s, time_s))
            # An allocation with this makespan and a ratio above q would have S - q joules e > q seconds T;
            # one that is sooner would be better still.
            q = found.bound * (1 + 1e-9)
            most = largest_worth(within, q * goal.joules * d, optional=optional)
            limit = q * goal.seconds * time_s * d
            assert most is None or most <= limit * (1 + 1e-9)
    assert solved >= trials // 3
