"""Devices, jobs, channels and fleets that are refused."""

import numpy as np
import pytest

from flwr_mel import Channel, Coefficients, Workload, paper_fleet
from flwr_mel.devices import watts
from tests.inputs.tools import NOT_COUNTS, NOT_FINITE, NOT_NUMBERS, complaint, device, names, workload


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"bits_per_parameter": 1e308}, "model_parameters * bits_per_parameter"),
        ({"bits_per_parameter": 10**307}, "model_parameters * bits_per_parameter"),
        ({"parameters_per_sample": 1e308}, "parameters_per_sample * bits_per_parameter"),
        ({"bits_per_feature": 1e308}, "features * bits_per_feature * data_compression"),
    ],
)
def test_a_workload_that_overflows(changes, field):
    text = complaint(workload, **changes)
    assert text.startswith(field)
    assert text.endswith("got inf")


@pytest.mark.parametrize(
    ("changes", "job", "field"),
    [
        ({"cpu_hz": 5e-324}, {}, "c2"),
        ({"cpu_hz": 1e300, "exponent": 0}, {"operations_per_sample": 1e-300}, "c2"),  # underflows to 0
        ({"rate_bps": 5e-324}, {}, "c1"),
        ({"rate_bps": 1e-300}, {"ship_data": False, "bits_per_parameter": 1e10}, "c0"),
        ({"capacitance": 1e280}, {"operations_per_sample": 1e300}, "g2"),
        ({"tx_power_w": 1e308}, {"bits_per_parameter": 1e100}, "g0"),
    ],
)
def test_devices_whose_costs_overflow(changes, job, field):
    assert complaint(Coefficients.from_devices, [device(**changes)], workload(**job)).startswith(
        f"{field}[0]"
    )


@pytest.mark.parametrize(
    "layers", [None, 5, "784", {784, 10}, (), (784,), (784, 0), (7.5, 1), (True, 1), (2**41, 1)]
)
def test_layers(layers):
    assert complaint(Workload.mlp, layers).startswith("layers")


@pytest.mark.parametrize(
    ("build", "field", "wrong"),
    [
        (workload, "ship_data", [1, 0, None, "yes", np.True_]),
        (device, "name", [5, None, b"x", ["x"]]),
        (Channel, "noise_dbm_per_hz", [1e6, -1e6, 3080]),
    ],
)
def test_what_a_field_does_not_take(build, field, wrong):
    for bad in wrong:
        names(complaint(build, **{field: bad}), field, bad)


def test_channel():
    channel = Channel()
    for bad in [*NOT_FINITE, *NOT_NUMBERS, 0, -5]:
        names(complaint(channel.rate_bps, bad, 0.2), "distance_m", bad)
        names(complaint(channel.rate_bps, 100, bad), "tx_power_w", bad)
    for distance in (1e99, 1e-90, 5e-324):  # nothing arrives; beyond every float
        assert complaint(channel.rate_bps, distance, 0.2).startswith("distance_m must be such that the rate")
    names(complaint(watts, 1e9), "dbm", 1e9)
    assert watts(-1e9) == 0.0


@pytest.mark.parametrize(
    ("argument", "field", "wrong"),
    [
        ("learners", "learners", [0, *NOT_COUNTS, *NOT_NUMBERS]),
        ("radius_m", "radius_m", [0, 1, *NOT_FINITE, *NOT_NUMBERS]),
        ("energy_j", "mean_j", [0, -1, *NOT_FINITE, *(x for x in NOT_NUMBERS if x is not None)]),
        ("energy_spread_j", "spread_j", [-1, 10.0, *NOT_FINITE, *NOT_NUMBERS]),
    ],
)
def test_the_paper_fleet(argument, field, wrong):
    for bad in wrong:
        names(complaint(paper_fleet, np.random.default_rng(0), **{argument: bad}), field, bad)
