"""The virtual clock: how long each learner is busy, what it costs; and a check of every entry."""

from dataclasses import replace

import numpy as np
import pytest
from mel_simulation.arena.audit import audit
from mel_simulation.arena.setting import Setting
from mel_simulation.arena.world import World

SMALL = Setting("small", "Small", "digits", samples=300, learners=4, targets=(0.99,), rounds=3)


@pytest.fixture
def world():
    return World(SMALL, 0)


def test_arrivals_come_in_the_order_of_the_cost_model(world):
    jobs = [world.send(k, 1) for k in range(4)]
    order = [world.wait().job.learner for _ in range(4)]
    due = [job.due_s for job in jobs]
    assert order == list(np.argsort(due))
    assert world.now == max(due)


def test_jitter_gives_each_job_a_factor_that_no_contestant_knows():
    plain, shaken = World(SMALL, 0), World(replace(SMALL, jitter=0.2), 0)
    planned = [plain.send(k, 1) for k in range(4)]
    jobs = [shaken.send(k, 1) for k in range(4)]
    factors = [b.due_s / a.due_s for a, b in zip(planned, jobs, strict=True)]
    assert len(set(factors)) == 4
    assert all(0.8 <= factor <= 1.2 for factor in factors)
    assert [b.energy_j / a.energy_j for a, b in zip(planned, jobs, strict=True)] == pytest.approx(factors)
    assert shaken.round_s == plain.round_s
    while shaken.wait() is not None:
        pass
    assert audit(shaken.setting, 0, shaken.log, shaken.looks) == []
    assert audit(SMALL, 0, shaken.log, shaken.looks) != []


def test_a_job_begins_with_the_model_of_its_sending(world):
    first = world.model
    world.send(0, 1)
    world.publish([w + 1 for w in first])
    arrival = world.wait()
    assert arrival.job.start is first
    assert arrival.job.version == 0
    assert world.version == 1


def test_a_job_that_is_called_off_costs_its_share_and_frees_the_learner(world):
    job = world.send(3, 1)
    assert world.wait(job.due_s / 2) is None
    world.call_off(job)
    assert world.energy_j() == pytest.approx(job.energy_j / 2)
    assert world.send(3, 1).number == job.number + 1
    assert world.wait().job.learner == 3
    assert world.wait() is None  # no learner is out: the time runs up
    assert world.over


def test_the_clock_ends_at_the_horizon_and_looks_at_even_times(world):
    world.send(0, 1000)
    assert world.wait() is None
    assert world.now == world.horizon_s == pytest.approx(3 * world.round_s)
    gaps = np.diff([look.at_s for look in world.looks])
    assert np.allclose(gaps, gaps[0])


def test_a_bout_ends_when_the_last_target_is_reached():
    world = World(replace(SMALL, targets=(0.01,)), 0)
    world.send(0, 1)
    assert world.wait() is None
    assert world.over
    assert world.now == world.looks[-1].at_s


def test_the_same_seed_is_the_same_world_and_another_is_not():
    one, same, other = World(SMALL, 1), World(SMALL, 1), World(SMALL, 2)
    assert all((a == b).all() for a, b in zip(one.model, same.model, strict=True))
    assert all((a == b).all() for a, b in zip(one.parts, same.parts, strict=True))
    assert (one.costs.c0 != other.costs.c0).any()


def test_choosing_takes_own_rows_once(world):
    rows = world.choose(1, 20, 7)
    assert len(set(rows)) == 20
    assert set(rows) <= set(world.parts[1])
    assert (rows == world.choose(1, 20, 7)).all()
    assert (rows != world.choose(1, 20, 8)).any()


@pytest.fixture
def story(world):
    """Play a bout with every kind of event."""
    jobs = [world.send(k, 1) for k in range(3)]
    world.wait()
    world.publish(world.model)
    world.call_off(max(jobs, key=lambda job: job.due_s))
    world.wait()
    world.send(3, 2)
    world.wait()
    assert audit(SMALL, 0, world.log, world.looks) == []
    return world


def _first(log, what):
    return next(i for i, event in enumerate(log) if event.what == what)


@pytest.mark.parametrize(
    ("what", "change", "words"),
    [
        ("arrive", {"at_s": 0.0}, "took"),
        ("arrive", {"energy_j": 1e3}, "cost"),
        ("stop", {"energy_j": 1e3}, "cost"),
        ("send", {"epochs": 9}, "took"),
        ("send", {"version": 5}, "with model 5"),
        ("model", {"version": 7}, "model with model 7 of 1"),
    ],
)
def test_the_audit_finds_a_false_entry(story, what, change, words):
    log = list(story.log)
    i = _first(log, what)
    log[i] = replace(log[i], **change)
    assert any(words in line for line in audit(SMALL, 0, log, story.looks))


def test_the_audit_finds_two_things_at_once_and_returns_of_nothing(story):
    send = story.log[0]
    twice = [send, replace(send, job=99), *story.log[1:]]
    assert any("two things at once" in line for line in audit(SMALL, 0, twice, story.looks))
    lost = story.log[1:]
    assert any("is not out" in line for line in audit(SMALL, 0, lost, story.looks))


def test_the_audit_finds_time_that_runs_backwards_and_energy_that_does_not_add_up(story):
    log = [*story.log, replace(story.log[-1], what="model", at_s=0.0, version=2)]
    assert any("backwards" in line for line in audit(SMALL, 0, log, story.looks))
    looks = [story.looks[-1]._replace(energy_j=story.looks[-1].energy_j + 1)]
    assert any("were spent" in line for line in audit(SMALL, 0, story.log, looks))
