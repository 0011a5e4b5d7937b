"""The engine of `Exact`: all windows at once and by prices give the same optimum, that of HiGHS."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.problems import fleet_problem
from bench.rivals import highs
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.screening import screen
from flwr_mel.solvers import knapsack
from tests.allocation.oracle import KINDS, random_problem


def solved(problem):
    """Return learners that can take part, or None if they do not carry the demand."""
    capacities = Capacities.of(problem)
    mine = capacities.take(screen(capacities)[0])
    return mine if len(mine) and mine.at(1).sum() >= problem.total_samples else None


def check(mine, problem, best):
    """Epochs within reach, within the staleness, and enough for the demand."""
    assert (best.epochs >= 1).all()
    assert (best.epochs <= mine.most_epochs).all()
    assert np.ptp(best.epochs) <= problem.staleness
    assert mine.at(best.epochs).sum() >= problem.total_samples
    assert best.sum_epochs <= best.bound


@settings(max_examples=60, deadline=None)
@given(
    learners=st.integers(1, 60),
    cell=st.sampled_from([(5, 10), (10, 10), (20, 20), (40, 30)]),
    staleness=st.integers(0, 4),
    seed=st.integers(0, 10**6),
)
def test_fleets_drawn_as_in_the_paper(learners, cell, staleness, seed):
    problem = fleet_problem(learners, *cell, staleness, seed)
    mine = solved(problem)
    if mine is None:
        return
    optimum = highs(problem)
    for few in (64, 0):  # all windows at once, and by prices
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(knapsack, "_FEW", few)
            best = knapsack.best_epochs(mine, problem.total_samples, staleness)
        check(mine, problem, best)
        assert best.sum_epochs == best.bound == optimum


@pytest.mark.parametrize("kind", KINDS)
def test_small_problems_that_go_wrong(kind, monkeypatch):
    rng = np.random.default_rng([7, KINDS.index(kind)])
    for _ in range(150):
        problem = random_problem(rng, kind)
        mine = solved(problem)
        if mine is None:
            continue
        c, d = problem.staleness, problem.total_samples
        found = []
        for few in (64, 0):  # all windows at once, and by prices
            monkeypatch.setattr(knapsack, "_FEW", few)
            best = knapsack.best_epochs(mine, d, c)
            check(mine, problem, best)
            assert best.sum_epochs == best.bound
            found.append(best.sum_epochs)
        assert found[0] == found[1]
