"""Wide staleness caps, up to none at all: near a proven bound, never below a greedy, and more time helps."""

import numpy as np
import pytest

from flwr_mel import AllocationProblem, Coefficients, Status, allocate
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.screening import screen
from flwr_mel.solvers import EqualBatches, Exact, SuggestImprove, knapsack, prices
from tests.allocation import by_sample
from tests.counting import calls
from tests.problems import fleet_problem
from tests.zoo import paper_problem, problem_of

QUICK_OR_DEEP = pytest.mark.parametrize("trials", [60, pytest.param(20_000, marks=pytest.mark.slow)])


@pytest.mark.parametrize("staleness", [50, 100, 1000, None])
@pytest.mark.parametrize("cell", [(10, 10), (20, 20), (40, 30)])
def test_the_papers_fleet(cell, staleness):
    problem = paper_problem(0, *cell, 0).replace(staleness=staleness)
    found = allocate(problem, Exact())
    assert (found.bound - found.mean_epochs) * len(problem) <= 1 + 1e-6
    tiny = allocate(problem.replace(min_samples=1), Exact())
    assert found.mean_epochs <= tiny.mean_epochs
    assert tiny.gap < 0.002


@pytest.mark.parametrize(
    ("learners", "staleness", "least"),
    [(60, None, 100), (1000, None, 100), (1000, 5000, 1), (10_000, 200, 100), (10_000, 200, 1)],
)
def test_larger_fleets(learners, staleness, least):
    problem = fleet_problem(learners, 20, 20, 0).replace(staleness=staleness, min_samples=least)
    found = allocate(problem, Exact())
    assert found.gap < 1e-3
    assert found.epochs.sum() >= greedy(problem)


@pytest.mark.parametrize("shrunk", [False, True])
@QUICK_OR_DEEP
def test_against_single_samples(trials, shrunk, monkeypatch):
    """With `shrunk`, small problems take the ways of large ones: what is claimed stays true."""
    if shrunk:
        monkeypatch.setattr(knapsack, "_FEW", 0)
        monkeypatch.setattr(knapsack, "_LATE", 0)
        monkeypatch.setattr(prices, "_WHOLE", prices.ROWS)
        monkeypatch.setattr(prices, "_SAMPLES", 0)
    rng, solved = np.random.default_rng([11, shrunk, trials]), 0
    for _ in range(trials):
        problem = by_sample.draw_wide(rng)
        best = by_sample.most_epochs(problem)
        found = allocate(problem, Exact(), throw=False)
        assert found.status.ok == np.isfinite(best)
        if found.status.ok:
            solved += 1
            bound = round(found.bound * len(problem))
            assert found.epochs.sum() <= best <= bound
            assert found.status is not Status.OPTIMAL or found.epochs.sum() == best
            assert shrunk or found.gap <= 0.02
    assert solved > trials / 2


def greedy(problem):
    """Epochs of a simple rival: in twelve windows, learners at the bottom or at the top, cheapest first."""
    capacities = Capacities.of(problem)
    mine = capacities.take(screen(capacities)[0])
    d, c, most = problem.total_samples, problem.staleness, mine.most_epochs
    sync, best = knapsack.synchronous(mine, d), 0
    for t in np.unique(np.linspace(max(1, sync - c), sync, 12).astype(int)):
        top, low = np.minimum(most, t + c), np.minimum(mine.at(int(t)), d)
        lost, gain = low - np.minimum(mine.at(top), d), top - t
        order = np.argsort(lost / np.maximum(gain, 1), kind="stable")
        taken = order[np.cumsum(lost[order]) <= int(low.sum()) - d]
        best = max(best, int(t) * len(most) + int(gain[taken].sum()))
    return best


def wide_problem(rng):
    """Up to 200 learners of any speeds, with every kind of limit; None if it has no solution."""
    k = int(rng.choice([1, 2, 3, 5, 8, 20, 50, 100, 200]))
    c2 = 10 ** rng.uniform(-6, -2) * np.exp(rng.normal(0, rng.choice([0, 0.1, 0.7, 2]), k))
    zero, time_s, limit = np.zeros(k), float(10 ** rng.uniform(-1, 2)), None
    c0 = rng.uniform(0, 0.5, k) * time_s * (rng.random() < 0.5)
    c1 = c2 * rng.uniform(0, 10, k) * (rng.random() < 0.4)
    g2, g1, g0 = zero, zero, zero
    if rng.random() < 0.4:
        g2, g0 = 10 ** rng.uniform(-4, -1) * np.exp(rng.normal(0, 1, k)), rng.uniform(0, 0.5, k)
        g1 = g2 * rng.uniform(0, 20, k) * (rng.random() < 0.5)
        limit = g0 + g2 / c2 * time_s * rng.uniform(0.1, 2, k)
    least = int(rng.choice([1, 1, 2, 5, 16, 100]))
    held = None if rng.random() < 0.5 else rng.integers(least, least + int(10 ** rng.uniform(0.5, 4)), k)
    problem = AllocationProblem(
        Coefficients(c2, c1, c0, g2, g1, g0),
        time_s,
        limit,
        total_samples=10**9,
        staleness=None if rng.random() < 0.4 else int(10 ** rng.uniform(0.7, 5)),
        min_samples=least,
        max_samples=held,
    )
    capacities = Capacities.of(problem)
    able = capacities.most_epochs > 0
    few, many = least * int(able.sum()), min(int(capacities.at(1)[able].sum()), 10**9)
    if not able.any() or many < few:
        return None
    total = rng.integers(few, many + 1) if rng.random() < 0.5 else np.exp(rng.uniform(*np.log([few, many])))
    return problem.replace(total_samples=max(int(total), few))


@QUICK_OR_DEEP
def test_never_below_a_greedy_and_never_less_with_more_time(trials):
    rng, gaps = np.random.default_rng([12, trials]), []
    while len(gaps) < trials:
        problem = wide_problem(rng)
        found = None if problem is None else allocate(problem, Exact(), throw=False)
        if found is None or not found.status.ok:
            continue
        gaps.append(found.gap)
        assert found.epochs.sum() >= greedy(problem)
        longer = allocate(problem.replace(cycle_time_s=2 * problem.cycle_time_s), Exact(), throw=False)
        if longer.status.ok and set(longer.excluded) == set(
            found.excluded
        ):  # more learners may be slower together
            assert longer.epochs.sum() >= found.epochs.sum()
    assert np.mean(np.array(gaps) <= 0.02) > 0.99


@pytest.mark.parametrize("time_s", [10.0, 1000.0])
def test_a_giant_costs_no_time(time_s):
    """Leaving learners out does not go through all its epochs, one window after the other."""
    problem = problem_of(
        [1e-6, *np.geomspace(1e-4, 3e-3, 59)], time_s, total_samples=1000, staleness=5, min_samples=32
    )
    found, steps = calls(allocate, problem, Exact(exclude="optimal"))
    assert found.status is Status.OPTIMAL
    assert len(found.excluded) == 43
    assert steps < 100_000


@pytest.mark.parametrize("time_s", [3.0, 1000.0])
def test_the_papers_solver_without_a_cap(time_s):
    problem = problem_of([1e-5, *np.linspace(1e-3, 1.4e-3, 4)], time_s, total_samples=400, staleness=None)
    found, steps = calls(allocate, problem, SuggestImprove(suggest="bisection"))
    assert found.epochs.sum() == allocate(problem, Exact()).epochs.sum()
    assert steps < 100_000


def test_equal_batches_whose_costs_overflow():
    problem = problem_of([1.0, 1e300], 1e290, c1=[0, 1e305], total_samples=10**9, max_epochs=5)
    assert allocate(problem, EqualBatches(), throw=False).status is Status.INFEASIBLE
    assert allocate(problem.replace(staleness=5), EqualBatches()).epochs.tolist() == [5, 0]


def test_more_time_gives_more_epochs_without_a_cap():
    """A giant and four others, whose table of capacities has a million rows."""
    speeds, before = [1e-5, *np.linspace(1e-3, 1.4e-3, 4)], 0.0
    for time_s in (1.0, 3.0, 10.0, 1000.0):
        found = allocate(problem_of(speeds, time_s, total_samples=400, staleness=None), Exact())
        assert found.status is Status.OPTIMAL
        assert found.mean_epochs > 2.9 * before
        before = found.mean_epochs
