"""Large fleets take shortcuts (blocks, samples, a partial sort); none of them may change an answer."""

import numpy as np
import pytest

from bench.problems import fleet_problem
from flwr_mel import Status, allocate
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.solvers import Exact, knapsack, options, prices


@pytest.mark.parametrize("ties", [False, True])
def test_a_sample_finds_the_same_price_as_a_sort_of_everybody(monkeypatch, ties):
    rng = np.random.default_rng([5, ties])
    for share in (0.001, 0.02, 0.3, 0.7, 0.98, 0.999):
        learners, rows = 3000, 5
        amount = np.cumsum(rng.integers(1, 4 if ties else 1000, (rows, learners)), axis=0)
        value = np.cumsum(rng.integers(0, 4 if ties else 1000, (rows, learners)), axis=0)
        table = options.Options(amount, value, rng.random(amount.shape) < 0.9, 10**4, 10**4)
        table.allowed[0] = True
        low, high = int(amount[0].sum()), int(np.where(table.allowed, amount, 0).max(axis=0).sum())
        demand = low + int(share * (high - low))
        plain = options.relax(table, demand)
        with monkeypatch.context() as patch:
            patch.setattr(options, "LARGE", 400)
            short = options.relax(table, demand)
        everybody = np.arange(learners)
        for found in (plain, short):
            assert amount[found.pick, everybody].sum() <= demand
            assert table.allowed[found.pick, everybody].all()
        assert plain.price.p * short.price.q == short.price.p * plain.price.q
        # What the relaxation leaves over is less than the step that broke.
        proven = options.bound_at(options.choose(table, plain.price).score, plain.price, demand)
        for found in (plain, short):
            assert 0 <= proven - value[found.pick, everybody].sum() <= value.max()


@pytest.mark.parametrize(("time_s", "energy_j", "staleness"), [(10, 10, 1), (20, 20, 3), (40, 30, 5)])
def test_the_shortcuts_change_nothing(monkeypatch, time_s, energy_j, staleness):
    problem = fleet_problem(3000, time_s, energy_j, staleness)
    plain = allocate(problem, Exact())
    assert plain.status is Status.OPTIMAL
    monkeypatch.setattr(prices, "_BLOCK", 500)
    for module in (prices, knapsack):
        monkeypatch.setattr(module, "LARGE", 500)
    short = allocate(problem, Exact())
    assert short.bound == plain.bound
    assert short.mean_epochs == plain.mean_epochs
    assert short.status is Status.OPTIMAL


def test_a_large_fleet_is_within_one_epoch_of_its_bound():
    problem = fleet_problem(50_000, 20, 20, 2)
    solution = allocate(problem, Exact())
    assert (solution.bound - solution.mean_epochs) * len(problem) <= 1 + 1e-6
    caps = Capacities.of(problem)
    sync = knapsack.synchronous(caps, problem.total_samples)
    assert caps.at(sync).sum() >= problem.total_samples > caps.at(sync + 1).sum()


def test_sums_beyond_int64_are_exact():
    values = np.full(1000, 2**62, dtype=np.int64)
    assert options.total(values) == 1000 * 2**62
    assert options.total(-values) == -1000 * 2**62
    assert options.total(values[:3]) == 3 * 2**62
    assert options.total(values[:0]) == 0
