"""Plans made with what was learnt."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_mel import Device, Workload, wire
from flwr_mel.orchestrator import Returned
from flwr_mel.records import CycleRecord, LearnerRecord, Outcome
from tests.learning.tools import COSTS, made, words, work


def test_without_learning_only_lateness_counts_and_others_are_planned_as_declared_bit_for_bit():
    brain, factors = made(learning=None), []
    for cycle in range(1, 25):
        plan = brain.plan(cycle, list(brain.state.learners))
        late = {"n0": (Outcome.LATE, "no reply in time")} if cycle in (1, 2, 4) else {}
        used = {t.node: t.samples for t in plan.tasks if t.node not in late}
        reports = {node: {wire.TRAIN_SECONDS: 30.0} for node in used}
        for row in brain.record.learners:
            if row.node == "n0":
                factors.append(row.slowdown)
            if row.slowdown == 1.0:
                c2, c1, c0 = COSTS[:3]
                assert row.time_s == c2 * (row.epochs * row.samples) + c1 * row.samples + c0
            else:
                assert row.node == "n0"
        brain.settle(Returned(used, late, reports, dict.fromkeys(used, 40.0)))
        assert all(row.round_trip_s is None for row in brain.record.learners)
        brain.close()
    # Late in cycles 1, 2 and 4, punctual ever after.
    assert 1.0 == factors[0] < factors[1] < factors[2] > factors[3] < factors[4] > factors[5] > factors[6]
    assert factors[-1] == 1.0
    assert brain.state.snapshot()["estimates"] == {}


def test_what_learners_really_take_is_planned_after_a_few_cycles():
    truth = {0: (1.5, 1.0), 1: (1.0, 4.0), 2: (0.5, 1.0), 3: (1.0, 1.0)}
    brain = made()
    for cycle in range(1, 25):
        rows, trips = work(brain, cycle, lambda _, k: truth[k])
    for k in range(4):
        assert trips[f"n{k}"] <= 10.0
        assert 0.85 < trips[f"n{k}"] / rows[f"n{k}"].time_s <= 1.0
    assert rows["n0"].slowdown > 1.4
    assert rows["n2"].slowdown < 0.8
    assert rows["n0"].round_trip_s == trips["n0"]


def test_a_throttled_and_a_sped_up_learner_are_followed_within_three_cycles():
    def factor(cycle, k):
        return ((2.0, 0.5)[k] if cycle > 12 and k < 2 else 1.0), 1.0

    brain = made()
    slow = {}
    for cycle in range(1, 20):
        rows, trips = work(brain, cycle, factor)
        slow[cycle] = [rows[f"n{k}"].slowdown for k in range(3)]
        if cycle >= 16:
            assert max(trips.values()) <= 10.0
    assert slow[12] == pytest.approx([slow[12][2]] * 3, rel=0.1)
    for cycle in range(16, 20):
        assert slow[cycle][0] > 1.7
        assert slow[cycle][1] < 0.75


@pytest.mark.parametrize("odd", [math.nan, -1.0, 1e300, 0.0, "x", None, True])
def test_a_liar_moves_only_its_own_estimate(odd):
    def after_one_cycle(of_n0):
        brain = made()
        plan = brain.plan(1, list(brain.state.learners))
        said = {t.node: {wire.TRAIN_SECONDS: 1.0, wire.TRAIN_JOULES: 0.3} for t in plan.tasks}
        said["n0"] = {wire.TRAIN_SECONDS: of_n0, wire.TRAIN_JOULES: of_n0}
        trips = {t.node: 9.0 for t in plan.tasks} | {"n0": of_n0}
        brain.settle(Returned({t.node: t.samples for t in plan.tasks}, {}, said, trips))
        return {node: learner.estimate.as_dict() for node, learner in brain.state.learners.items()}

    lied, honest = after_one_cycle(odd), after_one_cycle(1.0)
    assert lied.pop("n0") != honest.pop("n0")
    assert lied == honest


ODD = st.one_of(st.floats(), st.integers(), st.text(max_size=3), st.booleans(), st.none())
SAID = st.dictionaries(
    st.sampled_from((*wire.CAPABILITY_KEYS, wire.TRAIN_SECONDS, wire.TRAIN_JOULES, "other")), ODD
)


@given(st.lists(st.tuples(SAID, ODD), min_size=3, max_size=3), st.booleans())
@settings(max_examples=60, deadline=None)
def test_nothing_a_learner_says_breaks_the_others_cycles(said, silent):
    brain = made(3, workload=Workload.mlp((8, 4), ship_data=False), max_epochs=50)
    brain.hear("n3", None if silent else said[0][0])
    for cycle, (words_now, trip) in enumerate(said, 1):
        plan = brain.plan(cycle, list(brain.state.learners))
        assert {"n0", "n1", "n2"} <= {t.node for t in plan.tasks}
        trips = {t.node: 5.0 for t in plan.tasks} | {"n3": trip}
        reports = {t.node: {wire.TRAIN_SECONDS: 4.5} for t in plan.tasks} | {"n3": words_now}
        brain.settle(Returned({t.node: t.samples for t in plan.tasks}, {}, reports, trips))
        brain.close()
    json.dumps(brain.state.snapshot(), allow_nan=False)


def test_late_learners_get_less_until_they_can_and_are_tried_again():
    brain = made(enforce_deadline=True)
    asked = []
    for cycle in range(1, 41):
        plan = brain.plan(cycle, list(brain.state.learners))
        mine = next((t for t in plan.tasks if t.node == "n0"), None)
        asked.append(0 if mine is None else mine.epochs * mine.samples)
        late = {"n0": (Outcome.LATE, "no reply in time")} if mine and cycle < 20 else {}
        used = [t for t in plan.tasks if t.node not in late]
        took = {t.node: COSTS[0] * t.epochs * t.samples + COSTS[1] * t.samples + COSTS[2] for t in used}
        reports = {t.node: {wire.TRAIN_SECONDS: COSTS[0] * t.epochs * t.samples} for t in used}
        brain.settle(Returned({t.node: t.samples for t in used}, late, reports, took))
        brain.close()
    assert asked[3] < asked[0] / 2
    assert 0 in asked[:20]  # at last it can do nothing in time
    assert asked[-1] > asked[0]  # ... which is forgiven once it can


def test_joules_are_learnt_too():
    brain = made(0)
    brain.hear("n0", words(0, (1e-3, 1e-3, 0.1, 1e-3, 0.0, 0.1), **{wire.ENERGY_LIMIT_J: 4.0}))
    spent = []
    for cycle in range(1, 16):
        (task,) = brain.plan(cycle, ["n0"]).tasks
        spent.append(2 * (1e-3 * task.epochs * task.samples + 0.1))
        report = {wire.TRAIN_SECONDS: 1e-3 * task.epochs * task.samples, wire.TRAIN_JOULES: spent[-1]}
        brain.settle(
            Returned({"n0": task.samples}, {}, {"n0": report}, {"n0": 1.1 * report[wire.TRAIN_SECONDS]})
        )
        brain.close()
    assert spent[0] > 4.0
    assert 2.0 < max(spent[4:]) <= 4.0


def test_an_undeclared_learner_starts_as_the_slowest_and_is_believed_at_once():
    """Where a deadline has to be kept, so that its own round cannot be measured first."""
    brain = made(2, enforce_deadline=True)
    brain.hear("n2", {wire.LEARNER: "2", wire.MAX_SAMPLES: 1000})
    brain.hear("n3", None)
    brain.hear("bad", words(9, (math.nan,) * 6))
    rows, _ = work(brain, 1, lambda _, k: (0.3, 0.3) if k == 2 else (1.0, 1.0))
    assert "refused" in rows["bad"].reason
    assert rows["bad"].samples == 0
    first = rows["n2"].epochs * rows["n2"].samples
    known = min(rows[n].epochs * rows[n].samples for n in ("n0", "n1"))
    assert 0 < first <= known
    assert rows["n3"].samples > 0
    rows, trips = work(brain, 2, lambda _, k: (0.3, 0.3) if k == 2 else (1.0, 1.0))
    assert rows["n2"].epochs * rows["n2"].samples > 2 * first
    assert trips["n2"] <= 10.0


def test_where_nobody_is_known_one_epoch_of_the_least_batch_fills_the_cycle():
    brain = made(0, min_samples=10, total_samples=40)
    for k in range(3):
        brain.hear(f"n{k}", None)
    rows, _ = work(brain, 1)
    assert [(r.epochs, r.samples) for r in rows.values()] == [(1, 10)] * 3
    assert 9.9 < rows["n0"].time_s <= 10.0
    for cycle in range(2, 8):
        rows, trips = work(brain, cycle)
        assert max(trips.values()) <= 10.0
    assert sum(r.samples for r in rows.values()) == 40
    assert min(trips.values()) > 5.0


def test_silence_without_learning_or_with_refused_words_stays_outside():
    brain = made(1, learning=None)
    brain.hear("n1", None)
    assert [t.node for t in brain.plan(1, ["n0", "n1"]).tasks] == ["n0"]
    brain = made(1)
    brain.hear("n1", words(1, (-1.0,) * 6))
    brain.hear("n1", None)
    assert [t.node for t in brain.plan(1, ["n0", "n1"]).tasks] == ["n0"]


def test_the_default_profile_comes_before_assumptions():
    device = Device(1e9, 1e7, 0.1, max_samples=40)
    load = Workload.mlp((8, 4), ship_data=False)
    brain = made(0, default_profile=device, workload=load, max_epochs=9, total_samples=40)
    brain.hear("n0", None)
    brain.plan(1, ["n0"])
    state = brain.state.learners["n0"]
    assert state.capability.device == device
    assert not state.estimate.declared
    assert brain.record.learners[0].slowdown == pytest.approx(1.0)


def test_estimates_survive_a_restart_by_name():
    def factor(cycle, k):
        return (1.0 + 0.3 * k + 0.01 * (cycle % 3)), 1.5

    brain = made(3, enforce_deadline=True)
    brain.hear("n3", {wire.LEARNER: "3"})
    for cycle in range(1, 6):
        work(brain, cycle, factor)
    kept = json.loads(json.dumps(brain.state.snapshot()))
    fresh = made(0, enforce_deadline=True)
    fresh.restore(kept)
    for k in range(3):
        fresh.hear(f"m{k}", words(k))
    fresh.hear("m3", {wire.LEARNER: "3"})
    assert fresh.state.snapshot() == kept
    there, here = (b.plan(6, list(b.state.learners)).tasks for b in (brain, fresh))
    assert [(t.learner, t.epochs, t.samples, t.seed) for t in there] == [
        (t.learner, t.epochs, t.samples, t.seed) for t in here
    ]


def test_old_records_can_be_read():
    data = CycleRecord(1, 2.0, learners=[LearnerRecord("a", "1", round_trip_s=1.5)]).as_dict()
    assert CycleRecord.from_dict(data).learners[0].round_trip_s == 1.5
    del data["learners"][0]["round_trip_s"]
    assert CycleRecord.from_dict(data).learners[0].round_trip_s is None
