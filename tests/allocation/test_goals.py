"""Objectives as objects: against enumeration of every epoch and every sample, and by what they mean."""

from itertools import product

import numpy as np
import pytest

from flwr_mel import AllocationProblem, Coefficients, Status, allocate
from flwr_mel.allocation.allocate import violations
from flwr_mel.allocation.objectives import Cheapest, Objective, PerCost, Progress, Soonest
from flwr_mel.solvers import Exact
from tests.allocation import oracle
from tests.zoo import paper_problem

#: Problems per goal and exclusion: some 100 of progress per cost, or 2,000 and a few.
TRIALS = [12, pytest.param(200, marks=pytest.mark.slow)]


def tiny(rng: np.random.Generator, learners: int) -> AllocationProblem:
    """Up to 24 samples and 7 epochs, fewer for three and four learners, with every kind of limit."""
    k = learners
    samples, epochs = {3: (13, 4), 4: (13, 3)}.get(learners, (25, 8))
    costs = Coefficients(
        rng.choice([0.01, 0.03, 0.1], k) * rng.uniform(0.7, 1.3, k),
        rng.choice([0.0, 0.02, 0.1], k),
        rng.uniform(0, 0.3, k),
        rng.uniform(0.01, 0.2, k),
        rng.choice([0.0, 0.1], k),
        rng.uniform(0, 0.5, k),
    )
    time_s = float(rng.uniform(1, 5))
    least = int(rng.integers(1, 4))
    return AllocationProblem(
        costs,
        time_s * rng.choice([0.5, 1.0], k) if rng.random() < 0.3 else time_s,
        [None if rng.random() < 0.5 else float(rng.uniform(1, 9)) for _ in range(k)],
        total_samples=int(rng.integers(k * least, samples)),
        staleness=int(rng.integers(0, 4)),
        min_samples=least,
        max_samples=[None if rng.random() < 0.7 else int(rng.integers(3, 20)) for _ in range(k)],
        max_epochs=int(rng.integers(1, epochs)),
    )


def best_by_enumeration(problem: AllocationProblem, goal: PerCost, *, optional: bool) -> float | None:
    """The best ratio over every epochs and batches; who is left out must not fit into the makespan."""
    d, least, k = problem.total_samples, problem.min_samples, len(problem)
    options = []
    for i in range(k):
        mine = [(0, 0, 0.0, 0.0)]
        for tau, n in product(range(1, problem.max_epochs + 1), range(least, d + 1)):
            if oracle.keeps(problem, i, tau, n):
                mine.append((tau, n, oracle.cost_s(problem, i, tau, n), oracle.cost_j(problem, i, tau, n)))
        options.append(mine)
    fits = [len(mine) > 1 for mine in options]
    best = None
    for choice in product(*options):
        part = [x for x in choice if x[0]]
        if sum(x[1] for x in part) != d or not part:
            continue
        if max(x[0] for x in part) - min(x[0] for x in part) > problem.staleness:
            continue
        makespan = max(x[2] for x in part)
        until = makespan if goal.seconds else np.inf
        forced = [
            i
            for i in range(k)
            if fits[i] and not choice[i][0] and oracle.cost_s(problem, i, 1, least) <= until and not optional
        ]
        if forced:
            continue
        cost = goal.seconds * makespan + goal.joules * sum(x[3] for x in part)
        ratio = sum(x[0] * x[1] ** 2 for x in part) / d / cost
        best = ratio if best is None else max(best, ratio)
    return best


@pytest.mark.parametrize("trials", TRIALS)
@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize(
    "goal", [Soonest(), Cheapest(), PerCost(1.0, 0.5), PerCost(1.0, 20.0, tolerance=1e-3)], ids=str
)
def test_progress_per_cost_equals_enumeration(goal, optional, trials):
    rng = np.random.default_rng([11, optional])
    solver = Exact(objective=goal, exclude="optimal" if optional else "infeasible")
    solved = 0
    for _ in range(trials):
        problem = tiny(rng, int(rng.integers(1, 5)))
        best = best_by_enumeration(problem, goal, optional=optional)
        found = allocate(problem, solver, throw=False)
        assert found.status.ok == (best is not None)
        if best is None:
            continue
        solved += 1
        assert violations(problem, found.epochs, found.samples) == []
        assert found.value <= best * (1 + 1e-9)
        assert best <= found.bound * (1 + 1e-9)
        assert found.gap <= (goal.tolerance if goal.seconds else 1e-6)
        if found.status is Status.OPTIMAL:
            assert found.value == pytest.approx(best)
    assert solved >= trials // 2


def test_soonest_chooses_the_cycle_time_and_cheapest_spends_less():
    problem = paper_problem(0, 40, 20, 2)
    most, soon, cheap = (
        allocate(problem, Exact(objective=goal)) for goal in ("progress", "soonest", "cheapest")
    )
    assert soon.time_s.max() <= 40
    assert soon.progress / soon.time_s.max() >= most.progress / most.time_s.max()
    assert cheap.progress / cheap.energy_j.sum() >= most.progress / most.energy_j.sum()
    assert cheap.energy_j.sum() < most.energy_j.sum()
    assert soon.gap <= 0.01
    assert str(soon.objective) == "soonest"
    assert soon.value == pytest.approx(soon.progress / soon.time_s.max())
    # Within the makespan that was found, the same progress is possible.
    again = allocate(problem.replace(cycle_time_s=float(soon.time_s.max())), Exact(objective="progress"))
    assert again.progress >= soon.progress


def test_weights_lie_between_time_and_energy():
    problem = paper_problem(1, 20, 20, 2)
    found = {
        share: allocate(problem, Exact(objective=PerCost(1 - share, share / 10))) for share in (0.0, 0.5, 1.0)
    }
    per_second = [s.progress / s.time_s.max() for s in found.values()]
    per_joule = [s.progress / s.energy_j.sum() for s in found.values()]
    assert per_second[0] * 1.011 >= per_second[1] >= per_second[2] * 0.989
    assert per_joule[0] * 0.989 <= per_joule[1] <= per_joule[2] * 1.011


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5])
def test_a_cap_on_the_share_spreads_the_work(share):
    problem = paper_problem(0, 10, 10, 2)
    free, capped = (allocate(problem, Exact(objective=goal)) for goal in ("progress", Progress(share)))
    assert capped.samples.max() <= share * 60_000
    assert capped.progress <= free.progress
    assert capped.status is Status.OPTIMAL
    same = allocate(problem.replace(max_samples=int(share * 60_000)), Exact(objective="progress"))
    assert same.progress == capped.progress == capped.bound


def test_names_and_objects_are_the_same():
    problem = paper_problem(0, 10, 10, 1)
    assert Exact(objective=Progress()).objective is Objective.PROGRESS
    by_object, by_name = (allocate(problem, Exact(objective=o)) for o in (Progress(), "progress"))
    assert by_object.value == by_name.value
    assert Exact(objective="soonest") == Exact(objective=Soonest())
    assert Exact(objective="per-cost:1,0.5") == Exact(objective=PerCost(1.0, 0.5))
    assert str(PerCost(1.0, 0.5)) == "per-cost:1,0.5"
    assert repr(Exact(objective="cheapest").objective) == repr(Cheapest())


def test_objects_refuse_nonsense():
    for make, words in (
        (lambda: PerCost(0, 0), "seconds must be above 0 unless joules is"),
        (lambda: PerCost(-1), "seconds must be a finite number >= 0"),
        (lambda: Progress(1.5), "max_share must be at most 1"),
        (lambda: Soonest(tolerance=0), "tolerance must be a finite number > 0"),
        (
            lambda: Exact(objective="per-cost:much"),
            "objective must be like per-cost:1,0.1, got 'per-cost:much'",
        ),
        (
            lambda: Exact(objective="accuracy"),
            "one of 'epochs', 'progress', 'soonest', 'cheapest', 'per-cost:1,0.1', got",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            make()
    zero = [0.0, 0.0]
    free = AllocationProblem(Coefficients([1.0, 1.0], zero, zero, zero, zero, zero), 99.0, total_samples=20)
    with pytest.raises(ValueError, match="costs that are not all 0"):
        allocate(free, Exact(objective="cheapest"))


def test_the_bias_of_a_plan():
    zero = [0.0, 0.0]
    costs = Coefficients([1e-3, 1e-3], zero, zero, zero, zero, zero)
    even = allocate(AllocationProblem(costs, 1.0, total_samples=1000), Exact())
    assert even.bias == pytest.approx(0.0)
    problem = AllocationProblem(costs, 1.0, total_samples=1000, max_samples=[900, 100])
    uneven = allocate(problem, Exact(objective="progress"))
    p = uneven.samples / 1000
    w = uneven.epochs * uneven.samples**2 / (uneven.epochs * uneven.samples**2).sum()
    assert uneven.bias == pytest.approx(float(((p - w) ** 2 / w).sum()))


def test_the_best_cycle_time_is_an_answer():
    fixed = paper_problem(0, 40, 20, 2)
    free = fixed.replace(cycle_time_s="best")
    assert free.cycle_time_s > 40
    soon = allocate(free, Exact(objective="soonest"))
    assert soon.gap <= 0.01
    assert soon.value >= allocate(fixed, Exact(objective="soonest")).value / 1.01
    for time_s in (4, 6, 8, 11, 15, 25, 60, 200):
        at = allocate(fixed.replace(cycle_time_s=time_s), Exact(objective="progress"), throw=False)
        if at.status.ok:
            assert at.progress / at.time_s.max() <= soon.bound
    # Nobody can use more time: twice of it changes nothing.
    longer = fixed.replace(cycle_time_s=2 * free.cycle_time_s)
    assert allocate(longer, Exact()).mean_epochs == allocate(free, Exact()).mean_epochs


def test_without_limits_there_is_no_best_cycle_time():
    problem = paper_problem(0, 40, 20, 2).replace(energy_limit_j=None)
    with pytest.raises(
        ValueError, match="cycle_time_s must be a number of seconds where a learner has neither"
    ):
        problem.replace(cycle_time_s="best")
    assert problem.replace(cycle_time_s="best", max_epochs=3).cycle_time_s > 0


def test_who_cannot_reach_a_window_has_no_part_in_it():
    zero = np.zeros(4)
    costs = Coefficients(
        [1e-11, 0.0266, 0.0282, 0.0292],
        [0.0, 0.0, 0.0, 0.001],
        [0.0, 4.23, 1.894, 2.25],
        [1e-15, 0.00152, 0.00123, 0.0355],
        zero,
        zero,
    )
    problem = AllocationProblem(
        costs,
        [2.0, 30.0, 2.0, 7.0],
        total_samples=76,
        min_samples=2,
        max_samples=[5, 69, 37, 21],
        max_epochs=9,
    )
    for goal in ("progress", "cheapest", "soonest"):
        found = allocate(problem, Exact(objective=goal, exclude="optimal"))
        assert violations(problem, found.epochs, found.samples) == []
