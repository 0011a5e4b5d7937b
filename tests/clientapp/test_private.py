"""Sample-level DP: a task beyond the declared sampling rate or steps is rejected with the formula."""

import math

import numpy as np
import pytest
from flwr.common import Code, FitIns, ndarrays_to_parameters
from hypothesis import given
from hypothesis import strategies as st

from flwr_mel import wire
from flwr_mel.clientapp import MelClient, MelMod, PrivateSteps
from tests.clientapp.tools import BASELINE, TASK, Learner, call, classic_call, context
from tests.search import examples

LIMITS = PrivateSteps(batch_size=10, sampling_rate=0.1, steps=30)
MOD = MelMod(private=LIMITS)
STEPS = r"9 \* ceil\(120 / 10\) = 108 steps, at most 30.*max_epochs"


@examples(25)
@given(
    batch=st.integers(1, 300),
    rate=st.floats(1e-4, 1),
    extra=st.integers(0, 500),
    epochs=st.integers(1, 10**6),
    samples=st.integers(1, 10**7),
)
def test_a_task_passes_if_rate_and_steps_hold(batch, rate, extra, epochs, samples):
    least = math.ceil(round(batch / rate, 9))
    limits = PrivateSteps(batch, rate, steps=-(-least // batch) + extra)
    holds = samples >= least and epochs * math.ceil(samples / batch) <= limits.steps
    assert (limits.refusal(epochs, samples) is None) == holds


@pytest.mark.parametrize(
    ("epochs", "samples", "text"),
    [(9, 120, STEPS), (1, 20, r"10 / 20 is above the sampling rate 0.1.*min_samples=100")],
)
def test_a_task_beyond_the_limits_does_not_reach_the_app(epochs, samples, text):
    called = []
    words = {**TASK, wire.EPOCHS: epochs, wire.SAMPLES: samples}
    for train in (call, classic_call):
        with pytest.raises(ValueError, match=text):
            train(lambda *_: called.append(1), words, mod=MOD)
    assert not called


def test_a_client_without_a_client_app_answers_with_a_status():
    """An exception would end the process of `start_client`."""
    ins = FitIns(ndarrays_to_parameters([np.zeros(1)]), {**TASK, wire.EPOCHS: 9, wire.SAMPLES: 120})
    result = MelClient(Learner(lambda config: 1 / 0), mod=MOD).fit(ins)
    assert result.status.code != Code.OK
    assert "108 steps, at most 30" in result.status.message


def test_tasks_within_the_limits_and_baseline_tasks_pass():
    seen = []
    ctx = context({"local-epochs": 50})
    call(lambda m, c: seen.append(c.run_config["local-epochs"]), BASELINE, ctx, mod=MOD)
    words = {**TASK, wire.EPOCHS: 3, wire.SAMPLES: 100}
    call(lambda m, c: seen.append(c.run_config["local-epochs"]), words, ctx, mod=MOD)
    assert seen == [50, 3]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((0, 0.1, 30), "batch_size must be an integer from 1"),
        ((10, 0, 30), "sampling_rate must be a finite number > 0"),
        ((10, 1.5, 30), "sampling_rate must be at most 1"),
        ((10, 0.1, 9), "steps must be at least 10, one epoch on 100 samples, got 9"),
    ],
)
def test_declarations_that_cannot_be_kept_are_refused(values, text):
    with pytest.raises(ValueError, match=text):
        PrivateSteps(*values)
