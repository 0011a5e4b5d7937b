"""The estimator of one client's costs."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_mel.cycle.estimate import Estimate
from flwr_mel.cycle.options import Estimation
from tests.search import examples

COSTS = (1e-3, 1e-4, 0.5, 1e-2, 0.0, 1.0)
SAFE, EVEN = Estimation(), Estimation(on_time=0.5)


def seconds(epochs, samples, costs=COSTS):
    return costs[0] * epochs * samples + costs[1] * samples + costs[2]


def test_declared_costs_are_planned_with_a_margin_that_shrinks_with_evidence():
    x = Estimate.declared(COSTS, SAFE)
    assert x.costs(expected=True) == COSTS
    assert x.costs()[0] > 1.2 * COSTS[0]
    for _ in range(60):
        x = x.observe(1000, 500, seconds(2, 500), SAFE)
    assert x.costs()[0] == pytest.approx(COSTS[0], rel=0.1)
    assert x.costs()[0] > COSTS[0]


def test_costs_that_differ_from_declared_ones_are_learned():
    x, rng = Estimate.declared(COSTS, EVEN), np.random.default_rng(0)
    true = (3e-3, 1e-4, 1.0)
    for _ in range(60):
        epochs, samples = int(rng.integers(1, 6)), int(rng.integers(100, 2000))
        x = x.observe(
            epochs * samples, samples, seconds(epochs, samples, true) * np.exp(rng.normal(0, 0.05)), EVEN
        )
    assert x.expected(2000, 1000) == pytest.approx(seconds(2, 1000, true), rel=0.05)
    assert x.expected(500, 100) == pytest.approx(seconds(5, 100, true), rel=0.1)


def test_without_estimation_only_misses_count():
    """Each one halves the next task, and the first reply ends that."""
    x = Estimate.declared(COSTS, None)
    assert x.costs() == COSTS
    assert x.observe(100, 100, 99.0, None).costs() == COSTS
    for misses in (1, 2, 3):
        x = x.missed()
        assert x.costs()[:3] == pytest.approx([2**misses * c for c in COSTS[:3]])
        assert x.costs(expected=True) == COSTS
        assert x.costs()[3:] == COSTS[3:]
    assert x.observe(100, 100, 99.0, None).costs() == COSTS
    for _ in range(2000):
        x = x.missed()
    assert np.isfinite(x.costs()).all()


def test_costs_are_confirmed_by_a_task_of_about_that_time():
    """A client that is much faster than it declares does not confirm its costs."""
    x, usual = Estimate.declared(COSTS, None), seconds(2, 500)
    assert [x.observe(1000, 500, f * usual, None).seen for f in (0.1, 0.6, 1.0, 10.0)] == [0, 1, 1, 1]


def test_an_outage_of_any_length_is_one_late_reply():
    x = Estimate.declared(COSTS, SAFE)
    for _ in range(20):
        x = x.observe(1000, 500, seconds(2, 500), SAFE)
    back = [x]
    for _ in range(3):
        back.append(back[-1].missed())
    widths = [y.width for y in back]
    assert widths[1] > widths[0]
    assert widths[1:] == [widths[1]] * 3
    assert back[-1].observe(1000, 500, seconds(2, 500), SAFE).misses == 0


def test_a_changed_profile_scales_what_was_learned():
    x = Estimate.declared(COSTS, SAFE)
    for epochs in (1, 5, 2):
        x = x.observe(epochs * 500, 500, 3 * seconds(epochs, 500), SAFE)
    new = (2 * COSTS[0], 3 * COSTS[1], COSTS[2] / 2, 1.0, 2.0, 3.0)
    y = x.rebased(COSTS, new)
    assert y.mean == pytest.approx((2 * x.mean[0], 3 * x.mean[1], x.mean[2] / 2))
    a = np.array([2, 3, 0.5])
    upper = np.triu_indices(3)
    assert y.spread == pytest.approx(np.array(x.spread) * np.outer(a, a)[upper])
    assert y.joules == (1.0, 2.0, 3.0)
    assert (y.noise, y.margin, y.energy, y.seen) == (x.noise, x.margin, x.energy, x.seen)
    back = y.rebased(new, COSTS)
    assert back.mean == pytest.approx(x.mean)
    assert back.spread == pytest.approx(x.spread)


def test_a_changed_profile_with_costs_that_were_not_declared_before():
    x = Estimate.declared((1e-3, 0.0, 0.0, 0.0, 0.0, 0.0), None)
    y = x.rebased((1e-3, 0.0, 0.0, 0.0, 0.0, 0.0), COSTS)
    assert y.mean == COSTS[:3]
    assert y.joules == COSTS[3:]
    # Costs of energy that are not declared any more stay.
    assert y.rebased(COSTS, (1e-3, 1e-4, 0.5, 0.0, 0.0, 0.0)).joules == COSTS[3:]


def test_what_an_exchange_takes():
    """Known after a client stopped in time; otherwise it is only a lower bound."""
    x = Estimate.declared(COSTS, None)
    assert x.exchange_s == 0.0
    for took, stopped, known in ((2.0, False, 2.0), (1.0, False, 2.0), (1.5, True, 1.5), (3.0, False, 3.0)):
        x = x.exchanged(took, stopped=stopped)
        assert x.exchange_s == known


def test_after_a_doubt_the_next_time_counts_fully():
    x = Estimate.declared(COSTS, SAFE)
    for _ in range(30):
        x = x.observe(1000, 500, seconds(2, 500), SAFE)
    for factor in (0.4, 2.0):
        took = factor * seconds(2, 500)
        sure, unsure = (y.observe(1000, 500, took, SAFE).expected(1000, 500) for y in (x, x.doubted()))
        assert unsure == pytest.approx(took, rel=0.05)
        assert abs(sure - took) > 0.3 * took
    assert x.missed().doubted().misses == 0
    assert x.doubted().costs(expected=True) == x.costs(expected=True)


def test_a_single_outlier_hardly_moves_the_expected_time_and_a_lasting_change_does():
    x = Estimate.declared(COSTS, SAFE)
    usual = seconds(2, 500)
    for _ in range(20):
        x = x.observe(1000, 500, usual, SAFE)
    once = x.observe(1000, 500, 5 * usual, SAFE)
    assert once.expected(1000, 500) < 1.1 * usual
    # It may be the truth until the next reply: the plan is that of the same task again.
    c2, c1, c0 = once.costs()[:3]
    assert 1000 * c2 + 500 * c1 + c0 == pytest.approx(5 * usual, rel=0.01)
    calm = once.observe(1000, 500, usual, SAFE)
    assert calm.costs()[0] < 1.6 * x.costs()[0]
    twice = once.observe(1000, 500, 5 * usual, SAFE)
    assert twice.expected(1000, 500) > 4 * usual


def test_the_first_task_tells_training_from_the_rest_only_if_it_is_reported():
    assert Estimate.measured(1000, 4.0, SAFE).costs()[:3] == (0.004, 0.0, 0.0)
    assert Estimate.measured(1000, 4.0, SAFE, train_s=3.0).costs()[:3] == (0.003, 0.0, 1.0)
    assert Estimate.measured(1000, 4.0, SAFE, train_s=9.0).costs()[:3] == (0.004, 0.0, 0.0)
    assert Estimate.measured(1000, 4.0, SAFE, train_s=0.0).costs()[0] > 0


def test_energy_is_learned_and_claims_are_bounded():
    x = Estimate.declared(COSTS, SAFE)
    joules = COSTS[3] * 1000 + COSTS[5]
    for _ in range(60):
        x = x.observe(1000, 500, seconds(2, 500), SAFE, joules=2 * joules)
    assert x.costs()[3] == pytest.approx(2 * COSTS[3], rel=0.05)
    for _ in range(200):
        x = x.observe(1000, 500, seconds(2, 500), SAFE, joules=0.0)
    assert x.costs()[3] == pytest.approx(COSTS[3] / 8, rel=0.05)
    silent = Estimate.measured(1000, 4.0, SAFE).observe(1000, 500, 4.0, SAFE, joules=10.0)
    assert silent.costs()[3] == pytest.approx(0.01)


@examples(15)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 1000),
            st.integers(1, 2**30),
            st.one_of(st.floats(allow_nan=True), st.floats(1e-9, 1e6)),
            st.sampled_from(["reply", "miss", "doubt"]),
        ),
        max_size=40,
    ),
    st.sampled_from([SAFE, EVEN]),
    st.booleans(),
)
def test_whatever_comes_costs_stay_usable_and_go_through_json(tasks, options, declares):
    x = Estimate.declared(COSTS, options) if declares else Estimate.measured(300, 2.0, options)
    for epochs, samples, took, what in tasks:
        if what == "reply":
            x = x.observe(epochs * samples, samples, took, options, joules=took)
        else:
            x = x.missed() if what == "miss" else x.doubted()
        assert np.isfinite(x.costs()).all()
        assert min(x.costs()) >= 0
        assert x.costs()[0] > 0
    assert Estimate.from_dict(json.loads(json.dumps(x.as_dict()))) == x


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("base", [1.0]),
        ("mean", [-1.0, 0.0, 0.0]),
        ("mean", "abc"),
        ("spread", [-1.0, 0, 0, 0, 0, 0]),
        ("noise", float("nan")),
        ("margin", 0),
        ("seen", -1),
        ("run", "x"),
        ("extra", 1),
    ],
)
def test_garbage_is_refused(field, value):
    data = Estimate.declared(COSTS, SAFE).as_dict() | {field: value}
    with pytest.raises(ValueError, match="estimate"):
        Estimate.from_dict(data)
    with pytest.raises(ValueError, match="estimate"):
        Estimate.from_dict(None)


# --- the constants: each test fails if one of them is doubled ---------------------------------------------

WORK = 1000.0


def steady(options=SAFE, tasks=60, *, off=0.1):
    """A client whose times alternate around one second."""
    x = Estimate.measured(WORK, 1.0, options)
    for k in range(tasks):
        x = x.observe(WORK, 500, 1 + off * (-1) ** k, options)
    return x


def deviation(x):
    """The standard deviation of the next time, relative to it."""
    d = np.array([WORK, 500.0, 1.0])
    p = np.zeros((3, 3))
    p[np.triu_indices(3)] = x.spread
    p = p + p.T - np.diag(p.diagonal())
    before = x.expected(WORK, 500)
    drift = 0.01**2 * np.outer(x.mean, x.mean)
    return np.sqrt(d @ (p + drift) @ d / before**2 + x.noise)


def test_declared_costs_may_be_off_by_a_fifth():
    x = Estimate.declared(COSTS, SAFE)
    assert x.margin == pytest.approx(np.exp(1.6449 * np.hypot(0.2, 0.1)), rel=1e-3)
    assert np.sqrt(x.spread[0]) == pytest.approx(0.2 * COSTS[0])


def test_a_client_without_a_profile_is_twice_as_noisy():
    assert np.sqrt(Estimate.measured(WORK, 1.0, SAFE).noise) == pytest.approx(2 * SAFE.noise)


def test_a_third_of_the_first_task_may_be_fixed_cost():
    assert np.sqrt(Estimate.measured(WORK, 2.0, SAFE).spread[5]) == pytest.approx(0.3 * 2.0, rel=0.1)


def test_a_twentieth_of_a_task_is_training():
    x = Estimate.measured(WORK, 2.0, SAFE, train_s=1e-6)
    assert x.costs()[0] * WORK == pytest.approx(0.05 * 2.0)


def test_a_drift_of_one_percent_is_followed():
    """As a Kalman filter of one random walk does, whose steady variance is known."""
    x = steady(Estimation(memory=1000), tasks=400, off=0.1)
    d = np.array([WORK, 500.0, 1.0])
    p = np.zeros((3, 3))
    p[np.triu_indices(3)] = x.spread
    p = p + p.T - np.diag(p.diagonal())
    found = d @ p @ d / x.expected(WORK, 500) ** 2
    q, r = 1e-4, x.noise
    before = (q + np.sqrt(q * q + 4 * q * r)) / 2
    assert found == pytest.approx(before * r / (before + r), rel=0.15)


def test_a_surprise_counts_for_two_and_a_half_deviations():
    x = steady()
    sd = deviation(x)
    after = [
        x.observe(WORK, 500, x.expected(WORK, 500) * (1 + z * sd), SAFE).expected(WORK, 500)
        for z in (2.3, 2.7, 9.0)
    ]
    assert after[0] < 0.999 * after[1]
    assert after[1] == pytest.approx(after[2], rel=1e-6)


def test_a_deviation_counts_as_noise_up_to_one_and_a_half():
    x = steady()
    sd = deviation(x)
    after = [x.observe(WORK, 500, x.expected(WORK, 500) * (1 + z * sd), SAFE).noise for z in (1.3, 1.7, 2.3)]
    assert after[0] < 0.999 * after[1]
    assert after[1] == pytest.approx(after[2], rel=1e-3)


@pytest.mark.parametrize("true", [0.05, 0.2])
def test_the_noise_is_learned_without_bias(true):
    rng, options = np.random.default_rng(1), Estimation(memory=200)
    x, found = Estimate.measured(WORK, 1.0, options), []
    for _ in range(3000):
        x = x.observe(WORK, 500, 1 + true * rng.normal(), options)
        found.append(x.noise)
    assert np.sqrt(np.mean(found[1000:])) == pytest.approx(true, rel=0.1)


def test_the_noise_stays_between_one_and_a_hundred_percent():
    assert np.sqrt(steady(tasks=400, off=0.0).noise) == pytest.approx(0.01)
    x = steady()
    for k in range(400):
        z = 2.3 if k % 2 else -2.3
        seconds_ = x.expected(WORK, 500) * max(1 + z * deviation(x), 1e-3)
        x = x.observe(WORK, 500, seconds_, SAFE)
        assert x.noise <= 1.0
    assert x.noise == pytest.approx(1.0, rel=0.3)


def test_a_late_task_widens_the_quantile_and_many_in_time_narrow_it():
    """One late task and nineteen in time leave it as it was: that is the promise of 95 %."""
    x = steady()
    assert x.width == 0.9
    late = x.observe(WORK, 500, 5 * x.margin * x.expected(WORK, 500), SAFE)
    assert late.width - x.width == pytest.approx(0.6 * 0.95)
    assert x.missed().width - x.width == pytest.approx(0.6)
    back = late.observe(WORK, 500, late.expected(WORK, 500), SAFE)
    assert late.width - back.width == pytest.approx(0.6 * 0.05)


def test_claims_of_energy_make_a_task_at_most_a_thousand_times_dearer():
    x = Estimate.declared(COSTS, SAFE)
    for _ in range(300):
        x = x.observe(WORK, 500, seconds(2, 500), SAFE, joules=1e9)
    assert x.costs()[3] == pytest.approx(1000 * COSTS[3], rel=0.01)


def test_times_and_energies_that_cannot_be_are_no_measurements():
    x = steady()
    assert x.observe(WORK, 500, 1.5e12, SAFE) == x
    assert x.observe(WORK, 500, 0.9e12, SAFE) != x
    y = Estimate.declared(COSTS, SAFE)
    usual = seconds(2, 500)
    assert y.observe(WORK, 500, usual, SAFE, joules=1.5e12).energy == 1.0
    assert y.observe(WORK, 500, usual, SAFE, joules=0.9e12).energy > 1.0
    assert Estimate.measured(WORK, 1e300, SAFE).expected(WORK, 500) == pytest.approx(1e12)


def test_an_outage_divides_a_task_by_a_million_at_most():
    x = Estimate.declared(COSTS, None)
    for _ in range(50):
        x = x.missed()
    assert x.costs()[0] == pytest.approx(2**20 * COSTS[0])
    assert Estimate.from_dict(x.as_dict() | {"misses": 10**6}) == x
