"""`fastest` and `greenest`: what they prefer, what they say, how much they work."""

import pytest

from flwr_mel import Infeasible, fastest, greenest
from tests.counting import calls
from tests.zoo import paper_problem, problem_of


def test_the_work_does_not_grow_with_the_samples():
    problem = paper_problem(0, 1e6, 30, 0, pl=False).replace(energy_limit_j=None)
    few, many = (calls(fastest, problem.replace(total_samples=d), 3)[1] for d in (6 * 10**4, 6 * 10**8))
    assert many < 3 * few


def test_infeasible_says_what_is_wrong():
    limits = {"energy_limit_j": [5.0, 3.0], "total_samples": 900, "min_samples": 10}
    problem = problem_of([1e-3, 1e-3], 1.0, g2=[0.01, 0.01], **limits)
    with pytest.raises(Infeasible, match=r"process 800 of 900.*no cycle time is long enough") as caught:
        fastest(problem, 1)
    assert caught.value.diagnosis.carried == 800
    with pytest.raises(Infeasible, match=r"1 of 2 learners cannot do the given epochs.*learner 1\)"):
        fastest(problem, [1, 31])
    late = problem.replace(energy_limit_j=None, total_samples=3000)
    with pytest.raises(
        Infeasible, match=r"process 2,000 of 3,000.*smallest cycle time that works is 1\.5 s"
    ) as caught:
        greenest(late, 1)
    assert caught.value.diagnosis.carried == 2000
    assert greenest(late.replace(cycle_time_s=caught.value.diagnosis.cycle_time_s), 1).samples.sum() == 3000
    with pytest.raises(Infeasible, match="no cycle time is long enough") as caught:
        greenest(problem.replace(cycle_time_s=0.1), 1)
    assert caught.value.diagnosis.cycle_time_s is None


def test_where_energy_is_equal_the_last_report_comes_soonest():
    c2, prices = [1e-3 * (1 + i % 3) for i in range(10)], [0.01] * 9 + [0.005]
    plan = greenest(problem_of(c2, 1.0, g2=prices, total_samples=2000, min_samples=10), 1)
    assert plan.samples[9] == 1000  # the cheapest is filled, all others cost the same
    others = problem_of(c2[:9], 1.0, total_samples=1000, min_samples=10)
    assert plan.time_s[:9].max() == greenest(others, 1).cycle_time_s == fastest(others, 1).cycle_time_s
