"""`Exact` is optimal: against HiGHS, and by the invariants of the problem."""

from itertools import product

import numpy as np
import pytest

from bench.rivals import capacity, highs
from flwr_mel import AllocationProblem, Coefficients, Handout, Infeasible, Reason, Status, allocate
from flwr_mel.allocation.capacity import Capacities, relaxed_synchronous
from flwr_mel.allocation.screening import carried
from flwr_mel.solvers import EqualBatches, Exact, prices
from tests.allocation import oracle
from tests.zoo import KINDS, paper_problem, random_problem


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
        solution = allocate(problem, Exact(), throw=False)
        assert (best is None) == (solution.status is Status.INFEASIBLE)
        if best is not None:
            solved += 1
            assert int(solution.epochs.sum()) == best == round(solution.bound * len(problem))
    assert solved >= trials // 2


@pytest.mark.parametrize("learners", [1, 7, 300])
def test_capacity_is_the_largest_batch_that_fits(learners):
    rng = np.random.default_rng(learners)
    for kind in KINDS:
        problem = random_problem(rng, learners, kind, 0)
        for tau in (1, 2, 3, 10, 97):
            mine = np.minimum(Capacities.of(problem).at(tau), problem.total_samples)
            np.testing.assert_array_equal(mine, capacity(problem, tau))
        np.testing.assert_array_equal(Capacities.of(problem).table(1, 4)[2], Capacities.of(problem).at(3))


def test_synchronous_is_the_bisection():
    for seed in range(3):
        for time_s in (5, 10, 20, 40):
            problem = paper_problem(seed, time_s, 10, 0)
            relaxed = relaxed_synchronous(Capacities.of(problem), problem.total_samples)
            tau = 1
            while capacity(problem, tau + 1).sum() >= problem.total_samples:
                tau += 1
            solution = allocate(problem, Exact())
            assert set(solution.epochs.tolist()) == {tau}
            assert tau <= relaxed < tau + 1.01


def test_more_resources_never_lower_the_optimum():
    rng = np.random.default_rng(5)
    compared = 0
    for trial in range(60):
        problem = random_problem(rng, 12, KINDS[trial % len(KINDS)], staleness=trial % 4)
        base = allocate(problem, Exact(), throw=False)
        if not base.status.ok:
            continue
        finite = [None if np.isinf(e) else float(e) * 1.1 for e in problem.energy_limit_j]
        for change in (
            {"cycle_time_s": problem.cycle_time_s * 1.1},
            {"energy_limit_j": finite},
            {"staleness": problem.staleness + 1},
            {"total_samples": max(int(problem.total_samples * 0.9), len(problem) * problem.min_samples)},
        ):
            richer = allocate(problem.replace(**change), Exact())
            if richer.excluded == base.excluded:  # a newly admitted straggler may lower it
                compared += 1
                assert richer.epochs.sum() >= base.epochs.sum()
    assert compared > 100


def test_a_newly_admitted_straggler_lowers_the_optimum_and_may_be_left_out():
    coefficients = Coefficients([0.001, 0.001, 0.05], [0.0] * 3, [0.0] * 3, [0.0] * 3, [0.0] * 3, [0.0] * 3)
    problem = AllocationProblem(coefficients, 4.9, total_samples=3000, staleness=0, min_samples=100)
    alone = allocate(problem, Exact())
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
    coefficients = Coefficients([0.001, 0.002, 0.004], [0.0] * 3, [0.0] * 3, [0.0] * 3, [0.0] * 3, [0.0] * 3)
    problem = AllocationProblem(coefficients, 8.0, total_samples=7000, min_samples=10)
    samples = {rule: allocate(problem, Exact(handout=rule)).samples.tolist() for rule in Handout}
    assert samples[Handout.PROPORTIONAL] == [4000, 2000, 1000]
    assert samples[Handout.STRONGEST_FIRST] == [4000, 2000, 1000]  # two epochs fill everybody to the brim
    roomy = problem.replace(total_samples=3500, max_epochs=2)
    samples = {rule: allocate(roomy, Exact(handout=rule)).samples.tolist() for rule in Handout}
    assert samples[Handout.PROPORTIONAL] == [2000, 1000, 500]
    assert samples[Handout.EVEN] == [1250, 1250, 1000]
    assert samples[Handout.STRONGEST_FIRST] == [3480, 10, 10]


def test_infeasible_names_the_shortfall_and_both_remedies():
    problem = paper_problem(0, 10, 10, 1).replace(total_samples=900_000)
    with pytest.raises(Infeasible) as caught:
        allocate(problem, Exact())
    diagnosis = caught.value.diagnosis
    assert diagnosis.carried == carried(problem) < 900_000
    assert f"{diagnosis.carried:,}" in str(caught.value)
    assert allocate(problem.replace(total_samples=diagnosis.carried), Exact()).status.ok
    assert not allocate(problem.replace(total_samples=diagnosis.carried + 1), Exact(), throw=False).status.ok
    if diagnosis.cycle_time_s is not None:
        assert allocate(problem.replace(cycle_time_s=diagnosis.cycle_time_s), Exact()).status.ok
        less = np.nextafter(diagnosis.cycle_time_s, 0)
        assert not allocate(problem.replace(cycle_time_s=float(less)), Exact(), throw=False).status.ok


def test_infeasible_by_energy_says_that_no_time_helps():
    coefficients = Coefficients([0.001] * 2, [0.0] * 2, [0.1] * 2, [0.01] * 2, [0.0] * 2, [0.0] * 2)
    problem = AllocationProblem(coefficients, 1.0, 5.0, total_samples=2000, min_samples=1)
    solution = allocate(problem, Exact(), throw=False)
    assert solution.status is Status.INFEASIBLE
    assert solution.diagnosis is not None
    assert solution.diagnosis.cycle_time_s is None
    assert "no cycle time is long enough" in str(solution.diagnosis)


def test_reasons():
    coefficients = Coefficients(
        [0.001, 0.001, 0.001, 0.2, 0.001, 0.001],
        [0.0] * 6,
        [0.1, 99, 0.1, 0.1, 0.1, 0.1],
        [0.001, 0.001, 0.001, 0.001, 3.0, 0.001],
        [0.0] * 6,
        [0.1, 0.1, 50, 0.1, 0.1, 0.1],
    )
    most = [None, None, None, None, None, 3]
    problem = AllocationProblem(coefficients, 10, 20, total_samples=600, min_samples=100, max_samples=most)
    assert allocate(problem, Exact()).excluded == {
        1: Reason.DEADLINE,
        2: Reason.ENERGY,
        3: Reason.MIN_BATCH_TIME,
        4: Reason.MIN_BATCH_ENERGY,
        5: Reason.MIN_BATCH_DATA,
    }


def test_equal_batches_follow_the_paper():
    problem = paper_problem(0, 20, 20, 0)
    sync = allocate(problem, EqualBatches())
    assert set(sync.samples.tolist()) == {3000}
    assert len(set(sync.epochs.tolist())) == 1
    own = [next(t for t in range(1, 99) if capacity(problem, t + 1)[k] < 3000) for k in range(20)]
    assert sync.epochs[0] == min(own)
    asyn = allocate(problem.replace(staleness=2), EqualBatches())
    assert asyn.epochs.tolist() == [min(o, min(own) + 2) for o in own]


def test_equal_batches_with_somebody_who_cannot():
    problem = paper_problem(0, 10, 10, 0)  # the low-energy corner: HU-Sync is infeasible
    with pytest.raises(Infeasible, match="cannot do one epoch on an equal batch"):
        allocate(problem, EqualBatches())
    partial = allocate(problem.replace(staleness=2), EqualBatches())
    assert partial.status is Status.PARTIAL
    assert set(partial.excluded.values()) == {Reason.BATCH}
    assert partial.samples.sum() == 3000 * (20 - len(partial.excluded))
    assert partial.epochs.max() <= 2


def test_very_large_staleness():
    problem = paper_problem(1, 10, 10, 10**6, learners=5)
    solution = allocate(problem, Exact())
    assert solution.status is Status.OPTIMAL
    assert allocate(problem.replace(staleness=50), Exact()).epochs.sum() <= solution.epochs.sum()


def test_beyond_the_core_the_certificate_is_honest(monkeypatch):
    problems = [paper_problem(seed, 10, 10, 5, learners=200) for seed in range(4)]
    whole = [allocate(problem, Exact()) for problem in problems]
    monkeypatch.setattr(prices, "_CORES", (2,))
    for problem, best in zip(problems, whole, strict=True):
        rough = allocate(problem, Exact())
        assert best.status is Status.OPTIMAL
        assert rough.mean_epochs <= best.mean_epochs <= rough.bound
        assert (rough.bound - rough.mean_epochs) * 200 <= 5
