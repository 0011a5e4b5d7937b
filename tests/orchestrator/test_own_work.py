"""Whether tasks are followed: learners are planned for as they work, and it is said once, with the remedy."""

import json

import pytest

from flwr_mel import wire
from flwr_mel.allocation.limiting import Limit
from flwr_mel.orchestrator import NobodyWorks, Orchestrator, Returned, Settings
from flwr_mel.orchestrator.own_work import OwnWork, after_own_round
from flwr_mel.orchestrator.state import State
from flwr_mel.records import Outcome
from tests.orchestrator.devices import Device, brain_of, cycle

COSTS = dict(zip(wire.COEFFICIENTS, (1e-3, 0.0, 0.1, 0.0, 0.0, 0.0), strict=True))


def notes_of(brain, words):
    return [note for record in brain.records for note in record.notes if words in note]


@pytest.mark.parametrize(
    ("follows", "words", "remedy"),
    [
        ("epochs", "the app uses all its samples in every cycle", ".loader(loader)"),
        ("samples", "the app did not read the epochs", "epochs_key="),
        ("nothing", "the app did not read the epochs", "local-epochs"),
        ("nothing", "so that nothing can be planned", ".loader(loader)"),
    ],
)
def test_what_is_not_followed_is_said_once_with_the_remedy(follows, words, remedy):
    devices = [Device(speed, follows=follows) for speed in (1.0, 4.0)]
    brain = brain_of(devices)
    for number in range(1, 5):
        cycle(brain, devices, number)
    (note,) = notes_of(brain, words)
    assert remedy in note
    assert note.startswith("learners 0, 1: ")
    assert len([note for record in brain.records for note in record.notes if "the app" in note]) == 1
    assert bool(notes_of(brain, "only epochs can be planned")) == (follows == "epochs")


def test_a_key_that_the_app_does_not_read_is_named():
    devices = [Device(speed, follows="nothing") for speed in (1.0, 4.0)]
    brain = brain_of(devices, epochs_key="nb-epochs")
    cycle(brain, devices, 1)
    (note,) = notes_of(brain, "did not read the epochs")
    assert "epochs_key='nb-epochs' names where they are laid" in note
    assert "leave it out" in note


def test_a_client_that_ignores_its_task_is_planned_for_as_it_works():
    """The record said tau=26, d=86 while the client did one epoch on 600 samples."""
    devices = [Device(1.0, samples=600, epochs=1, follows="nothing") for _ in range(3)]
    brain = Orchestrator(Settings(cycle_time_s=2.0, total_samples=258, staleness=1))
    for k in range(3):
        brain.hear(f"n{k}", {wire.LEARNER: str(k), wire.MAX_SAMPLES: 600, **COSTS})
    record, _ = cycle(brain, devices, 1)
    assert [row.samples for row in record.learners] == [86] * 3
    assert [row.samples_used for row in record.learners] == [600] * 3
    record, did = cycle(brain, devices, 2)
    assert [(row.epochs, row.samples) for row in record.learners] == [(1, 600)] * 3
    assert [did[k][:2] for k in range(3)] == [(1, 600)] * 3
    assert len(notes_of(brain, "did not read the epochs")) == 1
    assert len(notes_of(brain, "nothing can be planned")) == 1


def test_learners_that_can_be_told_more_are_told_more_beside_others():
    devices = [
        Device(4.0, follows="both"), Device(1.0, follows="epochs"), Device(2.0, follows="samples"),
        Device(1.0, follows="nothing"),
    ]  # fmt: skip
    brain = brain_of(devices, staleness=1)
    for number in range(1, 6):
        record, did = cycle(brain, devices, number)
        for k, row in enumerate(record.learners):
            assert row.outcome is Outcome.USED
            assert row.samples == did[k][1]
            assert row.epochs == did[k][0] or devices[k].follows == "nothing"
    told = [record.learners[k].epochs for k in (0, 1)]
    assert max(told) - min(told) <= 1
    assert record.total_samples == sum(samples for _, samples, _ in did.values())


def test_who_always_uses_all_its_samples_and_cannot_in_time_is_left_out_with_the_remedy():
    devices = [Device(1.0), Device(0.05, follows="epochs")]
    brain = brain_of(devices, cycle_time_s=1.0)
    cycle(brain, devices, 1)
    record, did = cycle(brain, devices, 2)
    assert list(did) == [0]
    assert "always uses all its 100 samples, which takes 2 s: give it fewer" in record.learners[1].reason
    alone = brain_of(devices[1:], cycle_time_s=1.0)
    cycle(alone, devices[1:], 1)
    assert not alone.plan(2, ["n0"]).tasks


def test_a_fast_learner_of_epochs_only_keeps_within_the_cap_of_slow_ones_that_are_told_all():
    devices = [Device(0.15, epochs=1), Device(10.0, epochs=1, follows="epochs")]
    brain = brain_of(devices, cycle_time_s=1.0, staleness=1, min_samples=100)
    for number in (1, 2, 3):
        record, did = cycle(brain, devices, number)
    assert [did[k][0] for k in (0, 1)] == [1, 2]
    assert [row.outcome for row in record.learners] == [Outcome.USED] * 2
    assert record.learners[1].limited_by is Limit.STALENESS
    assert not notes_of(brain, "5 times the project's own")


def test_epochs_stay_within_five_times_the_projects_own_and_it_is_said():
    """A quickstart went from 1 epoch to 25, another example to 142,802."""
    devices = [Device(1000.0, epochs=1, follows="epochs"), Device(1.0, epochs=1, follows="epochs")]
    brain = brain_of(devices)
    for number in (1, 2, 3):
        _, did = cycle(brain, devices, number)
    assert [did[k][0] for k in (0, 1)] == [5, 1]
    (note,) = notes_of(brain, "5 times the project's own")
    assert "max_epochs=" in note


def test_a_link_counts_on_devices_and_waiting_in_a_simulation_does_not():
    said = {wire.TRAIN_SECONDS: 2.0, wire.SAMPLES_USED: 100, wire.OWN_EPOCHS: 2, wire.EPOCHS_READ: wire.YES}
    own, costs = after_own_round(said, 100, 5.0)
    assert (own.seconds, costs[0], costs[2]) == (5.0, 0.01, 3.0)
    own, costs = after_own_round({**said, wire.SIMULATED: 1}, 100, 5.0)
    assert (own.seconds, costs[0], costs[2]) == (2.0, 0.01, 0.0)
    # Nobody trains longer than its round trip, whatever it says.
    own, costs = after_own_round({**said, wire.TRAIN_SECONDS: 50.0}, 100, 5.0)
    assert own.seconds == 5.0
    assert after_own_round({}, 100, 5.0) is None


@pytest.mark.parametrize("odd", [None, -1, 0, "many", float("nan"), 1e300, True])
def test_odd_reports_break_nothing(odd):
    keys = (wire.SAMPLES_USED, wire.SAMPLES_HELD, wire.OWN_EPOCHS, wire.EPOCHS_DONE, wire.EPOCHS_READ)
    found = after_own_round({wire.TRAIN_SECONDS: 1.0, **dict.fromkeys(keys, odd)}, 7, None)
    assert found is not None
    own, costs = found
    assert (own.epochs, own.samples) == (1, 7)
    assert costs[0] > 0


def test_a_newcomer_begins_with_its_own_round_and_a_known_one_does_not_begin_again():
    devices = [Device(1.0), Device(2.0), Device(3.0)]
    brain = brain_of(devices[:2])
    for number in (1, 2):
        cycle(brain, devices[:2], number)
    kept = json.loads(json.dumps(brain.state.snapshot()))
    brain.strangers(["n0", "n1", "n2"])
    brain.hear("n2", {wire.PROBE: 3, wire.LEARNER: "2"})
    record, did = cycle(brain, devices, 3)
    assert [row.free for row in record.learners] == [False, False, True]
    assert did[2][:2] == (2, 100)
    fresh = brain_of(devices[:2])
    fresh.restore(kept)
    assert fresh.state.cycle_time_s == kept["cycle_time_s"]
    record, _ = cycle(fresh, devices[:2], 3)
    assert not any(row.free for row in record.learners)


def test_what_is_kept_of_a_learner_is_checked_when_it_is_read():
    good = OwnWork(2, 100, 1.5, True, False).as_dict()
    assert OwnWork.from_dict(good) == OwnWork(2, 100, 1.5, True, False)
    for bad in ({}, {**good, "epochs": 0}, {**good, "steers_epochs": 1}, {**good, "seconds": -1.0}):
        with pytest.raises(ValueError, match="own work"):
            OwnWork.from_dict(bad)
    assert State.restored({"cycle": 3, "own_work": {"a": good}}).absent["a"].own.samples == 100


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, ("did not answer when it was asked what it can do", "probe_timeout_s=...")),
        ({}, ("does not say what it can do (no mel_mod)", "ClientApp(mods=[mel_mod])")),
        ({wire.PROBLEM: "KeyError: 'arrays'"}, ("(no mel_mod): KeyError: 'arrays'", "the mod first")),
        (
            {wire.PROBE: 1, wire.PROBLEM: "ValueError: the fleet has 2 devices"},
            ("cannot say what it can do: ValueError: the fleet has 2 devices", "Mend what MelMod(...)"),
        ),
        (
            {wire.PROBE: 1, wire.CPU_HZ: 1e9},
            ("its capabilities are refused: mel-rate-bps must", "Mend these"),
        ),
    ],
)
def test_nobody_works_is_an_error_in_the_first_cycle(answer, words):
    brain = Orchestrator(Settings())
    brain.strangers(["n0", "n1"])
    brain.hear_all({"n0": answer, "n1": answer})
    with pytest.raises(NobodyWorks, match="the model stays untrained") as raised:
        brain.plan(1, ["n0", "n1"])
    for word in words:
        assert word in str(raised.value).replace("\n", " ")
    assert len(brain.records) == 1  # on record before the run ends


def test_one_who_cannot_work_is_left_out_beside_others_with_the_cause():
    devices = [Device(), Device()]
    brain = brain_of(devices)
    brain.strangers(["n0", "n1", "n2"])
    brain.hear("n2", {wire.PROBE: 1, wire.LEARNER: "2", wire.PROBLEM: "ValueError: the fleet has 2 devices"})
    plan = brain.plan(1, ["n0", "n1", "n2"])
    assert [task.node for task in plan.tasks] == ["n0", "n1"]
    assert "the fleet has 2 devices" in brain.record.learners[2].reason


def test_a_learner_that_fails_beside_others_is_named_as_one(caplog):
    """`1 failed` was read as a count."""
    brain = brain_of([Device(), Device()])
    brain.plan(1, ["n0", "n1"])
    with caplog.at_level("WARNING", "flwr.mel"):
        brain.settle(Returned({"n0": 100}, {"n1": (Outcome.FAILED, "no such file: x.csv")}, {}))
    assert "cycle 1, node 1 failed: no such file: x.csv" in caplog.text


def test_where_all_fail_in_the_first_cycle_the_error_has_their_words():
    brain = brain_of([Device(), Device()])
    brain.plan(1, ["n0", "n1"])
    with pytest.raises(NobodyWorks, match="RuntimeError: no data"):
        brain.settle(Returned({}, dict.fromkeys(["n0", "n1"], (Outcome.FAILED, "RuntimeError: no data")), {}))


def test_a_run_in_which_everybody_was_always_late_ends_with_an_error(caplog):
    """The worst fault is the silent one: a run that ends well and trained nothing."""
    brain = brain_of([Device(), Device()])
    for number in (1, 2):
        brain.plan(number, ["n0", "n1"])
        brain.settle(Returned({}, dict.fromkeys(["n0", "n1"], (Outcome.LATE, "no reply within 2 s")), {}))
        brain.close()
    # Said as well where nobody tells when the last cycle is over.
    assert "cycle 2: nobody's update was used so far" in caplog.text
    assert [any("as it began" in note for note in record.notes) for record in brain.records] == [False, True]
    with pytest.raises(NobodyWorks, match="in no cycle was anybody's update used") as raised:
        brain.check_trained()
    assert "no reply within 2 s" in str(raised.value)
    record, _ = cycle(brain, [Device(), Device()], 3)
    brain.check_trained()
    assert not any("as it began" in note for note in record.notes)
