"""Capacities and allocations against enumeration, on fleets of every awkward kind."""

import numpy as np
import pytest

from flwr_mel import AllocationProblem, Infeasible, Status, allocate, fastest, greenest
from flwr_mel.allocation.allocate import violations
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.solvers import EqualBatches, Exact, SuggestImprove, knapsack, prices
from tests import zoo
from tests.allocation import oracle

KINDS = (*oracle.KINDS, *zoo.KINDS)
#: Problems per kind: about 200 in all, or 5,000.
TRIALS = [15, pytest.param(400, marks=pytest.mark.slow)]


def random_problem(rng, kind, samples=300):
    """A problem of which every combination of epochs can be tried."""
    if kind in oracle.KINDS:
        return oracle.random_problem(rng, kind, samples)
    problem = zoo.random_problem(rng, int(rng.integers(2, 5)), kind, int(rng.integers(0, 5)))
    return problem.replace(max_epochs=12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trials", TRIALS)
def test_capacities_are_exact_to_the_last_sample(kind, trials):
    rng = np.random.default_rng([1, KINDS.index(kind)])
    for _ in range(trials):
        problem = random_problem(rng, kind, samples=int(rng.choice([60, 1000, 10**6])))
        capacities, tau = Capacities.of(problem), int(rng.integers(1, 9))
        d, most = problem.total_samples, problem.max_epochs
        for k in range(len(problem)):
            cap = oracle.largest(lambda n, k=k, p=problem, t=tau: oracle.keeps(p, k, t, n), d)
            assert min(int(capacities.at(tau)[k]), d) == cap
            own = oracle.largest(lambda t, k=k, p=problem: oracle.keeps(p, k, t, p.min_samples), most)
            assert int(capacities.most_epochs[k]) == own
        np.testing.assert_array_equal(capacities.table(1, 4)[2], capacities.at(3))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trials", TRIALS)
def test_allocations_equal_enumeration(kind, trials):
    rng = np.random.default_rng([2, KINDS.index(kind)])
    solved = 0
    for _ in range(trials):
        problem = random_problem(rng, kind)
        if rng.random() < 0.2:
            problem = problem.replace(staleness=None)
        for subsets, exclude in ((False, "infeasible"), (True, "optimal")):
            best = oracle.best_epochs(problem, subsets=subsets)
            for few in (64, 0):  # all windows at once, and by prices
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(knapsack, "_FEW", few)
                    patch.setattr(knapsack, "_LATE", 0)
                    found = allocate(problem, Exact(exclude=exclude), throw=False)
                assert found.status.ok == (best is not None)
                if best is None:
                    continue
                solved += 1
                assert violations(problem, found.epochs, found.samples) == []
                assert int(found.epochs.sum()) == best == round(found.bound * len(problem))
        other = allocate(problem, SuggestImprove(suggest="bisection"), throw=False)
        best = oracle.best_epochs(problem)
        assert other.status.ok == (best is not None)
        assert best is None or int(other.epochs.sum()) <= best <= round(other.bound * len(problem))
    assert solved >= trials


def dead(samples: int) -> AllocationProblem:
    """Three learners, the last of which cannot take part."""
    return zoo.problem_of([1e-3, 1e-3, 99.0], 1.0, total_samples=samples, min_samples=100)


def test_who_cannot_take_part_needs_no_least_batch():
    for solver in (Exact(), SuggestImprove(suggest="bisection")):
        found = allocate(dead(250), solver)
        assert found.samples.sum() == 250
        assert list(found.excluded) == [2]
    for solver in (Exact(), SuggestImprove(suggest="bisection")):
        with pytest.raises(Infeasible, match="smallest batches of 2 learners need 200 of 199"):
            allocate(dead(199), solver)
    assert sorted(allocate(dead(199), Exact(exclude="optimal")).samples.tolist()) == [0, 0, 199]
    # Equal batches are for everybody.
    with pytest.raises(Infeasible, match=r"equal batch of 83 samples is below min_samples = 100"):
        allocate(dead(250), EqualBatches())
    for question in (fastest, greenest):
        with pytest.raises(Infeasible, match="smallest batches of 3 learners need 300 of 250"):
            question(dead(250), 1)


def competing_sets(seed: int) -> AllocationProblem:
    """Learners whose own maxima differ, so that several sets of participants come close to the best."""
    rng = np.random.default_rng([79, seed])
    k = int(rng.integers(4, 9))
    most, least = rng.integers(3, 16, k), int(rng.integers(5, 30))
    c2 = 1 / (most * least) * rng.uniform(0.9, 1, k)
    c1 = c2 * rng.choice([0, 1.0, 3.0], k) * rng.random()
    samples, staleness = int(k * least * rng.uniform(1, 2.5)), int(rng.integers(1, 5))
    return zoo.problem_of(c2, 1.0, c1=c1, total_samples=samples, min_samples=least, staleness=staleness)


@pytest.mark.parametrize("seeds", [60, pytest.param(4000, marks=pytest.mark.slow)])
def test_leaving_out_beyond_the_core_claims_nothing_unproven(seeds, monkeypatch):
    """With the constants of huge fleets on small ones, so that the search is often incomplete."""
    problems = [competing_sets(seed) for seed in (2744, 4052, 6041, 6221, *range(seeds))]
    best = [allocate(problem, Exact(exclude="optimal"), throw=False) for problem in problems]
    assert int(best[0].epochs.sum()) == oracle.best_epochs(problems[0], subsets=True) == 15
    monkeypatch.setattr(knapsack, "_FEW", 0)
    monkeypatch.setattr(knapsack, "_LATE", 0)
    monkeypatch.setattr(prices, "_OPEN", 1)
    monkeypatch.setattr(prices, "_BEAM", 2)
    for problem, optimum in zip(problems, best, strict=True):
        found = allocate(problem, Exact(exclude="optimal"), throw=False)
        assert found.status.ok == optimum.status.ok
        assert found.mean_epochs <= optimum.mean_epochs <= found.bound
        assert found.status is not Status.OPTIMAL or found.mean_epochs == optimum.mean_epochs
