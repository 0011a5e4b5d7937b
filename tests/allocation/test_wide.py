"""Wide windows are searched by the ends of convex pieces: the same optima, at a cost that ignores c."""

import numpy as np
import pytest

from bench.problems import fleet_problem
from flwr_mel import Status, allocate
from flwr_mel.allocation.allocate import violations
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.screening import screen
from flwr_mel.solvers import Exact, ends, epochs
from flwr_mel.solvers.ends import search_wide
from flwr_mel.solvers.windows import synchronous
from tests.allocation import oracle
from tests.zoo import KINDS, paper_problem, random_problem


@pytest.mark.parametrize("kind", KINDS)
def test_bound_and_allocation_enclose_the_optimum_of_the_rows(kind):
    rng = np.random.default_rng(800 + KINDS.index(kind))
    closed = compared = 0
    for trial in range(25):
        problem = random_problem(rng, int(rng.integers(2, 16)), kind, staleness=(3, 25, 60, 120)[trial % 4])
        problem = problem.replace(min_samples=int(rng.choice([1, 1, 7])))
        able, _ = screen(Capacities.of(problem))
        mine, d, c = Capacities.of(problem).take(able), problem.total_samples, problem.staleness
        if not len(able) or mine.at(1).sum() < d:
            continue
        sync = synchronous(mine, d)
        found = search_wide(mine, d, c, sync, sync * len(able))
        taus = np.full(len(able), sync) if found.epochs is None else found.epochs
        best, proven = epochs.Search(d, core=4000).by_rows(mine, c, able, 0, sync)
        assert best is not None
        assert best.sum_epochs == proven
        assert int(taus.sum()) <= best.sum_epochs <= found.bound
        assert taus.max() - taus.min() <= c
        assert np.minimum(mine.at(taus), d).sum() >= d
        compared += 1
        closed += int(taus.sum()) == found.bound
    assert closed >= 0.8 * compared > 8


@pytest.mark.parametrize("kind", oracle.KINDS)
def test_wide_windows_equal_enumeration(kind, monkeypatch):
    monkeypatch.setattr(epochs, "WIDE", 1)
    rng = np.random.default_rng([9, oracle.KINDS.index(kind)])
    for _ in range(40):
        problem = oracle.random_problem(rng, kind)
        problem = problem.replace(staleness=problem.staleness + 1)
        for subsets, exclude in ((False, "infeasible"), (True, "optimal")):
            best = oracle.best_epochs(problem, subsets=subsets)
            found = allocate(problem, Exact(exclude=exclude), throw=False)
            assert found.status.ok == (best is not None)
            if best is not None:
                assert violations(problem, found.epochs, found.samples) == []
                assert int(found.epochs.sum()) == best == round(found.bound * len(problem))


@pytest.mark.parametrize("staleness", [100, 1000, 60_000])
def test_the_work_does_not_follow_the_staleness(staleness):
    for time_s, energy_j in ((10, 10), (20, 20), (40, 30)):
        problem = paper_problem(0, time_s, energy_j, staleness).replace(min_samples=1)
        found = allocate(problem, Exact())
        assert found.status is Status.OPTIMAL
        assert found.stats["windows"] <= 20
        spread = allocate(problem.replace(staleness=5), Exact())
        assert found.mean_epochs > spread.mean_epochs


@pytest.mark.parametrize("learners", [60, 100, 400])
def test_large_fleets_come_near_their_bound_however_wide_the_windows_are(learners):
    for time_s, energy_j in ((10, 10), (20, 20)):
        problem = fleet_problem(learners, time_s, energy_j, 10_000).replace(min_samples=1)
        assert allocate(problem, Exact()).gap < 1e-3


def test_a_search_that_is_given_up_says_so_and_keeps_its_allocation(monkeypatch):
    problem = fleet_problem(60, 20, 20, 10_000).replace(min_samples=1)
    whole = allocate(problem, Exact())
    monkeypatch.setattr(ends, "_SUMS", 100)
    found = allocate(problem, Exact())
    assert found.status is Status.FEASIBLE
    assert found.mean_epochs <= whole.mean_epochs <= whole.bound <= found.bound
    assert found.gap < 0.05


def test_spread_and_exclusion_work_with_wide_windows():
    problem = paper_problem(1, 20, 20, 400).replace(min_samples=1, max_epochs=150)
    best = allocate(problem, Exact())
    spread = allocate(problem, Exact(tie_break="spread"))
    assert spread.mean_epochs == best.mean_epochs
    assert spread.staleness <= best.staleness
    assert allocate(problem, Exact(exclude="optimal")).mean_epochs >= best.mean_epochs
