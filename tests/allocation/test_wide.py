"""Wide windows, up to no staleness cap at all: allocations near a proven bound, quickly."""

import pytest

from flwr_mel import Status, allocate
from flwr_mel.solvers import Exact, knapsack
from tests.problems import fleet_problem
from tests.zoo import paper_problem


@pytest.mark.parametrize("staleness", [100, 1000, None])
@pytest.mark.parametrize("cell", [(10, 10), (20, 20), (40, 30)])
def test_the_papers_fleet(cell, staleness):
    problem = paper_problem(0, *cell, 0).replace(staleness=staleness)
    found = allocate(problem, Exact())
    assert found.status is Status.OPTIMAL
    tiny = allocate(problem.replace(min_samples=1), Exact())
    assert found.mean_epochs <= tiny.mean_epochs
    assert tiny.gap < 0.05


@pytest.mark.parametrize("learners", [60, 1000])
def test_a_larger_fleet_without_a_cap(learners):
    problem = fleet_problem(learners, 20, 20, 0).replace(staleness=None)
    assert allocate(problem, Exact()).gap < 1e-3


def test_a_table_that_would_be_too_large_is_cut_and_the_bound_says_so(monkeypatch):
    problem = fleet_problem(20, 20, 20, 1000)
    whole = allocate(problem, Exact())
    monkeypatch.setattr(knapsack, "_LARGEST_TABLE", 2000)
    found = allocate(problem, Exact())
    assert found.status is Status.FEASIBLE
    assert found.mean_epochs <= whole.mean_epochs <= found.bound
