"""`fastest` and `greenest` against brute force and against sample-by-sample schedulers."""

import heapq
from itertools import product

import numpy as np
import pytest

from bench import schedulers
from flwr_mel import AllocationProblem, Coefficients, Infeasible, fastest, greenest
from flwr_mel.allocation.allocate import violations
from tests.counting import calls
from tests.zoo import KINDS, paper_problem, random_problem


def costs_of(problem, epochs):
    """Time and energy of learner k for d samples, from the formula."""
    c, tau = problem.coefficients, np.broadcast_to(epochs, len(problem)).tolist()
    # Plain floats: the schedulers below ask sample by sample, and must not lose time to numpy scalars.
    c2, c1, c0, g2, g1, g0 = (getattr(c, name).tolist() for name in ("c2", "c1", "c0", "g2", "g1", "g0"))

    def time_s(k, d):
        return c2[k] * (tau[k] * d) + c1[k] * d + c0[k]

    def energy_j(k, d):
        return g2[k] * (tau[k] * d) + g1[k] * d + g0[k]

    return time_s, energy_j


def every_hand_out(problem):
    """All integer d_k between the least batch and max_samples that sum to d."""
    d, least = problem.total_samples, problem.min_samples
    tops = [min(int(m), d) for m in problem.max_samples]
    for head in product(*(range(least, top + 1) for top in tops[:-1])):
        rest = d - sum(head)
        if least <= rest <= tops[-1]:
            yield (*head, rest)


def brute_force(problem, epochs, *, deadline):
    """The least makespan or the least energy over every hand-out; None if there is none."""
    time_s, energy_j = costs_of(problem, epochs)
    best = None
    for batches in every_hand_out(problem):
        times = [time_s(k, d) for k, d in enumerate(batches)]
        joules = [energy_j(k, d) for k, d in enumerate(batches)]
        if any(e > limit for e, limit in zip(joules, problem.energy_limit_j, strict=True)):
            continue
        if deadline and max(times) > problem.cycle_time_s:
            continue
        value = sum(joules) if deadline else max(times)
        best = value if best is None else min(best, value)
    return best


def olar(problem, epochs):
    """Place sample after sample where the makespan grows least (OLAR); None if a sample finds no place."""
    time_s, energy_j = costs_of(problem, epochs)
    limits, most = problem.energy_limit_j.tolist(), problem.max_samples.tolist()
    return _greedy(
        problem,
        key=time_s,
        fits=lambda k, d: d <= most[k] and energy_j(k, d) <= limits[k],
        value=lambda batches: max(time_s(k, d) for k, d in enumerate(batches)),
    )


def marin(problem, epochs):
    """Place sample after sample where it costs least energy within the deadline (MarIn)."""
    time_s, energy_j = costs_of(problem, epochs)
    limits, most = problem.energy_limit_j.tolist(), problem.max_samples.tolist()
    return _greedy(
        problem,
        key=lambda k, d: energy_j(k, d) - energy_j(k, d - 1),
        fits=lambda k, d: (
            d <= most[k] and energy_j(k, d) <= limits[k] and time_s(k, d) <= problem.cycle_time_s
        ),
        value=lambda batches: sum(energy_j(k, d) for k, d in enumerate(batches)),
    )


def _greedy(problem, key, fits, value):
    batches = [problem.min_samples] * len(problem)
    if not all(fits(k, problem.min_samples) for k in range(len(problem))):
        return None
    heap = [(key(k, d + 1), k) for k, d in enumerate(batches) if fits(k, d + 1)]
    heapq.heapify(heap)
    for _ in range(problem.total_samples - sum(batches)):
        if not heap:
            return None
        _, k = heap[0]
        batches[k] += 1
        if fits(k, batches[k] + 1):
            heapq.heapreplace(heap, (key(k, batches[k] + 1), k))
        else:
            heapq.heappop(heap)
    return value(batches)


def answer(question, problem, epochs):
    try:
        return question(problem, epochs)
    except Infeasible:
        return None


def check(plan, problem, epochs):
    """What every plan keeps, whichever question it answers."""
    tau = np.broadcast_to(epochs, len(problem))
    np.testing.assert_array_equal(plan.epochs, tau)
    free = problem.replace(
        staleness=int(tau.max() - tau.min()), cycle_time_s=max(problem.cycle_time_s, plan.cycle_time_s)
    )
    assert violations(free, plan.epochs, plan.samples) == []
    assert plan.cycle_time_s == plan.time_s.max()
    assert plan.total_energy_j == pytest.approx(plan.energy_j.sum())


def tiny(rng, learners):
    """Round and unround costs, binding energy and data limits, few enough samples to try everything."""
    k = learners
    nice = rng.random() < 0.3
    draw = (lambda a, b: rng.choice([a, b], k)) if nice else (lambda a, b: rng.uniform(a, b, k))
    costs = Coefficients(
        draw(0.01, 0.1), draw(0, 0.05), draw(0, 0.5), draw(0, 0.1), draw(0, 0.05), draw(0, 0.2)
    )
    least = int(rng.integers(1, 3))
    return AllocationProblem(
        costs,
        float(rng.uniform(0.5, 6)),
        draw(0.5, 8) if rng.random() < 0.7 else None,
        total_samples=int(rng.integers(k * least, 26)),
        min_samples=least,
        max_samples=rng.integers(3, 20, k) if rng.random() < 0.4 else None,
    )


@pytest.mark.parametrize("learners", [1, 2, 3, 4])
def test_both_equal_brute_force(learners):
    rng = np.random.default_rng(learners)
    solved = {fastest: 0, greenest: 0}
    for trial in range(60):
        problem = tiny(rng, learners)
        epochs = int(rng.integers(1, 5)) if trial % 2 else rng.integers(1, 5, learners)
        for question, deadline in ((fastest, False), (greenest, True)):
            best, plan = brute_force(problem, epochs, deadline=deadline), answer(question, problem, epochs)
            assert (best is None) == (plan is None)
            if plan is not None:
                solved[question] += 1
                check(plan, problem, epochs)
                if question is fastest:
                    assert plan.cycle_time_s == best
                else:
                    assert plan.total_energy_j == pytest.approx(best, rel=1e-12)
    assert min(solved.values()) >= 15
    assert max(solved.values()) < 60


@pytest.mark.parametrize("kind", KINDS)
def test_both_equal_the_sample_by_sample_schedulers(kind):
    rng = np.random.default_rng(10 + KINDS.index(kind))
    solved = 0
    for trial in range(12):
        problem = random_problem(rng, int(rng.integers(2, 25)), kind, 0)
        total = max(problem.total_samples // 8, len(problem) * problem.min_samples)
        problem = problem.replace(total_samples=total)
        epochs = int(rng.integers(1, 6)) if trial % 2 else rng.integers(1, 6, len(problem))
        for question, rival in ((fastest, olar), (greenest, marin)):
            best, plan = rival(problem, epochs), answer(question, problem, epochs)
            assert (best is None) == (plan is None)
            if plan is not None:
                solved += 1
                check(plan, problem, epochs)
                if question is fastest:
                    assert plan.cycle_time_s == best
                else:
                    assert plan.total_energy_j == pytest.approx(best, rel=1e-9)
    assert solved >= (3 if kind in ("wild", "data") else 8)


def test_sixty_thousand_samples_are_not_handed_out_one_by_one():
    problem = paper_problem(0, 60, 30, 0)
    for question, rival in ((fastest, olar), (greenest, marin)):
        (plan, ours), (best, theirs) = calls(question, problem, 2), calls(rival, problem, 2)
        assert plan.samples.sum() == 60_000
        value = plan.cycle_time_s if question is fastest else plan.total_energy_j
        assert value == pytest.approx(best, rel=1e-12)
        assert theirs >= 50 * ours


def test_the_work_does_not_grow_with_the_samples():
    problem = paper_problem(0, 1e6, 30, 0, pl=False).replace(energy_limit_j=None)
    few, many = (calls(fastest, problem.replace(total_samples=d), 3)[1] for d in (6 * 10**4, 6 * 10**8))
    assert many < 3 * few


def test_the_fastest_time_is_the_smallest_float_that_works():
    for seed in range(5):
        problem = paper_problem(seed, 10, 20, 0)
        plan = fastest(problem, 3)
        assert greenest(problem.replace(cycle_time_s=plan.cycle_time_s), 3).samples.sum() == 60_000
        less = float(np.nextafter(plan.cycle_time_s, 0))
        with pytest.raises(Infeasible) as caught:
            greenest(problem.replace(cycle_time_s=less), 3)
        assert caught.value.diagnosis.cycle_time_s == plan.cycle_time_s


def test_the_problems_own_deadline_and_staleness_play_no_part():
    problem = paper_problem(1, 10, 20, 0)
    other = problem.replace(cycle_time_s=0.01, staleness=7, max_epochs=1)
    tau = np.arange(20) % 3 + 1
    assert fastest(problem, tau).cycle_time_s == fastest(other, tau).cycle_time_s


def test_greenest_fills_the_cheapest_first():
    zero = [0.0] * 3
    costs = Coefficients([1e-3] * 3, zero, zero, [0.3, 0.1, 0.2], zero, zero)
    problem = AllocationProblem(costs, 1.0, total_samples=1500, min_samples=100)
    assert greenest(problem, 1).samples.tolist() == [100, 1000, 400]
    assert greenest(problem, 1).total_energy_j == pytest.approx(0.3 * 100 + 0.1 * 1000 + 0.2 * 400)
    # Epochs per learner change who is cheap.
    assert greenest(problem, [1, 5, 1]).samples.tolist() == [400, 100, 1000]


def test_energy_limits_bind_in_fastest():
    zero = [0.0] * 2
    costs = Coefficients([1e-3, 1e-2], zero, zero, [0.01, 0.0], zero, zero)
    free = fastest(AllocationProblem(costs, 1.0, total_samples=1100), 1)
    assert free.samples.tolist() == [1000, 100]
    bound = fastest(AllocationProblem(costs, 1.0, [5.0, None], total_samples=1100), 1)
    assert bound.samples.tolist() == [500, 600]
    assert bound.cycle_time_s == 0.01 * 600


def test_infeasible_says_what_is_wrong():
    zero = [0.0] * 2
    costs = Coefficients([1e-3, 1e-3], zero, zero, [0.01, 0.01], zero, zero)
    problem = AllocationProblem(costs, 1.0, [5.0, 3.0], total_samples=900, min_samples=10)
    with pytest.raises(Infeasible, match=r"carry 800 of 900 samples.*no cycle time is long enough") as caught:
        fastest(problem, 1)
    assert caught.value.diagnosis.carried == 800
    with pytest.raises(Infeasible, match=r"1 of 2 learners cannot do the given epochs.*learner 1\)"):
        fastest(problem, [1, 31])
    late = problem.replace(energy_limit_j=None, total_samples=3000)
    with pytest.raises(
        Infeasible, match=r"carry 2,000 of 3,000.*smallest cycle time that works is 1\.5 s"
    ) as caught:
        greenest(late, 1)
    assert caught.value.diagnosis.carried == 2000
    assert greenest(late.replace(cycle_time_s=caught.value.diagnosis.cycle_time_s), 1).samples.sum() == 3000
    with pytest.raises(Infeasible, match="no cycle time is long enough") as caught:
        greenest(problem.replace(cycle_time_s=0.1), 1)
    assert caught.value.diagnosis.cycle_time_s is None


def test_where_energy_is_equal_the_last_report_comes_soonest():
    k = 10
    zero = [0.0] * k
    c2 = [1e-3 * (1 + i % 3) for i in range(k)]
    problem = AllocationProblem(
        Coefficients(c2, zero, zero, [0.01] * 9 + [0.005], zero, zero),
        1.0,
        total_samples=2000,
        min_samples=10,
    )
    plan = greenest(problem, 1)
    assert plan.samples[9] == 1000  # the cheapest is filled, all others cost the same
    others = AllocationProblem(
        problem.coefficients.take(np.arange(9)), 1.0, total_samples=1000, min_samples=10
    )
    assert plan.time_s[:9].max() == fastest(others, 1).cycle_time_s
    same = greenest(problem.replace(coefficients=Coefficients(c2, zero, zero, zero, zero, zero)), 1)
    assert same.cycle_time_s == fastest(problem, 1).cycle_time_s


def test_the_sample_by_sample_schedulers_reach_the_same_optima():
    rng = np.random.default_rng(21)
    compared = 0
    for trial in range(25):
        problem = random_problem(rng, int(rng.integers(1, 6)), KINDS[trial % len(KINDS)], 0)
        samples = int(rng.integers(len(problem) * 3, 120))
        problem = problem.replace(total_samples=samples, min_samples=3)
        tau = rng.integers(1, 4, len(problem))
        try:
            fast, green = fastest(problem, tau), greenest(problem, tau)
        except Infeasible:
            continue
        compared += 1
        assert schedulers.olar(problem, tau) == fast.cycle_time_s
        for rival in (schedulers.marin, schedulers.marco, schedulers.mc2mkp):
            assert rival(problem, tau) == pytest.approx(green.total_energy_j, rel=1e-12)
        energy_j, makespan_s = schedulers.ecmtc(problem, tau, leave_out=False)
        assert energy_j == pytest.approx(green.total_energy_j, rel=1e-12)
        assert makespan_s <= green.cycle_time_s * (1 + 1e-9)
        fewer, _ = schedulers.ecmtc(problem, tau)
        assert fewer <= energy_j * (1 + 1e-12)
        free = greenest(problem, tau, leave_out=True)
        assert free.total_energy_j == pytest.approx(fewer, rel=1e-9)
        assert free.energy_bound_j == pytest.approx(fewer, rel=1e-6)
        assert free.energy_bound_j <= fewer * (1 + 1e-12)
        assert free.samples.sum() == samples
    assert compared >= 8
