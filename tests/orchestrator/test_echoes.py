"""Under nova-held an update that took m cycles counts in m cycles, for n_k / sqrt(m) in each."""

import json
import math
from dataclasses import replace

import pytest

from flwr_mel.orchestrator import Orchestrator, Returned, Settings
from flwr_mel.orchestrator.averaging import Average, Work, blend
from flwr_mel.records import CycleRecord, Echo, Outcome
from tests.orchestrator.span_tools import T, brain, row_of, virtual_cycle, words

HELD = 400


def held(**options):
    """Ten learners that hold a hundred samples, and a slow one that holds more and uses a hundred."""
    made = brain(**({"average": "nova-held", "max_span": 3, "max_share": None} | options))
    made.hear("slow", words("slow", 0.4, held=HELD))
    return made


def of_slow(record):
    """What it counts for: from which cycle, in how many cycles, how many are left, and its share."""
    return [(x.cycle, x.cycles, x.left, x.held) for x in record.echoes if x.learner == "slow"]


def test_an_update_counts_in_as_many_cycles_as_it_took():
    made = held()
    records = [virtual_cycle(made, cycle) for cycle in range(1, 13)]
    assert [row_of(r, "slow").moved_from for r in records] == [0, 0, 1, 0, 0, 4, 0, 0, 7, 0, 0, 10]
    assert [of_slow(r) for r in records[:3]] == [[], [], []]
    assert [of_slow(r) for r in records[3:9]] == [
        [(1, 3, 1, HELD)], [(1, 3, 0, HELD)], [],
        [(4, 3, 1, HELD)], [(4, 3, 0, HELD)], [],
    ]  # fmt: skip
    # From the first arrival on it counts in every cycle for the same.
    mine = round(HELD / math.sqrt(3))
    shares = [row_of(r, "slow").share for r in records]
    assert shares[:2] == [0, 0]
    assert shares[2:] == pytest.approx([mine / (mine + 10 * 100)] * 10)
    assert records[3].echoes[0].share == shares[3]
    assert sum(row.share for row in records[3].learners) == pytest.approx(1)
    assert records[3].counted == records[2].counted == 11
    # The same total as m-fold at once.
    assert 3 * mine == pytest.approx(3 * HELD / math.sqrt(3), abs=1.5)


@pytest.mark.parametrize("average", ["samples", "nova"])
def test_the_other_averages_count_an_update_once(average):
    made = held(average=average)
    for cycle in range(1, 8):
        record = virtual_cycle(made, cycle)
        assert not record.echoes
        assert "echoes" not in record.as_dict()
    assert not made.state.echoes


def test_the_weights_are_what_is_held_over_the_root():
    works = [Work(1, 100, 400, 1, "a"), Work(3, 50, 400, 4, "b"), Work(3, 50, None, 4, "c")]
    assert blend(Average.NOVA_HELD, works).weights == (400, 200, 25)
    assert blend(Average.NOVA, works).weights == (100, 25, 25)


def test_the_next_update_does_not_end_the_last_one():
    """A learner that was late and is fast again: both count, and its bounded share is that of both."""
    made = held(max_share=0.05)
    plan = made.plan(1, [n for n in made.state.learners if n != "slow"])
    late = {"n3": (Outcome.LATE, "no reply in time")}
    made.settle(Returned({t.node: 100 for t in plan.tasks if t.node != "n3"}, late, {}, open=["n3"]))
    made.close()
    nodes = [f"n{k}" for k in range(10)]
    for cycle in (2, 3, 4, 5):
        if cycle == 3:
            made.arrive({"n3": {}}, {})
        tasks = made.plan(cycle, nodes).tasks
        made.settle(Returned({t.node: 100 for t in tasks}, {}, {}, moved={"n3": 100} if cycle == 3 else {}))
        made.close()
    third, fourth, fifth = (row_of(r, "l3") for r in made.records[2:])
    assert (third.outcome, third.moved_from) == (Outcome.USED, 1)
    assert [[(x.learner, x.left) for x in r.echoes] for r in made.records] == [
        [], [], [], [("l3", 1)], [("l3", 0)],
    ]  # fmt: skip
    assert fourth.outcome is fifth.outcome is Outcome.USED
    assert fourth.share == pytest.approx(1 / 10, rel=0.02)  # a tenth is the least bound of ten
    assert "of the weight instead of 14.9%" in fourth.bounded


def test_a_learner_that_left_counts_until_it_has_counted_enough():
    made = held()
    for cycle in (1, 2, 3):
        virtual_cycle(made, cycle)
    rest = [f"n{k}" for k in range(10)]
    made.strangers(rest, rest)
    records = [virtual_cycle(made, cycle) for cycle in (4, 5, 6)]
    assert all("slow" not in {row.learner for row in r.learners} for r in records)
    assert [of_slow(r) for r in records] == [[(1, 3, 1, HELD)], [(1, 3, 0, HELD)], []]
    mine = round(HELD / math.sqrt(3))
    assert records[0].echoes[0].share == pytest.approx(mine / (mine + 1000))
    assert sum(row.share for row in records[0].learners) == pytest.approx(1000 / (mine + 1000))


def test_what_it_holds_counts_although_it_is_not_chosen_when_it_comes():
    made = held()
    virtual_cycle(made, 1)
    chosen = [f"n{k}" for k in range(5)]
    made.plan(2, chosen)
    made.arrive({"slow": {}}, {})
    made.settle(Returned(dict.fromkeys(chosen, 100), {}, {}, moved={"slow": 100}))
    mine = round(HELD / math.sqrt(2))
    assert made.blend(chosen, ["slow"]).weights == (*[100] * 5, mine)
    made.close()
    assert [(x.learner, x.held) for x in made.state.echoes] == [("slow", HELD)]


def test_alone_it_does_not_count_and_the_cycle_is_one_of_them():
    made = held()
    for cycle in (1, 2, 3):
        virtual_cycle(made, cycle)
    tasks = made.plan(4, list(made.state.learners)).tasks
    made.settle(Returned({}, {t.node: (Outcome.FAILED, "no power") for t in tasks}, {}))
    made.close()
    assert made.records[-1].echoes == []
    assert [x.left for x in made.state.echoes] == [1]
    assert of_slow(virtual_cycle(made, 5)) == [(1, 3, 0, HELD)]
    assert of_slow(virtual_cycle(made, 6)) == []


def test_what_cannot_be_used_any_more_is_told_and_gone():
    made = held()
    for cycle in (1, 2, 3):
        virtual_cycle(made, cycle)
    (name,) = [x.name for x in made.state.echoes]
    tasks = made.plan(4, list(made.state.learners)).tasks
    made.settle(Returned({t.node: 100 for t in tasks}, {}, {}, dropped={name: "other arrays"}))
    made.close()
    assert not made.state.echoes
    assert not made.records[-1].echoes
    assert "slow: its update of cycle 1 does not count again: other arrays" in made.records[-1].notes


def test_of_a_model_that_is_refused_nothing_counts_again():
    made = held()
    for cycle in (1, 2, 3):
        virtual_cycle(made, cycle)
    tasks = made.plan(4, list(made.state.learners)).tasks
    made.settle(Returned({t.node: 100 for t in tasks}, {}, {}, open=["slow"]))
    assert len(made.record.echoes) == 1
    made.reject("the model that X made is odd")
    made.close()
    record = made.records[-1]
    assert (record.echoes, made.state.echoes) == ([], ())
    assert not any(row.share for row in record.learners)
    assert record.notes[-1].endswith("l9, slow")


def test_the_snapshot_has_them_and_other_settings_give_them_up():
    made = held()
    for cycle in (1, 2, 3):
        virtual_cycle(made, cycle)
    snapshot = json.loads(json.dumps(made.state.snapshot()))
    fresh = Orchestrator(made.settings)
    fresh.restore(snapshot)
    assert fresh.state.echoes == made.state.echoes == (Echo("slow", 1, 3, 2, 165, 120, HELD),)
    assert fresh.origins == {1}
    for changes in ({"average": Average.NOVA}, {"stragglers": "exclude"}):
        asked = {"cycle_time_s": T, "average": "nova-held", "stragglers": "span"} | changes
        other = Orchestrator(Settings(**asked))
        other.restore(snapshot)
        assert not other.state.echoes
        assert "1 updates of slow learners do not count again" in other.state.notes[-1]
    del snapshot["echoes"]  # of before
    fresh.restore(snapshot)
    assert fresh.state.echoes == ()


def test_tasks_in_progress_are_given_up_where_nobody_waits_for_them_any_more():
    made = held()
    virtual_cycle(made, 1)
    assert [x.node for x in made.state.flights.values()] == ["slow"]
    other = Orchestrator(Settings(cycle_time_s=T, stragglers="exclude"))
    other.restore(json.loads(json.dumps(made.state.snapshot())))
    assert not other.state.flights
    assert "1 tasks in progress are given up: stragglers is not 'span' any more" in other.state.notes
    same = Orchestrator(made.settings)
    same.restore(made.state.snapshot())
    assert list(same.state.flights) == list(made.state.flights)


def test_the_record_is_read_back():
    record = CycleRecord(4, 10.0, echoes=[Echo("slow", 1, 3, 1, 412, 100, None, 0.25)])
    line = json.loads(json.dumps(record.as_dict()))
    assert CycleRecord.from_dict(line) == record
    del line["echoes"]
    assert CycleRecord.from_dict(line) == replace(record, echoes=[])
