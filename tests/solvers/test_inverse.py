"""`fastest` and `greenest` against schedulers of other authors, which place one sample after the other."""

import numpy as np
import pytest

from flwr_mel import AllocationProblem, Coefficients, Infeasible, fastest, greenest
from flwr_mel.allocation.allocate import violations
from tests.counting import calls
from tests.solvers import schedulers
from tests.zoo import KINDS, paper_problem, random_problem


def check(plan, problem, tau):
    """What every plan keeps, whichever question it answers."""
    np.testing.assert_array_equal(plan.epochs, tau)
    free = problem.replace(
        staleness=int(np.ptp(tau)), cycle_time_s=max(problem.cycle_time_s, plan.cycle_time_s)
    )
    assert violations(free, plan.epochs, plan.samples) == []
    assert plan.cycle_time_s == plan.time_s.max()
    assert plan.total_energy_j == pytest.approx(plan.energy_j.sum())


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
    for trial in range(60):
        problem = random_problem(rng, int(rng.integers(1, 6)), KINDS[trial % len(KINDS)], 0)
        samples = int(rng.integers(len(problem) * 3, 120))
        problem = problem.replace(total_samples=samples, min_samples=3)
        tau = rng.integers(1, 4, len(problem))
        try:
            fast, green = fastest(problem, tau), greenest(problem, tau)
        except Infeasible:
            continue
        compared += 1
        check(fast, problem, tau)
        check(green, problem, tau)
        assert schedulers.olar(problem, tau) == fast.cycle_time_s
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
    assert compared >= 20
