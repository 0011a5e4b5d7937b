"""The engine of `Exact`: all windows at once and by prices give the same optimum, that of HiGHS."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.problems import fleet_problem
from bench.rivals import highs
from flwr_mel import allocate
from flwr_mel.solvers import Exact, knapsack


@settings(max_examples=60, deadline=None)
@given(
    learners=st.integers(1, 60),
    cell=st.sampled_from([(5, 10), (10, 10), (20, 20), (40, 30)]),
    staleness=st.integers(0, 4),
    seed=st.integers(0, 10**6),
)
def test_fleets_drawn_as_in_the_paper(learners, cell, staleness, seed):
    problem = fleet_problem(learners, *cell, staleness, seed)
    optimum = highs(problem)
    for few in (64, 0):  # all windows at once, and by prices
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(knapsack, "_FEW", few)
            found = allocate(problem, Exact(), throw=False)
        assert found.status.ok == (optimum is not None)
        assert optimum is None or found.epochs.sum() == optimum == round(found.bound * learners)
