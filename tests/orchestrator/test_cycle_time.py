"""The cycle time that nobody gave: never longer than the old round, the old work done, everybody in it."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_mel import Coefficients
from flwr_mel.orchestrator.cycle_time import Round, cycle_time_s
from flwr_mel.orchestrator.own_work import OwnWork
from flwr_mel.orchestrator.state import State
from tests.orchestrator.devices import Device, brain_of, cycle


def fleet(c2, c0=None):
    zero = np.zeros(len(c2))
    return Coefficients(c2, zero, zero if c0 is None else c0, zero, zero, zero)


def own(epochs, samples, k, *, whole=False, fixed=False):
    return Round.of([OwnWork(epochs, samples, 1.0, not fixed, not whole)] * k)


def test_the_work_of_the_slow_is_moved_to_the_fast():
    """Speeds 1, 2, 5 and 10 times apart, five epochs each: 20 n in all, which 11, 5, 2 and 1 and a bit do."""
    costs = fleet([1e-3, 2e-3, 5e-3, 1e-2])
    mine = own(5, 100, 4)
    t = cycle_time_s(costs, mine, 32, 25)
    assert t == pytest.approx(1.2)  # the old round takes 5 s
    assert mine.work(costs, t, 25).tolist() == [1200, 600, 200, 100]
    # Where all samples are always used it is the same, for one epoch of the slowest takes 1 s.
    assert cycle_time_s(costs, own(5, 100, 4, whole=True), 32, 25) == pytest.approx(1.2)
    # With one epoch to begin with that leaves nothing to shorten, but fewer samples do.
    assert cycle_time_s(costs, own(1, 100, 4, whole=True), 32, 5) == pytest.approx(1.0)
    assert cycle_time_s(costs, own(1, 100, 4), 32, 5) == pytest.approx(0.32)
    assert cycle_time_s(costs, own(1, 100, 4), 1, 5) == pytest.approx(0.3)
    # Where nothing can be told nothing changes.
    assert cycle_time_s(costs, own(5, 100, 4, whole=True, fixed=True), 32, 25) == pytest.approx(5.0)


LEARNERS = st.lists(
    st.tuples(
        st.floats(1e-6, 1.0), st.floats(0.0, 10.0), st.integers(1, 20), st.integers(1, 1000), st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)  # fmt: skip


@given(LEARNERS, st.integers(1, 64))
@settings(max_examples=200, deadline=None)
def test_never_longer_never_less_work_and_everybody_takes_part(learners, least):
    c2, c0, epochs, samples, follows_epochs, follows_samples = zip(*learners, strict=True)
    costs = fleet(list(c2), list(c0))
    works = [
        OwnWork(e, n, 1.0, a, b)
        for e, n, a, b in zip(epochs, samples, follows_epochs, follows_samples, strict=True)
    ]
    mine, most = Round.of(works), 5 * max(epochs)
    t = cycle_time_s(costs, mine, least, most)
    old = costs.time_s(mine.epochs, mine.samples)
    assert t <= old.max()
    assert mine.work(costs, t, most).sum() >= (mine.epochs * mine.samples).sum()
    assert (mine.least_time_s(costs, least) <= t).all()
    # Nothing shorter would do.
    shorter = np.nextafter(t, 0)
    assert (
        mine.work(costs, shorter, most).sum() < (mine.epochs * mine.samples).sum()
        or (mine.least_time_s(costs, least) > shorter).any()
        or t == old.max()
    )


SPEEDS = (10.0, 5.0, 2.0, 1.0)


@pytest.mark.parametrize("follows", ["both", "epochs", "samples", "nothing"])
@pytest.mark.parametrize("epochs", [1, 5])
def test_the_plan_is_what_the_rule_says(follows, epochs):
    devices = [Device(speed, epochs=epochs, follows=follows) for speed in SPEEDS]
    brain = brain_of(devices)
    first, did = cycle(brain, devices, 1)
    assert (first.status, first.makespan_s, first.total_samples) == ("free", epochs * 0.1, 400)
    assert all(row.free and row.weight == 100 for row in first.learners)
    old = first.makespan_s
    for number in range(2, 8):
        record, did = cycle(brain, devices, number)
        assert record.own_round_s == old
        assert record.cycle_time_s <= old * (1 + 1e-9)
        assert max(seconds for _, _, seconds in did.values()) <= record.cycle_time_s * (1 + 1e-9)
        assert sum(tau * d for tau, d, _ in did.values()) >= 400 * epochs
        for k, row in enumerate(record.learners):
            # What is not seen is taken for one epoch.
            epochs_seen = 1 if follows == "nothing" else did[k][0]
            assert (row.epochs, row.samples, row.weight) == (epochs_seen, did[k][1], did[k][1])
            assert (row.epochs_done or 1, row.samples_used) == (epochs_seen, did[k][1])
            # One that uses all its data in any case is not held back by having no more of them.
            assert follows != "epochs" or row.limited_by in ("time", "max_epochs")
    if follows == "nothing":
        assert [d[:2] for d in did.values()] == [(epochs, 100)] * 4
    elif epochs == 5 and follows != "samples":
        assert record.cycle_time_s < old / 4
        assert [tau for tau, _, _ in did.values()] == [12, 6, 2, 1]


def settled(devices, cycles=24):
    """Let cycles pass; return their T, what they took, and the old round's time."""
    brain = brain_of(devices)
    old = max(d.fixed_s + d.epochs * d.samples / (1000 * d.speed) for d in devices)
    times, took = [], []
    for number in range(1, cycles + 1):
        record, did = cycle(brain, devices, number)
        assert {row.learner for row in record.learners if row.weight} == {str(k) for k in range(len(devices))}
        times.append(record.cycle_time_s)
        took.append(max(seconds for _, _, seconds in did.values()))
    return times, took, old


@given(
    st.lists(
        st.tuples(st.floats(0.3, 30.0), st.integers(5, 500), st.floats(0.0, 0.5), st.floats(0.0, 2.0)),
        min_size=2,
        max_size=6,
    ),
    st.sampled_from([1, 3]),
    st.sampled_from(["both", "epochs"]),
)
@settings(max_examples=60, deadline=None)
def test_times_settle_whatever_else_a_call_takes(fleet_of, epochs, follows):
    """Loading data in every call, and warming up in the first, is no reason to swing."""
    devices = [
        Device(speed, n, epochs, fixed_s=fixed, warm_up_s=warm, follows=follows)
        for speed, n, fixed, warm in fleet_of
    ]
    times, took, old = settled(devices)
    assert max(times[12:]) <= min(times[12:]) * 1.1
    assert max(took[12:]) <= old * 1.05
    assert max(took[4:]) <= old * 1.3


@pytest.mark.parametrize("follows", ["both", "epochs"])
def test_a_fleet_whose_calls_are_mostly_no_training_settles(follows):
    """By seconds per sample alone T wandered, and climbed back to the old round."""
    fleet_of = [(16.9, 208, 0, 0), (19.8, 444, 0.458, 0), (11.3, 286, 0.477, 0), (24.9, 228, 0.365, 0.367)]
    devices = [Device(a, n, 3, fixed_s=b, warm_up_s=c, follows=follows) for a, n, b, c in fleet_of]
    times, took, old = settled(devices, 60)
    assert max(times[8:]) <= min(times[8:]) * 1.001
    assert max(took[6:]) <= times[-1] * 1.01 <= old * 0.95


def noisy_fleet(seed, follows, noise=0.1):
    """Two to six devices, a hundred times apart; half of them take a while for every call."""
    rng = np.random.default_rng(seed)
    k, epochs = int(rng.integers(2, 7)), int(rng.choice([1, 3]))
    return [
        Device(
            float(np.exp(rng.uniform(np.log(0.3), np.log(30)))),
            int(rng.integers(5, 500)),
            epochs,
            fixed_s=float(rng.uniform(0, 0.5)) if rng.random() < 0.5 else 0.0,
            follows=follows,
            noise=noise,
            rng=np.random.default_rng([seed, i]),
        )
        for i in range(k)
    ]


@pytest.mark.parametrize("follows", ["both", "epochs"])
@pytest.mark.parametrize("seed", [2, 5, 7])
def test_noise_of_ten_percent_does_not_move_the_cycle_time(seed, follows):
    """By what the last reports say alone it went up and down by a quarter to a half."""
    times, _, _ = settled(noisy_fleet(seed, follows), 40)
    assert max(times[12:]) <= min(times[12:]) * 1.2
    assert max(times[1:]) <= times[0]


@pytest.mark.parametrize(("factor", "cycles"), [(0.3, 2), (0.8, 5), (2.5, 9)])
def test_a_change_that_lasts_is_followed(factor, cycles):
    """All devices change alike, so T does, and is what their own round took at most. Slowness is believed
    at once, speed step by step."""
    devices = [Device(speed, epochs=5, noise=0.05, rng=np.random.default_rng(k)) for k, speed in
               enumerate(SPEEDS)]  # fmt: skip
    brain = brain_of(devices)
    times = [cycle(brain, devices, number)[0].cycle_time_s for number in range(1, 13)]
    for device in devices:
        device.speed *= factor
    times += [cycle(brain, devices, number)[0].cycle_time_s for number in range(13, 31)]
    before, after = np.median(times[8:12]), np.median(times[20:])
    assert max(times[1:]) <= times[0]
    assert after / before == pytest.approx(min(1 / factor, times[0] / before), rel=0.25)
    assert times[11 + cycles] == pytest.approx(after, rel=0.25)


def test_what_is_loaded_in_the_first_call_is_forgotten_in_the_third_cycle():
    """The own round is long for everybody then, and so is the second cycle, which is planned by it."""
    devices = [Device(speed, epochs=5, warm_up_s=2.0) for speed in SPEEDS]
    times, _, _ = settled(devices, 8)
    assert times[2] < times[1] / 2
    assert times[2] <= times[7] * 1.2


def test_what_the_last_cycles_asked_for_goes_on_after_a_restart():
    devices = [Device(speed, epochs=5, noise=0.1, rng=np.random.default_rng(k)) for k, speed in
               enumerate(SPEEDS)]  # fmt: skip
    brain = brain_of(devices)
    for number in range(1, 9):
        cycle(brain, devices, number)
    snapshot = json.loads(json.dumps(brain.state.snapshot()))
    assert len(snapshot["asked_s"]) == 5
    back = State.restored(snapshot)
    assert (back.asked_s, back.cycle_time_s) == (brain.state.asked_s, brain.state.cycle_time_s)
    del snapshot["asked_s"]  # of an earlier version
    assert State.restored(snapshot).asked_s == ()


def test_a_slowed_device_is_not_left_out_and_a_longer_cycle_is_not_made_for_it():
    devices = [Device(speed, epochs=5, follows="epochs") for speed in SPEEDS]
    brain = brain_of(devices)
    for number in range(1, 5):
        record, _ = cycle(brain, devices, number)
    devices[3].speed /= 20
    for number in range(5, 10):
        record, did = cycle(brain, devices, number)
        assert did[3][1] == 100
        assert record.cycle_time_s <= 0.5 * (1 + 1e-9)
    assert did[3][0] == 1


def test_given_numbers_stand_each_by_itself():
    devices = [Device(speed, epochs=5) for speed in SPEEDS]
    brain = brain_of(devices, cycle_time_s=0.3)
    assert cycle(brain, devices, 1)[0].status == "free"
    record, did = cycle(brain, devices, 2)
    assert (record.cycle_time_s, record.own_round_s) == (0.3, None)
    assert max(d[0] for d in did.values()) <= 25
    brain = brain_of(devices, total_samples=200, max_epochs=3, staleness=1, min_samples=20)
    cycle(brain, devices, 1)
    for number in (2, 3):
        record, did = cycle(brain, devices, number)
        taus, batches = zip(*(d[:2] for d in did.values()), strict=True)
        assert sum(batches) == record.total_samples == 200
        assert min(batches) >= 20
        assert max(taus) <= 3
        assert max(taus) - min(taus) <= 1
