"""Bad input: always an InputError that names the field, the rule and the value, before any work is done."""

import pickle

import numpy as np
import pytest

from flwr_mel import (
    AllocationProblem,
    Channel,
    Coefficients,
    allocate,
    fastest,
    greenest,
    paper_fleet,
    scheme,
)
from flwr_mel.solvers import Exact
from tests.inputs.tools import (
    INF,
    NAN,
    NOT_COUNTS,
    NOT_FINITE,
    NOT_NUMBERS,
    coefficients,
    complaint,
    device,
    names,
    problem,
    workload,
)

NUMBERS = [  # build, field, too small, None allowed
    (device, "cpu_hz", [0, -1.0], False),
    (device, "rate_bps", [0, 0.0, -1], False),
    (device, "tx_power_w", [-0.1], False),
    (device, "energy_limit_j", [0, -1], True),
    (device, "capacitance", [-1e-28], False),
    (device, "exponent", [-1], False),
    (workload, "operations_per_sample", [0, -4], False),
    (workload, "bits_per_feature", [0, -8], False),
    (workload, "bits_per_parameter", [0, -32], False),
    (workload, "parameters_per_sample", [-1], False),
    (workload, "data_compression", [0, -1], False),
    (Channel, "bandwidth_hz", [0, -5e6], False),
    (Channel, "noise_dbm_per_hz", [], False),
    (Channel, "loss_at_1km_db", [], False),
    (Channel, "loss_per_decade_db", [-1], False),
    (problem, "cycle_time_s", [0, -10], False),
]
COUNTS = [
    (device, "max_samples", [-1], True),
    (workload, "model_parameters", [0], False),
    (workload, "features", [0], False),
    (problem, "total_samples", [0], False),
    (problem, "staleness", [-1], True),
    (problem, "min_samples", [0], False),
    (problem, "max_epochs", [0], True),
]


def table(rows, wrong):
    for build, field, small, optional in rows:
        for value in [*wrong, *NOT_NUMBERS, *small]:
            if not (optional and value is None):
                yield pytest.param(build, field, value, id=f"{build.__name__}-{field}-{type(value).__name__}")


@pytest.mark.parametrize(
    ("build", "field", "value"), [*table(NUMBERS, NOT_FINITE), *table(COUNTS, NOT_COUNTS)]
)
def test_a_single_value(build, field, value):
    names(complaint(build, **{field: value}), field, value)


@pytest.mark.parametrize("field", ["c2", "c1", "c0", "g2", "g1", "g0"])
def test_coefficients(field):
    low = [-1e-9, -INF] + ([0, 0.0] if field == "c2" else [])
    for bad in [*NOT_FINITE, *NOT_NUMBERS, *low]:
        text = complaint(coefficients, **{field: [1.0, bad]})
        names(text, field, bad)
        assert text.startswith(f"{field}[1] must be")
    for bad in [-1.0, NAN, INF, -INF]:
        assert complaint(coefficients, **{field: np.array([1.0, bad])}).startswith(f"{field}[1] must be")
    for bad in [None, 5, "12", {1.0, 2.0}, {"a": 1}, iter([1.0, 2.0])]:
        names(complaint(coefficients, **{field: bad}), field, bad)
    assert "one-dimensional" in complaint(coefficients, **{field: np.ones((2, 1))})
    for bad in [np.array([True, True]), np.array([2j, 2j]), np.array(["2", "2"]), np.array([1, None])]:
        names(complaint(coefficients, **{field: bad}), field, bad[1])
    if field != "c2":
        for bad in [[1.0], [1.0] * 3, np.ones(3), []]:
            text = complaint(coefficients, **{field: bad})
            assert text == f"{field} must be one value per learner (2), got '{len(bad)} values'"


def test_an_empty_fleet():
    assert "empty fleet" in complaint(Coefficients, [], [], [], [], [], [])
    text = complaint(AllocationProblem.from_devices, [], workload(), cycle_time_s=1, total_samples=1)
    assert text == "devices must be at least one device, got an empty fleet"


@pytest.mark.parametrize("bad", [None, 5, "phone", {"cpu_hz": 1}, object(), iter([])])
def test_wrong_types_in_place_of_objects(bad):
    names(complaint(Coefficients.from_devices, bad, workload()), "devices", bad)
    names(complaint(Coefficients.from_devices, [device(), bad], workload()), "devices", bad)
    names(complaint(Coefficients.from_devices, [device()], bad), "workload", bad)
    names(complaint(problem, coefficients=bad), "coefficients", bad)
    names(complaint(allocate, bad, Exact()), "problem", bad)
    names(complaint(fastest, bad, 1), "problem", bad)
    names(complaint(greenest, bad, 1), "problem", bad)
    names(complaint(paper_fleet, bad), "rng", bad)
    if bad is not None:
        names(complaint(allocate, problem(), bad), "solver", bad)
        names(complaint(paper_fleet, np.random.default_rng(0), channel=bad), "channel", bad)
        names(complaint(scheme, "ha-asyn", solver=bad), "solver", bad)


def test_a_class_is_not_a_solver():
    assert "such as Exact()" in complaint(allocate, problem(), Exact)
    assert "such as Exact()" in complaint(scheme, "ha-sync", solver=Exact)


ENERGY = [*(x for x in NOT_FINITE if x != INF), *(x for x in NOT_NUMBERS if x is not None), 0, -1.0]
SAMPLES = [*NOT_COUNTS, *(x for x in NOT_NUMBERS if x is not None)]


@pytest.mark.parametrize(("field", "wrong"), [("energy_limit_j", ENERGY), ("max_samples", SAMPLES)])
def test_limits_per_learner(field, wrong):
    for bad in wrong:
        names(complaint(problem, **{field: [None, bad]}), field, bad)
        if np.isscalar(bad):
            names(complaint(problem, **{field: bad}), field, bad)
    for bad in [[5], [5] * 3, np.full(3, 5), [], (None,), np.array([None, 5, 5])]:
        assert "one value per learner (2)" in complaint(problem, **{field: bad})
    for bad in [np.array(5), np.array(None), np.full((2, 2), 5), np.array([[None], [5]])]:
        assert "one-dimensional" in complaint(problem, **{field: bad})
    for bad in [{5, 6}, {0: 5, 1: 5}, object(), iter([5, 5])]:
        names(complaint(problem, **{field: bad}), field, bad)
    for good in [None, 5, [5, None], (5, 5.0), np.array([5, 6]), np.array([5, None], dtype=object)]:
        assert len(getattr(problem(**{field: good}), field)) == 2


def test_values_that_contradict_each_other():
    text = complaint(problem, total_samples=99, min_samples=100)
    assert text.startswith("total_samples must be at least min_samples = 100, got 99.")
    assert "finite" in complaint(device, exponent=1000)
    text = complaint(problem, cycle_time_s=1e300)
    assert "2**53" in text
    assert "1e+300" in text


@pytest.mark.parametrize("value", [0, object()])
def test_an_error_may_travel_between_processes(value):
    with pytest.raises(ValueError, match="total_samples") as caught:
        problem(total_samples=value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
