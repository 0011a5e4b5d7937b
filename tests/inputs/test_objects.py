"""Objects that cannot change, inputs that are left alone, cycle times that can be typed back in."""

from fractions import Fraction

import numpy as np
import pytest

from flwr_mel import AllocationProblem, Coefficients, allocate, fastest, greenest
from flwr_mel.allocation.solution import Diagnosis, round_up
from flwr_mel.solvers import Exact
from tests.inputs.tools import INF, coefficients, complaint, device, names, problem, workload


def test_replace():
    p = problem(energy_limit_j=[5, None], max_samples=[7000, None])
    with pytest.raises(TypeError, match="no field 'cycle_time'; it has coefficients, cycle_time_s"):
        p.replace(cycle_time=5)
    same = p.replace(staleness=3)
    assert same.staleness == 3
    assert same.energy_limit_j.tolist() == [5, INF]
    assert same.max_samples.tolist() == p.max_samples.tolist()
    names(complaint(p.replace, staleness=-1), "staleness", -1)
    text = complaint(p.replace, coefficients=Coefficients(*[[1.0] * 3] * 6))
    assert "one value per learner (3), got '2 values'" in text


ARRAYS = {
    "coefficients": lambda: [getattr(coefficients(), n) for n in ("c2", "c1", "c0", "g2", "g1", "g0")],
    "problem": lambda: [problem().energy_limit_j, problem().max_samples],
    "solution": lambda: _arrays(allocate(problem(), Exact())),
    "infeasible": lambda: _arrays(allocate(problem(total_samples=10**9), Exact(), throw=False)),
    "fastest": lambda: _arrays(fastest(problem(), 2)),
    "greenest": lambda: _arrays(greenest(problem(), np.array([1, 2]))),
}


def _arrays(answer):
    return [answer.epochs, answer.samples, answer.time_s, answer.energy_j]


@pytest.mark.parametrize("what", ARRAYS)
def test_arrays_are_read_only(what):
    for array in ARRAYS[what]():
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_inputs_are_copied_and_left_alone():
    arrays = {n: np.array([1e-3, 2e-3]) for n in ("c2", "c1", "c0", "g2", "g1", "g0")}
    energy, most, epochs = np.array([50.0, 60.0]), np.array([3000, 4000]), np.array([1, 2])
    before = {n: a.copy() for n, a in arrays.items()}
    p = AllocationProblem(
        Coefficients(**arrays), 10.0, energy, total_samples=2000, max_samples=most, staleness=1
    )
    allocate(p, Exact())
    plan = fastest(p, epochs)
    greenest(p, epochs)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, before[name])
        array[:] = -1  # still ours to change, and nobody else sees it
        np.testing.assert_array_equal(getattr(p.coefficients, name), before[name])
    for array in (energy, most, epochs):
        array[:] = -1
    assert p.energy_limit_j.tolist() == [50.0, 60.0]
    assert p.max_samples.tolist() == [3000, 4000]
    assert plan.epochs.tolist() == [1, 2]


def test_equal_numbers_of_other_types_are_the_same():
    assert device(cpu_hz=np.float32(1e9), max_samples=np.int64(5)) == device(cpu_hz=10**9, max_samples=5.0)
    assert type(device(max_samples=5.0).max_samples) is int
    assert workload(features=np.int32(10), bits_per_feature=Fraction(8)) == workload()
    assert type(problem(total_samples=2000.0).total_samples) is int


@pytest.mark.parametrize("x", [1.0, 1 + 2**-52, 9.9999951, 123456.4, 1 / 3, 2e-310, 1.7e308, 5e-324])
def test_a_smallest_cycle_time_is_never_rounded_down(x):
    assert x <= float(round_up(x)) <= max(x * (1 + 1e-5), 1e-300)
    assert f"works is {round_up(x)} s" in str(Diagnosis(10, 5, x))
