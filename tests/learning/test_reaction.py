"""Quick to react, slow to trust: what a device that slows down, comes back or boasts is given next."""

from itertools import pairwise

import numpy as np
import pytest

from flwr_mel import wire
from flwr_mel.learning import Estimate, Learning, Observation
from flwr_mel.orchestrator import Orchestrator, Returned, Settings
from flwr_mel.records import Outcome

#: Of the true device: seconds per sample and epoch, and per cycle.
TRUE, OVERHEAD, T = 1e-3, 9.0, 60.0
HONEST = (1.1 * TRUE, 11.0)


def fleet(claims, held=3000, **options):
    """Build a brain as the deployed app has it, with devices that claim these costs."""
    defaults = {"cycle_time_s": T, "learning": Learning(), "stragglers": "span"}
    brain = Orchestrator(Settings(**(defaults | options)))
    brain.strangers([f"n{k}" for k in range(len(claims))])
    for k, (c2, c0) in enumerate(claims):
        costs = dict(zip(wire.COEFFICIENTS, (c2, 0.0, c0, 0.0, 0.0, 0.0), strict=True))
        brain.hear(f"n{k}", {wire.LEARNER: str(k), wire.MAX_SAMPLES: held, **costs})
    return brain


def cycle(brain, number, speed=lambda number, k: 1.0, late_after=None):
    """Let devices work at their true speeds, times `speed`; return the rows by device."""
    nodes, rng = list(brain.state.learners), np.random.default_rng([7, number])
    plan = brain.plan(number, nodes)
    used, failed, reports, trips = {}, {}, {}, {}
    for task in plan.tasks:
        k = int(task.node[1:])
        seconds = TRUE * speed(number, k) * np.exp(rng.normal(0, 0.05)) * task.epochs * task.samples
        trip = seconds + OVERHEAD + rng.uniform(-1, 1)
        if late_after is not None and trip > late_after:
            failed[task.node] = (Outcome.LATE, "no reply in time")
            continue
        used[task.node], reports[task.node] = task.samples, {wire.TRAIN_SECONDS: seconds}
        trips[task.node] = trip
    brain.settle(Returned(used, failed, reports, trips))
    rows = {int(row.node[1:]): row for row in brain.record.learners}
    brain.close()
    return rows


def work(row):
    return row.epochs * row.samples


def slowed(number, k, by=8.0, since=5, until=9):
    return by if k == 0 and since <= number <= until else 1.0


CASES = {
    "own data": {},
    "a total": {"total_samples": 8000},
    "keep": {"total_samples": 8000, "stragglers": "keep"},
    "exclude": {"total_samples": 8000, "stragglers": "exclude"},
}


@pytest.mark.parametrize("case", CASES)
def test_a_slowed_device_gets_less_in_the_very_next_cycle_and_grows_step_by_step(case):
    brain = fleet([HONEST] * 4, **CASES[case])
    rows = {n: cycle(brain, n, slowed) for n in range(1, 18)}
    done = {n: work(row[0]) for n, row in rows.items()}
    # Slowed in cycle 5, it was given as much again, or more, in cycle 6.
    assert done[6] < done[5] / 4
    # While it is slow it is never given more than it can do in time, and never left out.
    assert all(0 < done[n] < done[5] / 4 for n in range(6, 11))
    assert all(rows[n][0].round_trip_s <= 1.15 * T for n in range(6, 10))
    # Quick again from cycle 10 on: no step is more than about the double, and it gets there.
    for n in range(10, 15):
        assert done[n + 1] <= 2.5 * done[n], n
    assert done[17] > 0.75 * done[5]
    samples = {n: row[0].samples / sum(r.samples for r in row.values()) for n, row in rows.items()}
    assert max(samples[n] for n in (10, 11, 12)) < 0.12
    # The others are not disturbed.
    assert all(work(rows[n][k]) > 0.8 * done[4] for n in range(4, 18) for k in (1, 2, 3))


def test_who_is_late_gets_less_at_once_and_is_not_left_out():
    brain = fleet([HONEST] * 4, enforce_deadline=True, total_samples=8000)
    rows = {n: cycle(brain, n, slowed, late_after=1.25 * T) for n in range(1, 20)}
    done = {n: work(row[0]) for n, row in rows.items()}
    assert rows[5][0].outcome is Outcome.LATE
    assert done[6] < done[5] / 2
    for n in range(5, 9):
        if rows[n][0].outcome is Outcome.LATE:
            assert done[n + 1] < done[n] / 2
    assert 0 not in [done[n] for n in range(6, 12)]
    assert done[19] > 0.6 * done[4]


def test_a_single_spike_is_over_soon():
    brain = fleet([HONEST] * 4)
    done = {n: work(cycle(brain, n, lambda n, k: slowed(n, k, 4.0, 8, 8))[0]) for n in range(1, 13)}
    assert done[9] < done[8] / 2
    assert done[12] > 0.8 * done[8]


@pytest.mark.parametrize("wrong", [(1, 0.05, 20), (20, 1, 20), (1, 1 / 43, 4), (0.02, 0.02, 1)])
@pytest.mark.parametrize("policy", ["span", "keep"])
def test_equal_devices_with_fragile_timing_come_to_equal_parts(wrong, policy):
    """By their own timing three equal devices had 9,605, 720 and 9,675 samples, or 1, 19,998 and 1."""
    claims = [(factor * HONEST[0], HONEST[1]) for factor in wrong]
    brain = fleet(claims, held=20_000, total_samples=20_000, stragglers=policy)
    rows = {n: cycle(brain, n) for n in range(1, 9)}
    for n in range(5, 9):
        parts = [row.samples for row in rows[n].values()]
        assert max(parts) < 1.6 * min(parts), (n, parts)
        assert all(work(row) > 25_000 for row in rows[n].values())


def test_a_newcomers_word_counts_for_twice_the_middle_ones_and_its_work_for_more():
    """One that really is eight times as fast, and has eight times the data, is there after a few cycles."""
    brain = fleet([HONEST] * 5)
    costs = dict(zip(wire.COEFFICIENTS, (HONEST[0] / 8, 0.0, 11.0, 0.0, 0.0, 0.0), strict=True))
    brain.strangers([f"n{k}" for k in range(6)])
    brain.hear("n5", {wire.LEARNER: "5", wire.MAX_SAMPLES: 24_000, **costs})
    parts = []
    for n in range(1, 7):
        rows = cycle(brain, n, lambda _, k: 1 / 8 if k == 5 else 1.0)
        parts.append(rows[5].samples / rows[0].samples)
    assert parts[0] <= 2
    assert all(after <= 2.2 * before for before, after in pairwise(parts))
    assert parts[-1] > 6


def test_a_liar_of_endless_speed_and_data_gets_no_more_than_its_bounds():
    """It claimed 1,000,000 samples and c2 = 1e-8, and had 98 % of the samples in the first cycle."""
    for options in ({}, {"total_samples": 12_000}, {"total_samples": 12_000, "stragglers": "keep"}):
        brain = fleet([HONEST] * 4, **options)
        costs = dict(zip(wire.COEFFICIENTS, (1e-8, 0.0, 0.0, 0.0, 0.0, 0.0), strict=True))
        brain.strangers([f"n{k}" for k in range(5)])
        brain.hear("n4", {wire.LEARNER: "4", wire.MAX_SAMPLES: 10**6, **costs})
        rows = cycle(brain, 1, lambda _, k: 1e-9 if k == 4 else 1.0)
        others = np.median([rows[k].samples for k in range(4)])
        assert rows[4].samples <= 2.6 * others, options
        assert min(rows[k].samples for k in range(4)) > 0


def test_computing_that_is_little_of_a_task_in_time_cuts_no_samples():
    """Computing took 14 ms in place of 3 of a task of 12 s that was back in time; samples fell to a fifth."""
    learning = Learning()
    for trip, expected in ((12.0, 120), (60.0, 12)):
        x = Estimate.start((1e-6, 0.0, 12.0, 0.0, 0.0, 0.0), declared=True, assumed=False, learning=learning)
        seen = Observation(50, 60, train_s=0.014, round_trip_s=trip, planned_s=13.0)
        x.observe((1e-6, 0.0, 12.0, 0.0, 0.0, 0.0), seen, learning, 0.5)
        assert x.samples == pytest.approx(expected, abs=2)


def test_where_nothing_is_learnt_declared_costs_are_believed():
    brain = fleet([HONEST, HONEST, (HONEST[0] / 50, 11.0)], learning=None, total_samples=9000, held=9000)
    rows = cycle(brain, 1)
    assert rows[2].samples > 10 * rows[0].samples
    assert rows[2].slowdown == 1.0


def test_estimates_of_an_earlier_version_can_be_read():
    new = Estimate.start((1.0,) * 6, declared=True, assumed=False, learning=Learning()).as_dict()
    old = {key: value for key, value in new.items() if key not in ("floor", "delivered", "samples")}
    assert Estimate.from_dict(old).as_dict() == new
    for bad in ({"floor": [0.0]}, {"floor": [0.0, 99.0]}, {"delivered": -1}, {"samples": 0.5}):
        with pytest.raises(ValueError, match="estimate"):
            Estimate.from_dict({**new, **bad})
