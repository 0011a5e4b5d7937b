"""Learners with sample-level DP: what is planned keeps what they declare, so it is what they will do."""

import math

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from flwr_mel import wire
from flwr_mel.clientapp import PrivateSteps
from flwr_mel.orchestrator import Orchestrator, Settings
from tests.orchestrator.tools import words


def planned(limits, held=400, pace=1e-3, **options):
    """Return the tasks by learner, and the brain; limits of None: a learner without DP."""
    settings = {"cycle_time_s": 3.0, "staleness": 3, "total_samples": None} | options
    brain = Orchestrator(Settings(**settings))
    for k, limit in enumerate(limits):
        said = {wire.MAX_SAMPLES: held, wire.COEFFICIENTS[0]: pace * (1 + k)}
        brain.hear(f"n{k}", words(k, **said, **(limit.words() if limit else {})))
    plan = brain.plan(1, [f"n{k}" for k in range(len(limits))])
    return {int(task.learner): task for task in plan.tasks}, brain


def kept(task, limit):
    assert task.samples >= limit.min_samples
    assert limit.batch_size / task.samples <= limit.sampling_rate * (1 + 1e-9)
    assert task.epochs * math.ceil(task.samples / limit.batch_size) <= limit.steps
    # The learner's own guard finds nothing to cut: what is planned is what is run.
    assert limit.within(task.epochs, task.samples) == (task.epochs, task.samples)


def test_without_limits_the_plan_would_break_them():
    limit = PrivateSteps(batch_size=32, sampling_rate=0.1, steps=22)
    tasks, _ = planned([None] * 4)
    assert any(limit.within(t.epochs, t.samples) != (t.epochs, t.samples) for t in tasks.values())


@pytest.mark.parametrize("steps", [10, 20, 21, 22, 39])
def test_one_declaration_for_all(steps):
    limit = PrivateSteps(batch_size=32, sampling_rate=0.1, steps=steps)
    tasks, brain = planned([limit] * 4, total_samples=1280)
    assert tasks
    for task in tasks.values():
        kept(task, limit)
    # As many epochs as the steps allow where there is time for them.
    assert tasks[0].epochs == steps // 10
    assert not any("privacy" in note for note in brain.record.notes)


limits = st.builds(
    lambda batch, rate, extra: PrivateSteps(
        batch, rate, math.ceil(math.ceil(round(batch / rate, 9)) / batch) + extra
    ),
    st.integers(1, 64),
    st.floats(0.05, 1),
    st.integers(0, 60),
)


@effort(deadline=None)
@given(
    st.lists(st.none() | limits, min_size=1, max_size=5),
    st.integers(50, 600),
    st.sampled_from((1e-4, 1e-3, 5e-3)),
    st.sampled_from((0, 1, 5)),
    st.none() | st.integers(1, 1000),
)
def test_every_task_keeps_its_learners_limits(limits, held, pace, staleness, total):
    tasks, _ = planned(limits, held, pace, staleness=staleness, total_samples=total)
    for k, task in tasks.items():
        if limits[k] is not None:
            kept(task, limits[k])


def test_who_cannot_keep_them_is_left_out_and_the_others_work():
    """Its least batch takes more than the cycle."""
    strict = PrivateSteps(batch_size=32, sampling_rate=0.1, steps=10)
    tasks, brain = planned([None, None, strict], pace=5e-3, cycle_time_s=3.0, total_samples=300)
    assert set(tasks) == {0, 1}
    assert not brain.record.learners[2].samples
    assert "2 is left out: no task fits what its differential privacy declares" in brain.record.notes


def test_limits_that_are_no_numbers_are_refused():
    brain = Orchestrator(Settings(cycle_time_s=1.0))
    brain.hear("n0", words(0, **{wire.MIN_SAMPLES: 10, wire.MAX_STEPS: 0, wire.STEP_SAMPLES: 5}))
    assert "mel-max-steps must be an integer from 1" in str(brain.state.learners["n0"].doubt)
    brain.hear("n1", words(1, **{wire.MIN_SAMPLES: 10}))
    assert "mel-max-steps must be given" in str(brain.state.learners["n1"].doubt)
