"""Checks of updates, weights and metrics alone."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_mel.orchestrator import (
    RefusedUpdate,
    brief,
    check_update,
    check_weight,
    odd_metrics,
    weighted_average,
)


@pytest.mark.parametrize("claim", [math.nan, math.inf, "many", None, True, [3], 10**400, 0, -5, 2.5, 7, 99])
def test_nobody_counts_for_more_than_was_allocated(claim):
    good = {None: 7, 2.5: 7, 7: 7, 99: 7}
    if not isinstance(claim, list) and claim is not True and claim in good:
        assert check_weight(claim, 7) == good[claim]
    else:
        with pytest.raises(RefusedUpdate):
            check_weight(claim, 7)


def test_updates_must_fit_the_model():
    model = [np.zeros((2, 3), np.float32), np.zeros(2, np.int64)]
    fine = [np.ones((2, 3)), np.ones(2, np.int32)]
    assert all(a is b for a, b in zip(check_update(fine, model), fine, strict=True))
    for bad in (
        [fine[0]],
        [fine[0].T, fine[1]],
        [fine[0] * np.nan, fine[1]],
        [fine[0] * 1e300, fine[1]],
        [fine[0], fine[1].astype(float)],
    ):
        with pytest.raises(RefusedUpdate):
            check_update(bad, model)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_the_average_stays_within_the_updates(weights, seed):
    rng = np.random.default_rng(seed)
    updates = [[rng.normal(size=3).astype(np.float32), rng.integers(0, 9, 2)] for _ in weights]
    real, whole = weighted_average(updates, weights)
    assert (real.dtype, whole.dtype) == (np.float32, np.int64)
    exact = np.average([u[0].astype(float) for u in updates], axis=0, weights=weights)
    np.testing.assert_allclose(real, exact, rtol=1e-6, atol=1e-6)


def test_metrics_that_nobody_else_has():
    said = {"a": {"loss": 1.0}, "b": {"loss": 2.0, "more": 1.0}, "c": {"loss": 1.0}, "d": {"other": 1.0}}
    assert odd_metrics(said) == ({"loss"}, {"d": "its metrics do not fit the others': loss"})
    lists = {"a": {"m": [1.0, 2.0]}, "b": {"m": [1.0, 2.0]}, "c": {"m": [1.0]}}
    assert set(odd_metrics(lists)[1]) == {"c"}
    assert odd_metrics({}) == (set(), {})


def test_a_traceback_is_shortened_to_its_last_line():
    text = "<class 'X'>:<'\x1b[36mray::run()\x1b[39m\n  File ...\nValueError: no disk'>"
    assert brief(text) == "ValueError: no disk"
    assert brief("") == "no reason given"
    assert len(brief("x" * 9999)) == 300
