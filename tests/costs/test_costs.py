"""The cost model's numbers, against the paper's formulas written out once more by hand."""

from math import log2, log10

import numpy as np
import pytest

from flwr_mel import AllocationProblem, Channel, Coefficients, Device, Workload, paper_fleet
from flwr_mel.devices import watts
from flwr_mel.paper import PAPER_CLASSES, PAPER_LAYERS, PAPER_TX_POWER_W, draw_energy, place

WEIGHTS = 784 * 300 + 300 * 124 + 124 * 60 + 60 * 10
BIASES = 300 + 124 + 60 + 10


def paper(**changes):
    return Workload.mlp((784, 300, 124, 60, 10), **changes)


@pytest.mark.parametrize(
    ("layers", "weights", "biases"),
    [(PAPER_LAYERS, WEIGHTS, BIASES), ((3, 2), 6, 2), ((1, 1), 1, 1), ((4, 5, 6), 50, 11)],
)
def test_networks(layers, weights, biases):
    job = Workload.mlp(layers)
    assert job.model_parameters == weights
    assert job.operations_per_sample == 4 * (weights + biases)
    assert job.features == layers[0]
    assert Workload.mlp(np.array(layers)) == job


def by_hand(device, *, f=784, p_d=8, p_m=32, s_m=WEIGHTS, s_d=0.0, c_m=4 * (WEIGHTS + BIASES)):
    """C2, C1, C0, G2, G1, G0 as in section II of the paper; F P_d is 0 in FL."""
    rate, power = device["rate_bps"], device["tx_power_w"]
    return (
        c_m / device["cpu_hz"],
        (f * p_d + 2 * p_m * s_d) / rate,
        2 * p_m * s_m / rate,
        1e-28 * device["cpu_hz"] ** 2 * c_m,
        power * p_m * s_d / rate,
        power * p_m * s_m / rate,
    )


DEVICES = [
    {"cpu_hz": 6.0e9, "rate_bps": 40e6, "tx_power_w": 0.2},
    {"cpu_hz": 2.4e9, "rate_bps": 22e6, "tx_power_w": 0.1},
    {"cpu_hz": 0.7e9, "rate_bps": 5e6, "tx_power_w": 0.0},
]
SIX = ("c2", "c1", "c0", "g2", "g1", "g0")


PER_SAMPLE = {"model_parameters": 1000, "operations_per_sample": 5000, "features": 20}


@pytest.mark.parametrize(
    ("workload", "sample_bits", "terms"),
    [
        (paper(), 6272, {}),
        (paper(ship_data=False), 0, {"f": 0}),
        (paper(bits_per_feature=16, bits_per_parameter=64), 12_544, {"p_d": 16, "p_m": 64}),
        (paper(data_compression=0.5), 3136, {"p_d": 4}),
        (Workload(**PER_SAMPLE, parameters_per_sample=3.5), 160, {"f": 20, "s_d": 3.5}),
        (Workload(**PER_SAMPLE, parameters_per_sample=3.5, ship_data=False), 0, {"f": 0, "s_d": 3.5}),
    ],
)
def test_the_six_coefficients(workload, sample_bits, terms):
    """Parallelized and federated learning, precision, compression, parameters per sample."""
    assert workload.sample_bits == sample_bits
    if workload.model_parameters == 1000:
        terms = {"s_m": 1000, "c_m": 5000} | terms
    got = Coefficients.from_devices([Device(**d) for d in DEVICES], workload)
    for k, device in enumerate(DEVICES):
        for name, expected in zip(SIX, by_hand(device, **terms), strict=True):
            assert getattr(got, name)[k] == pytest.approx(expected, rel=1e-14), name


def test_energy_per_operation():
    assert Device(2.4e9, 1e6, 0.2).joules_per_operation == pytest.approx(1e-28 * 2.4e9**2)
    assert Device(1e9, 1e6, 0.2, capacitance=1e-11, exponent=0).joules_per_operation == 1e-11
    # The reading of the default in GHz: 1e-10 f^2.
    assert Device(3e9, 1e6, 0.2).joules_per_operation == pytest.approx(1e-10 * 3**2)


def test_time_and_energy():
    costs = Coefficients([2.0, 3.0], [0.5, 0.25], [7.0, 9.0], [0.2, 0.3], [0.05, 0.1], [1.0, 2.0])
    assert len(costs) == 2
    np.testing.assert_allclose(costs.time_s([4, 0], [10, 0]), [2.0 * 40 + 0.5 * 10 + 7.0, 0.0])
    np.testing.assert_allclose(costs.energy_j([4, 2], [10, 5]), [0.2 * 40 + 0.5 + 1.0, 0.3 * 10 + 0.5 + 2.0])
    assert costs.take([1]).time_s([1], [1])[0] == 3.0 + 0.25 + 9.0


def test_the_channel():
    channel = Channel()
    assert channel.attenuation_db(1000) == 128
    assert channel.attenuation_db(100) == pytest.approx(128 - 37.1)
    assert watts(23) == pytest.approx(0.19952623)
    assert watts(30) == 1.0
    for metres, power in ((1, 0.2), (50, 0.2), (500, 0.2), (500, 0.01), (2000, 1.0)):
        gain = 10 ** (-(128 + 37.1 * log10(metres / 1000)) / 10)
        noise = 10 ** (-174 / 10) / 1000 * 5e6
        assert channel.rate_bps(metres, power) == pytest.approx(5e6 * log2(1 + power * gain / noise))
    assert channel.rate_bps(100, 0.2) > channel.rate_bps(400, 0.2)
    wide = Channel(bandwidth_hz=10e6)
    assert channel.rate_bps(400, 0.2) < wide.rate_bps(400, 0.2) < 2 * channel.rate_bps(400, 0.2)


def test_the_papers_fleet():
    channel = Channel()
    fleet = paper_fleet(np.random.default_rng(3), 20)
    clocks = [d.cpu_hz for d in fleet]
    assert {clocks.count(f) for f in (6.0e9, 2.4e9, 1.4e9, 0.7e9)} == {5}
    odd = [d.cpu_hz for d in paper_fleet(np.random.default_rng(0), 7)]
    assert sorted(map(odd.count, PAPER_CLASSES.values())) == [1, 2, 2, 2]
    assert len({d.name for d in fleet}) == 20
    assert all(d.tx_power_w == PAPER_TX_POWER_W == watts(23) for d in fleet)
    assert all(7.5 <= d.energy_limit_j <= 12.5 for d in fleet)
    assert all(d.max_samples is None for d in fleet)
    assert all(d.rate_bps >= channel.rate_bps(500, d.tx_power_w) for d in fleet)
    near = paper_fleet(np.random.default_rng(3), 20, radius_m=50)
    assert all(d.rate_bps >= channel.rate_bps(50, d.tx_power_w) for d in near)
    assert all(d.energy_limit_j is None for d in paper_fleet(np.random.default_rng(3), energy_j=None))


def test_places_are_uniform_in_the_disc():
    far = place(np.random.default_rng(0), 20_000, 500)
    assert far.min() >= 1
    assert far.max() <= 500
    # Half of the disc's area lies within 1/sqrt(2) of its radius.
    assert np.mean(far <= 500 / np.sqrt(2)) == pytest.approx(0.5, abs=0.02)


def test_energy_limits_spread_to_both_sides():
    limits = draw_energy(np.random.default_rng(0), 20_000, 20.0, 2.5)
    assert limits.min() >= 17.5
    assert limits.max() <= 22.5
    assert limits.mean() == pytest.approx(20, abs=0.05)
    assert np.std(limits) == pytest.approx(2.5 / np.sqrt(3), rel=0.02)


def test_a_problem_from_devices_has_their_limits():
    fleet = [Device(1e9, 1e6, 0.2, energy_limit_j=5.0, max_samples=70), Device(2e9, 1e6, 0.2)]
    job = Workload.mlp((4, 3))
    problem = AllocationProblem.from_devices(fleet, job, cycle_time_s=3.0, total_samples=90, max_epochs=8)
    assert problem.energy_limit_j.tolist() == [5.0, np.inf]
    assert problem.max_samples.tolist() == [70, 2**40]
    assert (problem.staleness, problem.min_samples, problem.max_epochs) == (0, 1, 8)
    np.testing.assert_array_equal(problem.coefficients.c2, Coefficients.from_devices(fleet, job).c2)
