"""What a real clock adds to the record, and that simulated learners have none of it."""

from dataclasses import replace

import pytest

from flwr_mel import wire
from flwr_mel.learning import Learning
from flwr_mel.orchestrator import Orchestrator, Returned, Settings, Times
from flwr_mel.orchestrator.doubts import Why
from flwr_mel.records import CycleRecord, Outcome, Standing
from tests.attacks import COSTS

NODES = ("1", "2", "3")
SETTINGS = Settings(cycle_time_s=10.0, total_samples=60, max_epochs=1)


class Clock:
    """The time of day is 1000 seconds ahead of the steady clock, until somebody sets it."""

    def __init__(self):
        self.now, self.ahead = 50.0, 1000.0

    def __call__(self):
        return self.now + self.ahead, self.now


def words(name, **more):
    return {wire.LEARNER: name, wire.MAX_SAMPLES: 30, wire.PROBE: 1, **COSTS, **more}


def begun(settings=SETTINGS, took_s=None, **said):
    """Return an orchestrator in its first cycle, and its clock."""
    brain = Orchestrator(settings)
    brain.clock = clock = Clock()
    brain.strangers(NODES)
    brain.hear_all({node: {**words(f"pi-{node}"), **said.get(f"n{node}", {})} for node in NODES}, took_s)
    return brain, clock


def test_times_of_a_cycle_stand_beside_its_plan():
    brain, clock = begun()
    plan = brain.plan(1, NODES)
    clock.now += 7.0
    sent = dict.fromkeys(NODES, 1051.0)
    used = {task.node: task.samples for task in plan.tasks[:2]}
    late = {"3": (Outcome.LATE, "no reply in time")}
    times = Times(1070.0, 18.5, sent, {"1": 1053.0, "2": 1056.5}, here=NODES[:2])
    brain.settle(Returned(used, late, {}, times=times))
    clock.now, clock.ahead = 71.0, 5000.0  # the time of day is set meanwhile
    brain.close()
    (record,) = brain.records
    assert (record.began_at, record.ended_at, record.duration_s) == (1050.0, 5071.0, 21.0)
    assert record.waited_s == 18.5
    one, two, three = record.learners
    assert (one.took_s, two.took_s, three.took_s) == (2.0, 5.5, None)
    assert (one.standing, one.since) == (Standing.IDLE, 1053.0)
    assert (three.standing, three.since) == (Standing.GONE, 1070.0)
    assert CycleRecord.from_dict(record.as_dict()) == record


def test_who_is_gone_stays_on_record_until_it_is_back():
    brain, clock = begun()
    plan = brain.plan(1, NODES)
    used = {task.node: task.samples for task in plan.tasks}
    brain.settle(Returned(used, {}, {}, times=Times(1060.0, 5.0)))
    clock.now = 90.0
    brain.strangers(NODES[:2])
    brain.plan(2, NODES[:2])
    brain.settle(Returned({}, {}, {}, times=Times(1095.0, 5.0)))
    brain.close()
    assert brain.records[-1].gone == {"pi-3": 1090.0}
    assert [row.since for row in brain.records[-1].learners] == [1060.0, 1060.0], "idle all the time"
    brain.strangers((*NODES[:2], "9"))
    brain.hear_all({"9": words("pi-3")})
    brain.plan(3, (*NODES[:2], "9"))
    brain.settle(Returned({}, {}, {}, times=Times(1099.0, 5.0)))
    brain.close()
    assert brain.records[-1].gone == {}
    assert "gone" not in brain.records[-1].as_dict()


@pytest.mark.parametrize("names", [None, {"3": "pi-3"}])
def test_one_that_is_back_is_itself_before_it_has_answered(names):
    """It was a stranger with a long number beside a device that was gone, and then planned without Flower."""
    own = {f"n{node}": {wire.ANSWER_SECONDS: 0.0} for node in NODES}
    settings = replace(SETTINGS, learning=Learning())
    brain, clock = begun(settings, dict.fromkeys(NODES, 4.0), **own)
    brain.plan(1, NODES)
    brain.settle(Returned({"1": 20, "2": 20}, {"3": (Outcome.FAILED, "gone")}, {}, times=Times(1060.0, 5.0)))
    planned = brain.state.learners["3"].costs[2]
    clock.now = 90.0
    brain.strangers(NODES[:2])
    brain.plan(2, NODES[:2])
    brain.settle(Returned({}, {}, {}, times=Times(1095.0, 5.0)))
    brain.bind(names)
    assert brain.strangers(NODES) == ["3"], "it is asked again"
    brain.plan(3, NODES)
    brain.settle(Returned({}, {}, {}, times=Times(1099.0, 5.0, here=NODES)))
    brain.close()
    record = brain.records[-1]
    assert [row.learner for row in record.learners] == ["pi-1", "pi-2", "pi-3"]
    assert record.learners[-1].reason == "has not said yet what it can do"
    assert record.gone == {}
    brain.strangers(NODES)
    brain.hear_all({"3": words("pi-3", **{wire.ANSWER_SECONDS: 0.0})})  # nobody waited, so nothing was timed
    brain.plan(4, NODES)
    assert brain.state.learners["3"].costs[2] == pytest.approx(planned)


def test_who_worked_is_idle_since_its_last_report():
    brain, _ = begun()
    for cycle in (1, 2):
        brain.strangers(NODES)
        used = {task.node: task.samples for task in brain.plan(cycle, NODES).tasks}
        came = {node: 1000.0 + 10 * cycle + int(node) for node in NODES}
        brain.settle(
            Returned(used, {}, {}, times=Times(1020.0 + 10 * cycle, 5.0, dict.fromkeys(NODES, 1000.0), came))
        )
        brain.close()
    assert [row.since for row in brain.records[-1].learners] == [1021.0, 1022.0, 1023.0]


def test_simulated_learners_have_no_real_times():
    plain = Orchestrator(SETTINGS)
    records = []
    for brain in (plain, begun(took_s=dict.fromkeys(NODES, 3.0))[0]):
        brain.strangers(NODES)
        brain.hear_all({n: words(f"pi-{n}", **{wire.SIMULATED: 1}) for n in NODES}, dict.fromkeys(NODES, 3.0))
        used = {task.node: task.samples for task in brain.plan(1, NODES).tasks}
        reports = {node: {wire.SIMULATED: 1} for node in used}
        brain.settle(Returned(used, {}, reports, times=Times(1060.0, 5.0, dict.fromkeys(NODES, 1.0))))
        brain.close()
        records.append(brain.records[-1].as_dict())
    assert records[0] == records[1]
    assert not {"began_at", "flower_s", "waited_s"} & set(records[0])
    assert not {"sent_at", "standing", "since"} & set(records[0]["learners"][0])


# --- what Flower takes of T -----------------------------------------------------------------------------


def test_what_flower_takes_is_measured_by_the_questions_and_in_the_plan():
    own = {f"n{node}": {wire.ANSWER_SECONDS: 1.0} for node in NODES}
    took = {"1": 4.0, "2": 5.0, "3": 0.5}  # the third claims more than there is
    brain, _ = begun(replace(SETTINGS, learning=Learning()), took, **own)
    brain.plan(1, NODES)
    assert brain.record.flower_s == 3.0
    link = [brain.state.learners[node].costs[2] - COSTS["mel-c0"] for node in NODES]
    assert link == pytest.approx([3.0, 4.0, 0.0])
    # Where nobody learns, plans follow what is declared, and the record says what they leave out.
    brain, _ = begun(SETTINGS, took, **own)
    brain.plan(1, NODES)
    assert brain.record.flower_s == 3.0
    assert {brain.state.learners[node].costs[2] for node in NODES} == {COSTS["mel-c0"]}
    for cycle in (1, 2):
        used = {task.node: task.samples for task in brain.plan(cycle, NODES).tasks}
        brain.settle(Returned(used, {}, {}, times=Times(60.0, 5.0)))
        said = [note for note in brain.record.notes if "of 10 s, 3 s are Flower's, and plans here" in note]
        assert len(said) == (cycle == 1), "once"
        brain.close()


def test_after_a_cycle_flowers_part_is_what_tasks_took_beside_the_work():
    brain, _ = begun()
    used = {task.node: task.samples for task in brain.plan(1, NODES).tasks}
    reports = {node: {wire.TRAIN_SECONDS: 1.0} for node in used}
    came = {"1": 104.0, "2": 106.0, "3": 112.0}
    brain.settle(Returned(used, {}, reports, times=Times(112.0, 12.0, dict.fromkeys(NODES, 100.0), came)))
    assert brain.record.flower_s == 5.0


# --- what devices say is wrong ----------------------------------------------------------------------------


def test_missing_data_and_an_unanswered_question_are_told_apart():
    settings = replace(SETTINGS, total_samples=None, learning=Learning())
    brain = Orchestrator(settings)
    brain.strangers(NODES)
    problem = "FileNotFoundError: no x.npy in data-dir '/srv\x1b[2J'"
    nameless = {key: value for key, value in words("pi-3").items() if key != wire.MAX_SAMPLES}
    brain.hear_all(
        {
            "1": None,
            "2": {wire.LEARNER: "pi-2", wire.PROBE: 1, wire.PROBLEM: problem},
            "3": nameless,
        }
    )
    # A fourth keeps the run going.
    brain.hear("4", words("pi-4"))
    brain.plan(1, (*NODES, "4"))
    rows = {row.node: row for row in brain.record.learners}
    assert rows["1"].reason == Why.UNANSWERED.value
    assert rows["2"].reason == f"cannot say what it can do: {problem.replace(chr(27), chr(0xFFFD))}"
    assert "does not say how many samples it holds" in rows["3"].reason


def test_a_problem_of_a_known_learner_is_on_its_row_until_it_is_mended():
    brain, _ = begun()
    for cycle, said in ((1, {wire.PROBLEM: "no x.npy"}), (2, {})):
        used = {task.node: task.samples for task in brain.plan(cycle, NODES).tasks}
        brain.settle(Returned(used, {}, {"1": {**words("pi-1"), **said}}, times=Times(60.0, 5.0)))
        assert brain.record.learners[0].problem == said.get(wire.PROBLEM, "")
        brain.close()
