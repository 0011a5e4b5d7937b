"""Sample-level DP: no task leaves the sampling rate and the steps that the learner declared."""

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_mel import wire
from flwr_mel.clientapp import Assignment, MelMod, PrivateSteps
from tests.clientapp.tools import FREE, TASK, call, classic_call, context

LIMITS = PrivateSteps(batch_size=10, sampling_rate=0.1, steps=30)


@given(
    batch=st.integers(1, 300),
    rate=st.floats(1e-4, 1),
    extra=st.integers(0, 500),
    epochs=st.integers(1, 10**6),
    samples=st.integers(1, 10**7),
)
def test_rate_and_steps_hold_for_every_task(batch, rate, extra, epochs, samples):
    least = math.ceil(round(batch / rate, 9))
    limits = PrivateSteps(batch, rate, steps=-(-least // batch) + extra)
    tau, d = limits.within(epochs, samples)
    assert 1 <= tau <= epochs
    assert batch / d <= rate * (1 + 1e-9)
    assert tau * math.ceil(d / batch) <= limits.steps
    if batch / samples <= rate and epochs * math.ceil(samples / batch) <= limits.steps:
        assert (tau, d) == (epochs, samples)  # a task within the limits stays


def test_the_task_is_cut_before_the_app_sees_it():
    seen = []

    def work(message, ctx):
        task = Assignment.from_message(message)
        seen.append((ctx.run_config["local-epochs"], task.epochs, task.samples, len(task.choose(1000))))

    ctx = context({"local-epochs": 1})
    report = call(work, {**TASK, wire.EPOCHS: 9, wire.SAMPLES: 20}, ctx, mod=MelMod(private=LIMITS))
    assert seen == [(3, 3, 100, 100)]
    assert (report[wire.EPOCHS_DONE], report[wire.SAMPLES_USED]) == (3, 100)
    metrics = classic_call(
        lambda c: c["epochs"], {**TASK, wire.EPOCHS: 9}, config={"epochs": 1}, mod=MelMod(private=LIMITS)
    )
    assert metrics[wire.EPOCHS_DONE] == 3


def test_the_server_hears_of_the_limits():
    report = call(lambda m, c: None, TASK, mod=MelMod(private=LIMITS))
    assert {k: report[k] for k in (wire.MIN_SAMPLES, wire.MAX_STEPS, wire.STEP_SAMPLES)} == {
        wire.MIN_SAMPLES: 100,
        wire.MAX_STEPS: 30,
        wire.STEP_SAMPLES: 10,
    }


def test_a_free_task_is_the_projects_own():
    seen = []
    ctx = context({"local-epochs": 50})
    call(lambda m, c: seen.append(c.run_config["local-epochs"]), FREE, ctx, mod=MelMod(private=LIMITS))
    assert seen == [50]


def test_opacus_without_a_declaration_is_told_with_the_remedy(monkeypatch):
    """Epsilon would rise with the epochs, and nobody would know."""
    assert wire.PROBLEM not in call(lambda m, c: None, TASK)
    monkeypatch.setitem(sys.modules, "opacus", sys)
    for words in (call(lambda m, c: None, FREE), classic_call(lambda c: None, TASK)):
        assert "change epsilon" in words[wire.PROBLEM]
        assert "MelMod(private=PrivateSteps(...))" in words[wire.PROBLEM]
    assert wire.PROBLEM not in call(lambda m, c: None, TASK, mod=MelMod(private=LIMITS))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((0, 0.1, 30), "batch_size must be an integer from 1"),
        ((10, 0, 30), "sampling_rate must be a finite number > 0"),
        ((10, 1.5, 30), "sampling_rate must be at most 1"),
        ((10, 0.1, 9), "steps must be at least 10, one pass over 100 samples, got 9"),
    ],
)
def test_declarations_that_cannot_be_kept_are_refused(values, text):
    with pytest.raises(ValueError, match=text):
        PrivateSteps(*values)
