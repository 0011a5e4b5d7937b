"""`Exact(objective="progress")`: optimal against brute force, its bound valid, never below a hand-out."""

from itertools import product

import numpy as np
import pytest

from flwr_mel import AllocationProblem, Coefficients, Handout, Infeasible, Reason, Status, allocate
from flwr_mel.allocation.allocate import BrokenAllocation, Proposal, violations
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.objectives import Objective, weighted_squares
from flwr_mel.solvers import EqualBatches, Exact, options, progress, ratio
from flwr_mel.solvers.progress import maximise
from flwr_mel.solvers.worth import Point
from tests.zoo import KINDS, paper_problem, random_problem

PROGRESS = Exact(objective="progress")


def tiny(rng: np.random.Generator, learners: int, staleness: int) -> AllocationProblem:
    """Up to 60 samples; channels from free to so slow that capacity hardly depends on the epochs."""
    k = learners
    coefficients = Coefficients(
        rng.choice([0.01, 0.03, 0.1], k) * rng.uniform(0.7, 1.3, k),
        rng.choice([0.0, 0.02, 0.3], k),
        rng.uniform(0, 0.3, k),
        rng.uniform(0.01, 0.2, k),
        rng.choice([0.0, 0.1], k),
        rng.uniform(0, 0.2, k),
    )
    return AllocationProblem(
        coefficients,
        float(rng.uniform(1, 6)),
        [None if rng.random() < 0.4 else float(rng.uniform(1, 12)) for _ in range(k)],
        total_samples=int(rng.integers(9, 61)),
        staleness=staleness,
        min_samples=int(rng.integers(1, 4)),
        max_samples=[None if rng.random() < 0.7 else int(rng.integers(3, 40)) for _ in range(k)],
        max_epochs=int(rng.integers(2, 60)),
    )


def brute_force(problem: AllocationProblem, *, subsets: bool = False) -> int | None:
    """Best sum tau d^2 over all batches; the epochs then follow window by window."""
    able = np.flatnonzero(Capacities.of(problem).most_epochs >= 1)
    c, d = problem.coefficients, problem.total_samples
    if not len(able):
        return None
    own = np.zeros((len(problem), d + 1), dtype=int)  # the most epochs on every batch
    for k in able:
        for n in range(problem.min_samples, min(d, int(problem.max_samples[k])) + 1):
            tau = np.arange(1, problem.max_epochs + 1)
            time_s = c.c2[k] * (tau * n) + c.c1[k] * n + c.c0[k]
            energy_j = c.g2[k] * (tau * n) + c.g1[k] * n + c.g0[k]
            fits = (time_s <= problem.cycle_time_s) & (energy_j <= problem.energy_limit_j[k])
            own[k, n] = int(fits.sum())
    best = None
    sizes = [*range(0 if subsets else problem.min_samples, d + 1)]
    for first in product(sizes, repeat=max(len(able) - 1, 0)):
        batches = (*first, d - sum(first))
        part = [(int(own[k, n]), n) for k, n in zip(able, batches, strict=True) if n > 0]
        if not part or batches[-1] < 0 or any(m == 0 for m, _ in part):
            continue
        if not subsets and len(part) < len(able):
            continue
        low = min(m for m, _ in part)  # the highest window is best once the batches are fixed
        best = max(best or 0, sum(min(m, low + problem.staleness) * n * n for m, n in part))
    return best


@pytest.mark.parametrize("subsets", [False, True])
@pytest.mark.parametrize("learners", [1, 2, 3])
def test_equals_brute_force(learners, subsets):
    rng = np.random.default_rng(learners)
    solver = Exact(objective="progress", exclude="optimal" if subsets else "infeasible")
    solved = 0
    for trial in range(30 if learners == 3 else 60):
        problem = tiny(rng, learners, staleness=trial % 5)
        best = brute_force(problem, subsets=subsets)
        solution = allocate(problem, solver, throw=False)
        if best is None:
            assert solution.status is Status.INFEASIBLE
            continue
        solved += 1
        assert solution.status is Status.OPTIMAL
        assert weighted_squares(solution.epochs, solution.samples) == best
        assert solution.progress_bound == solution.progress == best / problem.total_samples
        assert violations(problem, solution.epochs, solution.samples) == []
    assert solved >= 12


def test_without_work_the_bound_holds_and_the_answer_is_close():
    rng = np.random.default_rng(7)
    close = 0
    for trial in range(40):
        problem = tiny(rng, 3, staleness=trial % 4)
        exact = allocate(problem, PROGRESS, throw=False)
        if not exact.status.ok or exact.excluded:
            continue
        worst = allocate(problem, Exact())
        start = Point(weighted_squares(worst.epochs, worst.samples), worst.epochs, worst.samples)
        rough, bound, _ = maximise(
            Capacities.of(problem), problem.total_samples, problem.staleness, start, work=0
        )
        best = weighted_squares(exact.epochs, exact.samples)
        assert start.value <= rough.value <= best <= bound
        assert violations(problem, rough.epochs, rough.samples) == []
        close += rough.value == best
    assert close >= 10


@pytest.mark.parametrize("kind", KINDS)
def test_never_below_a_hand_out_and_more_staleness_never_hurts(kind):
    rng = np.random.default_rng(300 + KINDS.index(kind))
    solved = 0
    for trial in range(8):
        problem = random_problem(rng, int(rng.integers(2, 25)), kind, staleness=trial % 4)
        solution = allocate(problem, PROGRESS, throw=False)
        if not solution.status.ok:
            assert not allocate(problem, Exact(), throw=False).status.ok
            continue
        solved += 1
        for rule in Handout:
            other = allocate(problem, Exact(handout=rule))
            assert other.progress <= solution.progress <= solution.progress_bound
            assert other.bound >= solution.mean_epochs
        if solution.status is Status.OPTIMAL:
            wider = allocate(problem.replace(staleness=problem.staleness + 1), PROGRESS)
            assert wider.progress_bound >= solution.progress
            fewer = allocate(problem, Exact(objective="progress", exclude="optimal"))
            assert fewer.progress_bound >= solution.progress
    assert solved >= 4


@pytest.mark.parametrize("staleness", [0, 2, 5])
def test_the_papers_grid_is_solved_to_optimality(staleness):
    for time_s, energy_j in ((5, 10), (10, 10), (20, 20), (40, 30)):
        problem = paper_problem(1, time_s, energy_j, staleness)
        solution = allocate(problem, PROGRESS)
        assert solution.status is Status.OPTIMAL
        assert solution.gap == 0
        assert solution.objective is Objective.PROGRESS
        strongest = allocate(problem, Exact(handout="strongest-first"))
        assert solution.progress >= strongest.progress


def test_equal_learners():
    same = Coefficients([0.001] * 6, [0.0] * 6, [0.0] * 6, [0.0] * 6, [0.0] * 6, [0.0] * 6)
    problem = AllocationProblem(same, 10.0, total_samples=11_000, min_samples=100)
    solution = allocate(problem, PROGRESS)
    # Five epochs: five full batches, and one learner takes the rest.
    assert sorted(solution.samples.tolist()) == [1000, 2000, 2000, 2000, 2000, 2000]
    assert solution.epochs.tolist() == [5] * 6
    assert solution.status is Status.OPTIMAL


def test_own_data_in_fl():
    coefficients = Coefficients([0.01, 0.02, 0.04], [0.0] * 3, [0.0] * 3, [0.0] * 3, [0.0] * 3, [0.0] * 3)
    problem = AllocationProblem(
        coefficients, 8.0, total_samples=100, max_samples=[60, 30, 30], staleness=3, max_epochs=50
    )
    solution = allocate(problem, PROGRESS)
    assert solution.samples[0] == 60
    assert weighted_squares(solution.epochs, solution.samples) == brute_force(problem)


def test_leaving_out_the_weak_says_why():
    coefficients = Coefficients([0.001, 0.001, 0.05], [0.0] * 3, [0.0] * 3, [0.0] * 3, [0.0] * 3, [0.0] * 3)
    problem = AllocationProblem(coefficients, 5.0, total_samples=3000, min_samples=100)
    assert allocate(problem, PROGRESS).epochs.tolist() == [1, 1, 1]
    freed = allocate(problem, Exact(objective="progress", exclude="optimal"))
    assert freed.excluded[2] is Reason.WEAK
    assert freed.progress > allocate(problem, PROGRESS).progress


def test_many_epochs_and_a_very_large_staleness():
    problem = paper_problem(1, 10, 10, 10**6, learners=5)
    solution = allocate(problem, PROGRESS)
    assert violations(problem, solution.epochs, solution.samples) == []
    quick = Coefficients([1e-6] * 3, [0.0] * 3, [0.0] * 3, [0.0] * 3, [0.0] * 3, [0.0] * 3)
    problem = AllocationProblem(quick, 10.0, total_samples=300, staleness=1)
    solution = allocate(problem, PROGRESS)  # tens of thousands of windows
    assert solution.status is Status.OPTIMAL


def test_a_large_fleet_has_a_close_bound():
    solution = allocate(paper_problem(0, 10, 10, 2, learners=1000), PROGRESS)
    assert solution.gap < 1e-4


def test_infeasible_and_bad_options():
    problem = paper_problem(0, 10, 10, 1).replace(total_samples=900_000)
    with pytest.raises(Infeasible):
        allocate(problem, PROGRESS)
    with pytest.raises(
        ValueError,
        match=r"objective must be one of 'epochs', 'progress', 'soonest', 'cheapest', 'per-cost:1,0\.1'",
    ):
        Exact(objective="accuracy")
    quick = Coefficients([1e-9], [0.0], [0.0], [0.0], [0.0], [0.0])
    with pytest.raises(ValueError, match="total_samples must be small enough"):
        allocate(AllocationProblem(quick, 1e4, total_samples=2 * 10**9), PROGRESS)


def test_a_false_certificate_is_caught():
    class Boaster:
        def solve(self, problem):
            honest = PROGRESS.solve(problem)
            return Proposal(
                honest.epochs,
                honest.samples,
                honest.bound - 1,
                honest.status,
                honest.excluded,
                objective=honest.objective,
            )

    with pytest.raises(BrokenAllocation, match="above its bound"):
        allocate(paper_problem(0, 10, 10, 1), Boaster())


def test_every_solution_tells_its_progress():
    problem = paper_problem(0, 20, 20, 1)
    equal = allocate(problem, EqualBatches())
    assert equal.progress == pytest.approx(equal.mean_epochs * 3000)
    assert equal.progress_bound is None
    nothing = allocate(problem.replace(total_samples=10**7), Exact(), throw=False)
    assert nothing.progress == 0


def test_a_large_fleets_shortcuts_keep_the_bound(monkeypatch):
    plain = [allocate(paper_problem(seed, 10, 10, 2, learners=60), PROGRESS) for seed in range(4)]
    for module in (options, progress, ratio):
        monkeypatch.setattr(module, "LARGE", 16)
    for seed, whole in enumerate(plain):
        short = allocate(paper_problem(seed, 10, 10, 2, learners=60), PROGRESS)
        assert short.progress <= whole.progress_bound
        assert whole.progress <= short.progress_bound
        assert short.gap < 1e-3
