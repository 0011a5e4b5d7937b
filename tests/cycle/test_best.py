"""T = "best" with learned costs: small first tasks, and the time between rounds."""

import numpy as np
import pytest

from flwr_mel.cycle.state import State
from flwr_mel.records import Outcome
from flwr_mel.solvers.rate import LEAST, Rate
from tests.cycle.tools import App, Run

SPEEDS = (1, 2, 5, 10)


def trained(rounds, pause_s=0.0, apps=None, start_s=0.0):
    apps = apps or [App(held=1000, pace=1e-3 * s, own=2, start_s=start_s) for s in SPEEDS]
    run = Run(apps, cycle_time_s="best")
    for _ in range(rounds):
        run.round()
        run.state = run.state.paused(pause_s)
    return run


def worth(time_s, pause_s):
    """Progress per second of the real round, by the costs that the clients have."""
    paces = 1e-3 * np.array(SPEEDS)
    samples = np.minimum(np.floor((time_s - 0.01) / paces), 256).sum()
    return Rate().value(float(samples), 1.0, time_s + pause_s, 0.0)


def test_clients_without_a_profile_are_measured_with_a_small_task():
    """The project's own work would take 20 s here, and one step of the server's optimizer."""
    run = trained(1)
    assert [(row.epochs, row.samples, row.baseline) for row in run.records[0].learners] == [
        (1, LEAST, False)
    ] * len(SPEEDS)
    assert run.records[0].waited_s < 0.2
    assert all(row.outcome is Outcome.USED for row in run.records[0].learners)


@pytest.mark.parametrize("start_s", [0.0, 30.0])
@pytest.mark.parametrize("pause_s", [0.0, 0.1, 1.0, 10.0])
def test_rounds_are_as_long_as_pays_with_the_time_between_them(pause_s, start_s):
    run = trained(12, pause_s, start_s=start_s)
    time_s = run.records[-1].cycle_time_s
    shortest = 0.01 + LEAST * 1e-3 * max(SPEEDS)
    best = max(worth(t, pause_s) for t in np.geomspace(shortest, 3.0, 2000))
    assert worth(time_s, pause_s) >= 0.97 * best
    assert all(row.samples >= LEAST for row in run.records[-1].learners)


@pytest.mark.parametrize("fixed_s", [0.15, 0.5])
def test_a_large_fixed_cost_does_not_look_like_the_same_work_for_every_task(fixed_s):
    apps = [App(held=1000, pace=1e-3 * s, own=2, fixed_s=fixed_s, start_s=0.05) for s in SPEEDS]
    run = trained(12, apps=apps)
    assert not any(run.learner(k).behaviour.own_tasks for k in range(len(SPEEDS)))
    assert all(row.samples >= LEAST for row in run.records[-1].learners)


def test_an_app_that_draws_the_same_samples_for_every_task_does_its_own_work():
    """Its loader counts them."""
    apps = [App(held=1000, pace=1e-3 * s, own=2, loader=True, max_steps=20) for s in SPEEDS]
    run = trained(8, apps=apps)
    assert all(row.baseline for record in run.records[2:4] for row in record.learners)
    assert all("counted" in note for record in run.records for note in record.notes[-1:] if record.cycle > 2)


def test_one_pause_that_loads_or_saves_does_not_count():
    state = State()
    for seconds in (60.0, 0.5, 0.5, 90.0, 0.4):
        state = state.paused(seconds)
    assert state.pause_s == 0.5


def test_an_app_that_uses_all_its_samples_gets_a_derived_time():
    apps = [App(held=1000, pace=1e-3 * s, own=2, chooses=False) for s in SPEEDS]
    run = Run(apps, cycle_time_s="best")
    run.rounds(6)
    for record in run.records[1:]:
        assert record.cycle_time_s == pytest.approx(10.01, rel=0.1)  # one epoch of the slowest client
        assert all(row.outcome is Outcome.USED and row.samples == 1000 for row in record.learners)
