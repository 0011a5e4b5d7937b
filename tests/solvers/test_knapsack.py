"""The engine of `Exact` against the engine of 0.2, and against itself: with prices and without."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.problems import fleet_problem
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.screening import screen
from flwr_mel.solvers import knapsack
from flwr_mel.solvers.epochs import Search
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


@settings(max_examples=400, deadline=None)
@given(
    learners=st.integers(1, 500),
    cell=st.sampled_from([(5, 10), (10, 10), (20, 20), (40, 30)]),
    staleness=st.integers(0, 10),
    seed=st.integers(0, 10**6),
)
def test_fleets_drawn_as_in_the_paper(learners, cell, staleness, seed):
    problem = fleet_problem(learners, *cell, staleness, seed)
    mine = solved(problem)
    if mine is None:
        return
    best = knapsack.best_epochs(mine, problem.total_samples, staleness)
    old, _ = Search(problem.total_samples, 4000).best(mine, staleness, np.arange(len(mine)))
    check(mine, problem, best)
    assert best.sum_epochs == best.bound == old.sum_epochs


@pytest.mark.parametrize("kind", KINDS)
def test_small_problems_that_go_wrong(kind, monkeypatch):
    rng = np.random.default_rng([7, KINDS.index(kind)])
    for _ in range(150):
        problem = random_problem(rng, kind)
        mine = solved(problem)
        if mine is None:
            continue
        c, d = problem.staleness, problem.total_samples
        old, _ = Search(d, 4000).best(mine, c, np.arange(len(mine)))
        for few in (64, 0):  # without prices, and with them
            monkeypatch.setattr(knapsack, "_FEW", few)
            best = knapsack.best_epochs(mine, d, c)
            check(mine, problem, best)
            assert best.sum_epochs == best.bound == old.sum_epochs
