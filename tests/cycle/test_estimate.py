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
