"""What a call takes besides training is told apart from training by tasks of unequal work."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_mel.learning import CallCost, Estimate, Learning, Observation

NOISE, DRIFT = 0.1, 0.02
SECONDS = st.floats(1e-3, 1e3)


def told(tasks, noise=NOISE):
    call = CallCost()
    for work, seconds in tasks:
        call.observe(work, seconds, noise, DRIFT)
    return call


@given(SECONDS, st.floats(1e-6, 1.0), st.integers(10, 100_000), st.floats(2.0, 20.0))
@settings(max_examples=200, deadline=None)
def test_two_amounts_of_work_tell_both(fixed, rate, work, times):
    tasks = [(w, fixed + rate * w) for w in (work, times * work) * 4]
    found = told(tasks)
    for w in (work, times * work, times * work / 2):
        assert found.fixed_s + found.rate * w == pytest.approx(fixed + rate * w, rel=0.1)


@given(SECONDS, st.integers(1, 100_000), st.integers(1, 30))
@settings(max_examples=50, deadline=None)
def test_tasks_that_are_alike_say_nothing(seconds, work, tasks):
    found = told([(work, seconds)] * tasks)
    assert found.fixed_s == pytest.approx(0.0, abs=1e-6 * seconds)
    assert found.rate == pytest.approx(seconds / work)


def test_what_was_found_stays_while_tasks_are_alike():
    found = told([(100, 1.1), (400, 1.4)] * 3)
    before = found.fixed_s
    assert before == pytest.approx(1.0, rel=0.02)
    for _ in range(1000):
        found.observe(200, 1.2, NOISE, DRIFT)
    assert found.fixed_s == pytest.approx(before, rel=0.02)


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 0.5))
@settings(max_examples=50, deadline=None)
def test_noise_makes_no_call_negative_or_free(seed, noise):
    rng = np.random.default_rng(seed)
    call = CallCost()
    for work in rng.integers(1, 1000, 40).tolist():
        seconds = (0.2 + 1e-3 * work) * math.exp(noise * rng.standard_normal())
        call.observe(work, seconds, NOISE, DRIFT)
        assert 0 <= call.fixed_s <= 0.95 * seconds
        assert min(call.variance[0], call.variance[2]) >= 0


def learner(call=True):
    start = Estimate.start((1e-3, 0, 0, 0, 0, 0), declared=False, assumed=True, learning=Learning())
    start.call = CallCost() if call else None
    return start


def test_plans_for_another_amount_of_work_are_right():
    """One epoch takes 1.1 s, four take 1.4: a rate alone would expect 0.7 or 2.8 of two."""
    x, costs = learner(), (1e-3, 0.0, 1e-3, 0.0, 0.0, 0.0)
    for epochs in (1, 4, 1, 4):
        seen = Observation(epochs, 100, train_s=1.0 + 0.1 * epochs, planned_s=1.0)
        x.observe(costs, seen, Learning(on_time=0.5), 0.5)
    expected = x.fixed_s + x.factors(0.5)[0] * 1e-3 * 200
    assert expected == pytest.approx(1.2, rel=0.03)


def test_learning_about_the_call_leaves_what_is_expected_of_the_task():
    """Else a plan for the same work would change although nothing else is known of it."""
    costs = (1e-3, 0.0, 1e-3, 0.0, 0.0, 0.0)
    with_call, without = learner(), learner(call=False)
    for _ in range(6):
        for x in (with_call, without):
            x.observe(costs, Observation(2, 100, train_s=0.5, planned_s=0.5), Learning(on_time=0.5), 0.5)
    assert with_call.fixed_s == pytest.approx(0.0, abs=1e-6)
    assert with_call.factors(0.5) == pytest.approx(without.factors(0.5))


def test_it_survives_a_checkpoint_and_old_ones_have_none():
    x = learner()
    x.observe((1e-3, 0, 1e-3, 0, 0, 0), Observation(2, 100, train_s=0.5), Learning(), 0.5)
    words = json.loads(json.dumps(x.as_dict()))
    assert Estimate.from_dict(words) == x
    del words["call"]
    assert Estimate.from_dict(words).call is None


@pytest.mark.parametrize(
    "changed", [{"variance": [1, 2]}, {"variance": [-1, 0, 1]}, {"fixed_s": -1}, {"rate": "x"}, {"more": 1}]
)
def test_nonsense_is_refused(changed):
    with pytest.raises(ValueError, match="call"):
        CallCost.from_dict({**told([(1, 1.0)]).as_dict(), **changed})
