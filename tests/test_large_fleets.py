"""Large fleets take shortcuts (blocks, samples, a partial sort); none of them may change an answer."""

import numpy as np
import pytest

from bench.solvers import fleet_problem
from flwr_mel import Status, allocate
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.solvers import Exact, knapsack, windows


@pytest.mark.parametrize("steps", [10, 40_000, 120_000])
def test_a_partial_sort_takes_the_same_steps_as_a_full_one(steps):
    rng = np.random.default_rng(steps)
    rates = [rng.random(steps), np.round(rng.random(steps), 2), np.sort(rng.random(steps)), np.ones(steps)]
    for rate in rates:
        loss = rng.integers(0, 1000, steps)
        order = np.argsort(rate, kind="stable")
        for share in (0, 1e-5, 0.3, 0.9, 0.99999, 1, 1.1):
            slack = int(loss.sum() * share)
            fits = int(np.searchsorted(np.cumsum(loss[order]), slack, side="right"))
            taken, broken = knapsack._affordable(rate, loss, slack)
            assert set(np.flatnonzero(taken)) == set(order[:fits])
            assert broken == (order[fits] if fits < steps else None)


@pytest.mark.parametrize(("time_s", "energy_j", "staleness"), [(10, 10, 1), (20, 20, 3), (40, 30, 5)])
def test_the_shortcuts_change_nothing(monkeypatch, time_s, energy_j, staleness):
    problem = fleet_problem(3000, time_s, energy_j, staleness)
    plain = allocate(problem, Exact())
    assert plain.status is Status.OPTIMAL
    for module, name in ((knapsack, "_BLOCK"), (knapsack, "_MANY"), (windows, "_LARGE")):
        monkeypatch.setattr(module, name, 500)
    short = allocate(problem, Exact())
    assert short.bound == plain.bound
    assert short.mean_epochs == plain.mean_epochs
    assert short.status is Status.OPTIMAL


def test_a_large_fleet_is_within_one_epoch_of_its_bound():
    problem = fleet_problem(50_000, 20, 20, 2)
    solution = allocate(problem, Exact())
    assert (solution.bound - solution.mean_epochs) * len(problem) <= 1 + 1e-6
    caps = Capacities.of(problem)
    sync = windows.synchronous(caps, problem.total_samples)
    assert caps.at(sync).sum() >= problem.total_samples > caps.at(sync + 1).sum()


def test_sums_beyond_int64_are_exact():
    values = np.full(1000, 2**62, dtype=np.int64)
    assert knapsack.total(values) == 1000 * 2**62
    assert knapsack.total(-values) == -1000 * 2**62
    assert knapsack.total(values[:3]) == 3 * 2**62
    assert knapsack.total(values[:0]) == 0
