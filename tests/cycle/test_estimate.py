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
        x = x.observe(2, 500, seconds(2, 500), SAFE)
    assert x.costs()[0] == pytest.approx(COSTS[0], rel=0.1)
    assert x.costs()[0] > COSTS[0]


def test_costs_that_differ_from_declared_ones_are_learned():
    x, rng = Estimate.declared(COSTS, EVEN), np.random.default_rng(0)
    true = (3e-3, 1e-4, 1.0)
    for _ in range(60):
        epochs, samples = int(rng.integers(1, 6)), int(rng.integers(100, 2000))
        x = x.observe(epochs, samples, seconds(epochs, samples, true) * np.exp(rng.normal(0, 0.05)), EVEN)
    assert x.expected(2, 1000) == pytest.approx(seconds(2, 1000, true), rel=0.05)
    assert x.expected(5, 100) == pytest.approx(seconds(5, 100, true), rel=0.1)


def test_without_estimation_only_misses_count():
    x = Estimate.declared(COSTS, None)
    assert x.costs() == COSTS
    assert x.observe(1, 100, 99.0, None).costs() == COSTS
    missed = x.missed(None)
    assert missed.costs()[0] > 2 * COSTS[0]
    assert missed.costs()[3:] == COSTS[3:]
    back = missed.observe(1, 100, 99.0, None).observe(1, 100, 99.0, None)
    assert back.costs() == COSTS
    for _ in range(100):
        x = x.missed(None)
    assert x.costs()[0] <= 20 * COSTS[0]
    for _ in range(20):
        x = x.rested(None)
    assert x.costs() == COSTS


def test_a_single_outlier_hardly_moves_the_expected_time_and_a_lasting_change_does():
    x = Estimate.declared(COSTS, SAFE)
    usual = seconds(2, 500)
    for _ in range(20):
        x = x.observe(2, 500, usual, SAFE)
    once = x.observe(2, 500, 5 * usual, SAFE)
    assert once.expected(2, 500) < 1.1 * usual
    assert once.costs()[0] == pytest.approx(2 * x.costs()[0], rel=0.05)
    twice = once.observe(2, 500, 5 * usual, SAFE)
    assert twice.expected(2, 500) > 4 * usual


def test_the_first_task_tells_training_from_the_rest_only_if_it_is_reported():
    assert Estimate.measured(2, 500, 4.0, SAFE).costs()[:3] == (0.004, 0.0, 0.0)
    assert Estimate.measured(2, 500, 4.0, SAFE, train_s=3.0).costs()[:3] == (0.003, 0.0, 1.0)
    assert Estimate.measured(2, 500, 4.0, SAFE, train_s=9.0).costs()[:3] == (0.004, 0.0, 0.0)
    assert Estimate.measured(2, 500, 4.0, SAFE, train_s=0.0).costs()[0] > 0


def test_energy_is_learned_and_claims_are_bounded():
    x = Estimate.declared(COSTS, SAFE)
    joules = COSTS[3] * 1000 + COSTS[5]
    for _ in range(60):
        x = x.observe(2, 500, seconds(2, 500), SAFE, joules=2 * joules)
    assert x.costs()[3] == pytest.approx(2 * COSTS[3], rel=0.05)
    for _ in range(200):
        x = x.observe(2, 500, seconds(2, 500), SAFE, joules=0.0)
    assert x.costs()[3] == pytest.approx(COSTS[3] / 8, rel=0.05)
    silent = Estimate.measured(2, 500, 4.0, SAFE).observe(2, 500, 4.0, SAFE, joules=10.0)
    assert silent.costs()[3] == pytest.approx(0.01)


@examples(15)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 1000),
            st.integers(1, 2**30),
            st.one_of(st.floats(allow_nan=True), st.floats(1e-9, 1e6)),
            st.sampled_from(["reply", "miss", "rest"]),
        ),
        max_size=40,
    ),
    st.sampled_from([SAFE, EVEN]),
    st.booleans(),
)
def test_whatever_comes_costs_stay_usable_and_go_through_json(tasks, options, declares):
    x = Estimate.declared(COSTS, options) if declares else Estimate.measured(3, 100, 2.0, options)
    for epochs, samples, took, what in tasks:
        if what == "reply":
            x = x.observe(epochs, samples, took, options, joules=took)
        else:
            x = x.missed(options) if what == "miss" else x.rested(options)
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
