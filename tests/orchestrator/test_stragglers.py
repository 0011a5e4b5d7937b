"""Slow learners: nobody waits for them, nobody is left out for good, and no claim slows the others."""

import copy
from dataclasses import replace

import numpy as np
import pytest

from flwr_mel import wire
from flwr_mel.learning import Learning
from flwr_mel.orchestrator import Orchestrator, Settings, Stragglers
from flwr_mel.orchestrator.cycle import plan, settle
from flwr_mel.orchestrator.flights import arrive
from flwr_mel.orchestrator.hearing import hear, meet
from flwr_mel.orchestrator.returned import Returned
from flwr_mel.orchestrator.state import State
from flwr_mel.records import CycleRecord, Outcome
from tests.orchestrator.span_tools import T, brain, row_of, virtual_cycle, words

# --- tasks across cycles --------------------------------------------------------------------------------


def test_a_slow_learner_works_across_cycles_within_its_limits():
    made = brain(0.4, max_span=3)
    made.hear("slow", words("slow", 0.4, **{wire.ENERGY_LIMIT_J: 1.0}))
    first = virtual_cycle(made, 1)
    row = row_of(first, "slow")
    assert (row.span, row.outcome, row.samples) == (3, Outcome.BUSY, 100)
    assert row.epochs >= 165
    assert 2 * T < row.time_s <= 3 * T
    assert row.energy_j <= row.energy_limit_j == 3.0
    assert first.makespan_s <= T
    second, third = virtual_cycle(made, 2), virtual_cycle(made, 3)
    assert (row_of(second, "slow").outcome, row_of(second, "slow").moved_from) == (Outcome.BUSY, 0)
    assert "task of cycle 1" in row_of(second, "slow").reason
    done = row_of(third, "slow")
    assert (done.moved_from, done.moved_weight, done.samples) == (1, 100, 0)
    assert done.moved_epochs == row.epochs
    # The others' ten updates of a hundred samples, and its own over the root of three.
    assert done.share == pytest.approx(
        58 * done.moved_epochs / (58 * done.moved_epochs + 1000 * 165), rel=1e-3
    )
    assert not made.state.flights
    assert not made.state.arrived
    assert row_of(virtual_cycle(made, 4), "slow").span == 3


def test_the_battery_is_not_there_anew_in_every_cycle():
    made = brain(0.4, max_span=3)
    made.hear("slow", words("slow", 0.4, **{wire.ENERGY_LIMIT_J: 2.0, wire.BATTERY_J: 1.7}))
    assert row_of(virtual_cycle(made, 1), "slow").energy_limit_j == 1.7


def test_everything_given_is_used_once():
    """Whatever the speeds: every task's update counts once, in the cycle where its time is over."""
    rng = np.random.default_rng(8)
    made = brain(learners=0, max_span=4)
    for k, speed in enumerate(np.exp(rng.uniform(np.log(0.25), 0, 20))):
        made.hear(f"n{k}", words(f"l{k}", speed))
    given, used = {}, []
    for cycle in range(1, 31):
        record = virtual_cycle(made, cycle)
        assert record.makespan_s <= T
        for row in record.learners:
            if row.samples:
                assert (row.learner, cycle) not in given
                given[row.learner, cycle] = (record.clock_s - record.makespan_s + row.time_s, row.samples)
            if row.outcome is Outcome.USED:
                used.append((row.learner, cycle))
            if row.moved_from:
                used.append((row.learner, row.moved_from))
                ends_s, samples = given[row.learner, row.moved_from]
                assert record.clock_s - record.makespan_s < ends_s * (1 + 1e-9)
                assert ends_s <= record.clock_s * (1 + 1e-9)
                assert row.moved_weight == samples
    assert len(used) == len(set(used))
    open_now = {(x.learner, x.cycle) for x in made.state.flights.values()}
    assert set(used) | open_now == set(given)
    assert len({name for name, _ in used}) == 20


def test_slow_learners_do_not_all_report_in_the_same_cycle():
    """Else the model forgets what only they know in all cycles between."""
    made = brain(max_span=3)
    for k in range(5):
        made.hear(f"s{k}", words(f"s{k}", 0.4))
    reported = []
    for cycle in range(1, 16):
        record = virtual_cycle(made, cycle)
        begins = [row for row in record.learners if row.span == 3]
        waits = [row for row in record.learners if "begins in a later cycle" in row.reason]
        assert len(begins) <= 2
        assert len(waits) == {1: 3, 2: 1}.get(cycle, 0)
        reported.append(sorted(row.learner for row in record.learners if row.moved_from))
    assert {len(some) for some in reported[2:]} == {1, 2}
    # Once spread, nobody waits: everybody reports every third cycle, and nobody takes another's turn.
    assert reported[2:5] == reported[5:8] == reported[8:11] == reported[11:14]
    assert sorted(name for some in reported[2:5] for name in some) == [f"s{k}" for k in range(5)]


def test_a_task_of_several_cycles_is_back_in_the_last_of_them():
    """Cycles end when the last of the others reports, which is before T: planned for 2 T is too late."""
    made = brain(learners=0, max_span=3)
    for k in range(6):
        made.hear(f"n{k}", words(f"l{k}", 5.4 / 165))  # five epochs in 0.93 T
    for k in range(3):
        made.hear(f"s{k}", words(f"s{k}", 2.53 / 165))  # in 1.98 T
    spans, backs = {}, []
    for cycle in range(1, 16):
        record = virtual_cycle(made, cycle)
        assert record.makespan_s < 0.95 * T
        for row in record.learners:
            if row.moved_from > 1:  # in the first cycle nobody knows how long it will last
                backs.append((spans[row.learner, row.moved_from], cycle - row.moved_from + 1))
            if row.span > 1:
                spans[row.learner, cycle] = row.span
    assert len(backs) > 9
    assert all(span == taken for span, taken in backs)


def test_keep_is_as_it_was_and_holds_nothing():
    made = brain(0.4, stragglers="keep")
    record = virtual_cycle(made, 1)
    assert (record.pace, made.state.flights, row_of(record, "slow").span) == (0, {}, 1)


def test_late_is_not_lost_and_the_learner_is_free_when_it_reports():
    made = brain()
    tasks = made.plan(1, list(made.state.learners)).tasks
    used = {t.node: t.samples for t in tasks if t.node != "n3"}
    made.settle(Returned(used, {"n3": (Outcome.LATE, "no reply in time")}, {}, open=["n3"]))
    made.close()
    assert row_of(made.records[-1], "l3").outcome is Outcome.LATE
    assert made.records[-1].makespan_s == T
    # Not back when the next cycle begins: busy, and not asked either.
    second = made.plan(2, list(made.state.learners))
    assert "n3" not in {t.node for t in second.tasks} | set(second.ask_again)
    used = {t.node: t.samples for t in second.tasks}
    made.settle(Returned(used, {}, {}))
    made.close()
    assert row_of(made.records[-1], "l3").outcome is Outcome.BUSY
    # Back now: it gets a new task, and its old update counts in this cycle.
    made.arrive({"n3": {}}, {})
    third = made.plan(3, list(made.state.learners))
    assert "n3" in {t.node for t in third.tasks}
    made.settle(Returned({t.node: t.samples for t in third.tasks}, {}, {}, moved={"n3": 58}))
    made.close()
    row = row_of(made.records[-1], "l3")
    assert (row.outcome, row.weight, row.moved_from, row.moved_weight) == (Outcome.USED, row.samples, 1, 58)


def test_a_lost_update_is_on_record_and_the_learner_is_free():
    made = brain(0.4)
    virtual_cycle(made, 1)
    made.plan(2, list(made.state.learners))
    made.arrive({"slow": None}, {})
    made.settle(Returned({}, {}, {}, lost={"slow": (Outcome.REFUSED, "array a is not finite")}))
    made.close()
    row = row_of(made.records[-1], "slow")
    assert (row.outcome, row.reason, row.moved_weight) == (Outcome.REFUSED, "array a is not finite", 0)
    assert "slow: its update of cycle 1 is not used: array a is not finite" in made.records[-1].notes
    assert "slow" in {t.learner for t in made.plan(3, list(made.state.learners)).tasks}


def test_a_task_that_never_comes_back_is_given_up():
    made = brain(0.4, max_span=3)
    virtual_cycle(made, 1)
    made.state = replace(
        made.state, flights={"slow": replace(made.state.flights["slow"], ends_s=float("inf"))}
    )
    records = [virtual_cycle(made, cycle) for cycle in range(2, 9)]
    assert [row_of(r, "slow").outcome for r in records[:6]] == [Outcome.BUSY] * 6
    assert "slow: no reply to the task of cycle 1, which is given up" in records[6].notes
    assert row_of(records[6], "slow").samples == 100


# --- turns ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["span", "exclude"])
def test_who_has_long_been_without_work_gets_a_turn(policy):
    made = brain(0.05 if policy == "span" else 0.5, stragglers=policy, turn_after=4, max_span=2)
    records = [virtual_cycle(made, cycle) for cycle in range(1, 13)]
    rows = [row_of(record, "slow") for record in records]
    worked = [row for row in rows if row.samples]
    assert len(worked) == 2
    assert max(row.idle for row in rows) == 4
    assert [row.idle for row in worked] == [4, 4]
    assert "without it the others can do more epochs" in rows[0].reason
    assert any(
        "without work for 4 cycles or more, now at their own pace: slow" in n for n in records[4].notes
    )
    for row in worked:
        assert 0 < row.epochs < 165
        assert row.time_s <= row.span * T
    for record in records:
        assert min(row_of(record, f"l{k}").epochs for k in range(10)) == 165


def test_turns_take_from_the_samples_that_are_shipped():
    data = (np.arange(1000),)
    made = brain(0.02, mode="parallelized", dataset=data, turn_after=2, max_span=2)
    for cycle in range(1, 4):
        tasks = made.plan(cycle, list(made.state.learners)).tasks
        rows = np.concatenate([t.shard for t in tasks])
        assert len(rows) == len(set(rows.tolist())) == 1000
        made.settle(Returned({t.node: t.samples for t in tasks}, {}, {}))
        made.close()
    assert "slow" in {t.learner for t in tasks}
    assert row_of(made.records[-1], "slow").samples == 100


def test_with_too_few_samples_for_all_nobody_starves():
    made = brain(total_samples=500, turn_after=3)
    worked = {f"l{k}": 0 for k in range(10)}
    for cycle in range(1, 21):
        for row in virtual_cycle(made, cycle).learners:
            worked[row.learner] += bool(row.samples)
            assert row.idle <= 3
    assert min(worked.values()) >= 4


def test_one_missed_reply_does_not_put_a_learner_out():
    """It was used in 2 of 40 cycles: taken for slower, it could not carry its least batch any more."""
    made = brain(total_samples=1000)
    worked = 0
    for cycle in range(1, 41):
        plan_ = made.plan(cycle, list(made.state.learners))
        late = {"n0": (Outcome.LATE, "no reply in time")} if cycle == 3 else {}
        worked += any(t.node == "n0" for t in plan_.tasks)
        now = {t.node: t.samples for t in plan_.tasks if t.span == 1 and t.node not in late}
        rest = {t.node for t in plan_.tasks} - set(now)
        before = {x.node: x.samples for x in made.state.flights.values() if x.cycle < cycle}
        made.arrive({node: {} for node in before}, {})
        made.settle(Returned(now, late, {}, moved=before, open=rest))
        made.close()
    assert worked >= 30


# --- state ----------------------------------------------------------------------------------------------


def test_the_snapshot_holds_tasks_in_progress_and_they_are_sent_again():
    made = brain(0.4, seed=5, min_samples=90, mode="parallelized", dataset=(np.arange(1000),))
    first = made.plan(1, list(made.state.learners)).tasks
    (sent,) = [t for t in first if t.learner == "slow"]
    made.settle(Returned({t.node: t.samples for t in first if t is not sent}, {}, {}, open=["slow"]))
    made.close()
    fresh = Orchestrator(made.settings)
    fresh.restore(made.state.snapshot())
    for k in range(10):
        fresh.hear(f"m{k}", words(f"l{k}"))
    fresh.hear("m-slow", words("slow", 0.4))
    there, here = (b.plan(2, list(b.state.learners)) for b in (made, fresh))
    again = [t for t in here.tasks if t.cycle == 1]
    assert [(t.node, t.learner, t.epochs, t.samples, t.seed, t.span) for t in again] == [
        ("m-slow", "slow", sent.epochs, sent.samples, sent.seed, 3)
    ]
    np.testing.assert_array_equal(again[0].shard, sent.shard)
    assert [(t.learner, t.epochs, t.samples, t.seed) for t in here.tasks if t.cycle == 2] == [
        (t.learner, t.epochs, t.samples, t.seed) for t in there.tasks
    ]
    assert "m-slow" not in fresh.due()
    assert {x.ends_s for x in fresh.state.flights.values() if x.cycle == 1} == {
        x.ends_s for x in made.state.flights.values() if x.cycle == 1
    }


def test_a_device_that_was_restarted_gets_its_task_again():
    made = brain(0.4)
    virtual_cycle(made, 1)
    nodes = [node for node in made.state.learners if node != "slow"]
    made.strangers([*nodes, "new"])
    made.hear("new", words("slow", 0.4))
    tasks = made.plan(2, [*nodes, "new"]).tasks
    assert [(t.node, t.cycle) for t in tasks if t.learner == "slow"] == [("new", 1)]


def test_an_update_counts_although_its_learner_is_not_chosen():
    made = brain(0.4)
    virtual_cycle(made, 1)
    chosen = [f"n{k}" for k in range(5)]
    made.plan(2, chosen)
    made.arrive({"slow": {}}, {})
    made.settle(Returned(dict.fromkeys(chosen, 1), {}, {}, moved={"slow": 7}))
    made.close()
    assert row_of(made.records[-1], "slow").moved_weight == 7


def test_what_comes_later_is_learnt_from():
    made = brain(0.4, learning=Learning(), max_span=4)
    for cycle in range(1, 13):
        tasks = made.plan(cycle, list(made.state.learners)).tasks
        flights = {x.node: x for x in made.state.flights.values()}
        over = {n: x for n, x in flights.items() if x.cycle < cycle and cycle - x.cycle >= x.span - 1}
        # It says 0.4 and is 0.3 times as fast as the others.
        took = {n: x.epochs * x.samples / 16500 * T / 0.3 for n, x in over.items()}
        made.arrive({n: {wire.TRAIN_SECONDS: s} for n, s in took.items()}, took)
        now = {t.node: t.samples for t in tasks if t.span == 1}
        said = {n: {wire.TRAIN_SECONDS: 9.0} for n in now}
        moved = {n: x.samples for n, x in over.items()}
        made.settle(
            Returned(
                now,
                {},
                said,
                dict.fromkeys(now, 9.01),
                moved=moved,
                open=[t.node for t in tasks if t.span > 1],
            )
        )
        made.close()
    estimate = made.state.learners["slow"].estimate
    assert estimate.compute.seen >= 3
    assert np.exp(estimate.compute.mean) == pytest.approx(0.4 / 0.3, rel=0.1)
    assert made.state.learners["slow"].estimate.idle == 0


def test_every_step_leaves_its_arguments_as_they_are():
    settings = Settings(cycle_time_s=T, min_samples=100, stragglers="span")
    said = {f"n{k}": words(f"l{k}", 1.0 if k else 0.4) for k in range(5)}
    state = hear(meet(State(), list(said)), settings, said)
    for cycle in range(1, 5):
        before = copy.deepcopy(state)
        state2, planned, record = plan(state, settings, cycle, list(said))
        assert state == before
        state = state2
        late = [x.node for x in state.flights.values() if x.cycle < cycle - 1]
        before = copy.deepcopy(state)
        state3 = arrive(state, settings, {node: {} for node in late})
        assert state == before
        used = {t.node: t.samples for t in planned.tasks if t.span == 1}
        back = Returned(
            used, moved=dict.fromkeys(late, 5), open=[t.node for t in planned.tasks if t.span > 1]
        )
        before, kept = copy.deepcopy(state3), copy.deepcopy(record)
        state, record2 = settle(state3, settings, record, back)
        assert (state3, record) == (before, kept)
        assert CycleRecord.from_dict(record2.as_dict()) == record2
    assert State.restored(state.snapshot()).snapshot() == state.snapshot()


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ({"stragglers": "wait"}, "stragglers must be one of 'keep', 'exclude', 'span'"),
        ({"max_span": 0}, "max_span must be"),
        ({"turn_after": 0}, "turn_after must be"),
    ],
)
def test_settings_are_checked(bad, text):
    with pytest.raises(ValueError, match=text):
        Settings(**({"cycle_time_s": 1.0} | bad))
    assert Settings(cycle_time_s=1.0, stragglers="span").stragglers is Stragglers.SPAN
