"""`Exact` is optimal: against HiGHS, and by the invariants of the problem."""

from itertools import product

import numpy as np
import pytest

from flwr_mel import Handout, Infeasible, Reason, Status, allocate
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.solvers import EqualBatches, Exact, knapsack, prices
from tests.allocation import oracle
from tests.rivals import highs
from tests.zoo import KINDS, paper_problem, problem_of, random_problem


@pytest.mark.parametrize("own_deadlines", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trials", [12, pytest.param(90, marks=pytest.mark.slow)])
def test_equals_highs(kind, trials, own_deadlines):
    rng = np.random.default_rng([200, own_deadlines, KINDS.index(kind)])
    solved = 0
    for trial in range(trials):
        problem = random_problem(rng, int(rng.integers(5, 41)), kind, staleness=trial % 6)
        if own_deadlines:
            times = rng.choice([0.5, 1, 1.3, 4], len(problem))
            problem = problem.replace(cycle_time_s=problem.cycle_time_s * times)
        best = highs(problem)
        solved += best is not None
        for few in (64, 0):  # all windows at once, and by prices
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(knapsack, "_FEW", few)
                patch.setattr(knapsack, "_LATE", 0)
                solution = allocate(problem, Exact(), throw=False)
            assert (best is None) == (solution.status is Status.INFEASIBLE)
            assert best is None or int(solution.epochs.sum()) == best == round(solution.bound * len(problem))
    assert solved >= trials // 2


def test_a_newly_admitted_straggler_lowers_the_optimum_and_may_be_left_out():
    problem = problem_of([0.001, 0.001, 0.05], 4.9, total_samples=3000, staleness=0, min_samples=100)
    alone = allocate(problem)  # `Exact` is the default
    assert alone.excluded == {2: Reason.MIN_BATCH_TIME}
    admitted = allocate(problem.replace(cycle_time_s=5.0), Exact())
    assert admitted.epochs.tolist() == [1, 1, 1]
    assert alone.epochs.sum() > admitted.epochs.sum()
    freed = allocate(problem.replace(cycle_time_s=5.0), Exact(exclude="optimal"))
    assert freed.excluded == {2: Reason.STRAGGLER}
    assert freed.epochs.tolist() == [3, 3, 0]


def test_of_equal_optima_the_one_with_the_most_spare_capacity():
    rng = np.random.default_rng(9)
    compared = 0
    for trial in range(25):
        problem = oracle.random_problem(rng, oracle.KINDS[trial % len(oracle.KINDS)]).replace(staleness=2)
        solution = allocate(problem, Exact(), throw=False)
        if not solution.status.ok:
            continue
        caps = Capacities.of(problem)
        mine = sum(int(caps.at(int(t))[k]) for k, t in enumerate(solution.epochs) if t)
        who = [k for k, t in enumerate(solution.epochs) if t]
        columns = [[int(caps.at(t)[k]) for t in range(1, 40)] for k in who]
        best = 0
        for taus in product(*(range(1, int(caps.most_epochs[k]) + 1) for k in who)):
            if sum(taus) == solution.epochs.sum() and max(taus) - min(taus) <= problem.staleness:
                best = max(best, sum(c[t - 1] for c, t in zip(columns, taus, strict=True)))
        compared += 1
        assert mine == best
    assert compared > 10


def test_hand_out_rules_do_what_they_say():
    problem = problem_of([0.001, 0.002, 0.004], 8.0, total_samples=7000, min_samples=10)
    samples = {rule: allocate(problem, Exact(handout=rule)).samples.tolist() for rule in Handout}
    assert samples[Handout.PROPORTIONAL] == [4000, 2000, 1000]
    assert samples[Handout.STRONGEST_FIRST] == [4000, 2000, 1000]  # two epochs fill everybody to the brim
    roomy = problem.replace(total_samples=3500, max_epochs=2)
    samples = {rule: allocate(roomy, Exact(handout=rule)).samples.tolist() for rule in Handout}
    assert samples[Handout.PROPORTIONAL] == [2000, 1000, 500]
    assert samples[Handout.EVEN] == [1250, 1250, 1000]
    assert samples[Handout.STRONGEST_FIRST] == [3480, 10, 10]


def test_reasons():
    costs = {
        "c0": [0.1, 99, 0.1, 0.1, 0.1, 0.1],
        "g2": [0.001, 0.001, 0.001, 0.001, 3.0, 0.001],
        "g0": [0.1, 0.1, 50, 0.1, 0.1, 0.1],
    }
    limits = {"energy_limit_j": 20, "min_samples": 100, "max_samples": [*[None] * 5, 3]}
    problem = problem_of([0.001, 0.001, 0.001, 0.2, 0.001, 0.001], 10, total_samples=600, **costs, **limits)
    assert allocate(problem, Exact()).excluded == {
        1: Reason.DEADLINE,
        2: Reason.ENERGY,
        3: Reason.MIN_BATCH_TIME,
        4: Reason.MIN_BATCH_ENERGY,
        5: Reason.MIN_BATCH_DATA,
    }


def test_equal_batches_with_somebody_who_cannot():
    problem = paper_problem(0, 10, 10, 0)  # the low-energy corner: HU-Sync is infeasible
    with pytest.raises(Infeasible, match="cannot do one epoch on an equal batch"):
        allocate(problem, EqualBatches())
    partial = allocate(problem.replace(staleness=2), EqualBatches())
    assert partial.status is Status.PARTIAL
    assert set(partial.excluded.values()) == {Reason.BATCH}
    assert partial.samples.sum() == 3000 * (20 - len(partial.excluded))
    assert partial.epochs.max() <= 2


def test_beyond_the_core_the_certificate_is_honest(monkeypatch):
    problems = [paper_problem(seed, 10, 10, 5, learners=200) for seed in range(4)]
    whole = [allocate(problem, Exact()) for problem in problems]
    monkeypatch.setattr(prices, "_OPEN", 2)
    monkeypatch.setattr(prices, "_BEAM", 4)
    for problem, best in zip(problems, whole, strict=True):
        rough = allocate(problem, Exact())
        assert best.status is Status.OPTIMAL
        assert rough.mean_epochs <= best.mean_epochs <= rough.bound
        assert (rough.bound - rough.mean_epochs) * 200 <= 5
