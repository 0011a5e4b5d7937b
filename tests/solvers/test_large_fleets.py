"""Large fleets take shortcuts (blocks, samples, a partial sort); none of them may change an answer."""

import pytest

from flwr_mel import allocate
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.solvers import Exact, knapsack, prices
from tests.problems import fleet_problem


@pytest.mark.parametrize(("time_s", "energy_j", "staleness"), [(10, 10, 1), (20, 20, 3), (40, 30, 5)])
def test_the_shortcuts_change_nothing(monkeypatch, time_s, energy_j, staleness):
    problem = fleet_problem(3000, time_s, energy_j, staleness)
    plain = allocate(problem, Exact())
    assert (plain.bound - plain.mean_epochs) * 3000 <= 1 + 1e-6
    monkeypatch.setattr(prices, "_BLOCK", 500)
    for module in (prices, knapsack):
        monkeypatch.setattr(module, "LARGE", 500)
    short = allocate(problem, Exact())
    assert short.mean_epochs == plain.mean_epochs
    assert short.bound == plain.bound


def test_a_large_fleet_is_within_one_epoch_of_its_bound():
    problem = fleet_problem(50_000, 20, 20, 2)
    solution = allocate(problem, Exact())
    assert (solution.bound - solution.mean_epochs) * len(problem) <= 1 + 1e-6
    caps = Capacities.of(problem)
    sync = knapsack.synchronous(caps, problem.total_samples)
    assert caps.at(sync).sum() >= problem.total_samples > caps.at(sync + 1).sum()
