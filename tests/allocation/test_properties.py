"""Invariants that hold for every problem and every solver."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from flwr_mel import Status, allocate
from flwr_mel.allocation.allocate import violations
from flwr_mel.allocation.handout import Handout, hand_out
from flwr_mel.solvers import EqualBatches, Exact, SuggestImprove
from tests.allocation.test_brute_force import KINDS, random_problem
from tests.search import examples

SOLVERS = [
    Exact(),
    Exact(handout="even", exclude="optimal"),
    Exact(handout="strongest-first"),
    EqualBatches(),
    SuggestImprove(suggest="bisection"),
]


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
@examples(38, suppress_health_check=[HealthCheck.differing_executors])
@given(st.integers(0, 2**32), st.sampled_from(KINDS))
def test_every_solver_keeps_every_limit(solver, seed, kind):
    problem = random_problem(np.random.default_rng(seed), kind, samples=4000)
    solution = allocate(problem, solver, throw=False)
    if solution.status is Status.INFEASIBLE:
        assert solution.diagnosis is not None
        assert not solution.epochs.any()
        return
    whole = solution.status is not Status.PARTIAL
    assert violations(problem, solution.epochs, solution.samples, all_samples=whole) == []
    assert solution.mean_epochs <= solution.bound
    assert (solution.time_s <= problem.deadline_s).all()
    assert (solution.energy_j <= problem.energy_limit_j).all()
    assert set(solution.excluded) == set(np.flatnonzero(solution.epochs == 0).tolist())
    if isinstance(solver, Exact):
        assert solution.status is Status.OPTIMAL


@examples(75)
@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=30), st.data(), st.sampled_from(list(Handout)))
def test_hand_out_uses_every_sample_within_the_capacities(capacity, data, rule):
    caps = np.array(capacity)
    least = data.draw(st.integers(1, int(caps.min())))
    total = data.draw(st.integers(least * len(caps), int(caps.sum())))
    samples = hand_out(rule, total, caps, least, np.ones(len(caps), dtype=np.int64))
    assert samples.sum() == total
    assert (samples >= least).all()
    assert (samples <= caps).all()
