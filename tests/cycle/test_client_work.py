"""Truth about client work: clients are planned as they behave, which is logged once; plans are no facts."""

from dataclasses import replace

import pytest

from flwr_mel import Estimation, wire
from flwr_mel.cycle.learner import Behaviour, Learner
from flwr_mel.cycle.options import Options
from flwr_mel.cycle.population import Follows, Population
from flwr_mel.cycle.settle import Reply
from flwr_mel.cycle.state import State
from flwr_mel.records import Outcome
from flwr_mel.strategy import final_line
from tests.cycle.tools import MODEL, App, Run, declared

SLOW = (1, 1, 3, 10)


def run_of(rounds=6, **app):
    run = Run([App(pace=1e-3 * s, **app) for s in SLOW], estimation=Estimation(on_time=0.5))
    run.rounds(rounds)
    return run


def declaring(c2=1e-3, g2=0.0, limits=(), **app):
    """A client that declares its costs and holds 600 samples."""
    return App(capability=declared((c2, 0, 0, g2, 0, 0)) | {wire.MAX_SAMPLES: 600, **dict(limits)}, **app)


def notes(run, text):
    return [note for record in run.records for note in record.notes if text in note]


def test_clients_that_follow():
    run = run_of(own=2, loader=True)
    assert not notes(run, "the app")
    for record in run.records[1:]:
        assert not any(row.baseline for row in record.learners)
        assert [row.epochs_done for row in record.learners] == [row.epochs for row in record.learners]
        assert [row.samples_used for row in record.learners] == [row.samples for row in record.learners]


def test_epochs_that_were_not_counted_are_not_reported_as_done():
    run = run_of(own=2)
    assert all(row.epochs_done is None for record in run.records for row in record.learners)
    assert {row.epochs for row in run.records[0].learners} == {0}


def test_hard_coded_epochs_and_all_samples_leave_nothing_to_plan():
    run = run_of(own=3, named=False, reads=False, chooses=False)
    first, *others = (record.status for record in run.records)
    assert (first, set(others)) == ("baseline", {"own work"})
    assert final_line(run.records).startswith("no gain: clients do not follow their tasks")
    assert len(notes(run, "does not follow its epochs")) == 1
    assert len(notes(run, "uses all its samples")) == 1


@pytest.mark.parametrize("named", [True, False])
def test_hard_coded_epochs_are_learned_from_the_loader(named):
    """The number in the config may be another one: what the loader counts is true."""
    run = Run([App(pace=1e-3 * s, own=3, named=named, reads=False, loader=True) for s in SLOW])
    run.rounds(5)
    assert len(notes(run, "does not follow its epochs")) == 1
    assert not notes(run, "samples that were counted")
    for record in run.records[1:]:
        assert {row.epochs for row in record.learners} == {3}
        assert {row.epochs_done for row in record.learners} == {3.0}


@pytest.mark.parametrize("reads", [True, None])
def test_a_task_that_is_not_followed_shows_at_the_loader(reads):
    """A client whose counted epochs are not those of its task does two own tasks, then it is tried again."""
    run = run_of(own=1, reads=reads, follows=False, loader=True, rounds=8)
    assert len(notes(run, "samples that were counted are not those of the task")) == 1
    fast = [run.row(0, record) for record in run.records[1:]]
    assert [row.epochs for row in fast] == [2, 0, 0, 2, 0, 0, 2]
    assert [row.baseline for row in fast] == [row.epochs == 0 for row in fast]
    assert [run.row(3, record).epochs for record in run.records[1:]] == [1] * 7  # that is what it does


def test_max_steps():
    """Its own work is not the epochs of its config, so no number of epochs is what it does."""
    run = run_of(own=1, max_steps=10, loader=True)
    assert len(notes(run, "samples that were counted are not those of the task")) == 1
    for record in run.records[1:]:
        assert record.status == "own work"
        assert all(row.baseline for row in record.learners)
        assert record.cycle_time_s == pytest.approx(record.waited_s)
    assert run.records[-1].learners[0].epochs_done == pytest.approx(320 / 600, abs=1e-3)


def test_max_steps_with_declared_costs_and_a_plan_that_never_changes():
    run = Run([declaring(own=1, max_steps=2, loader=True)] * 3, cycle_time_s=5.0, total_samples=1800)
    run.rounds(3)
    assert len(notes(run, "samples that were counted are not those of the task")) == 1
    assert all(row.baseline for row in run.records[-1].learners)


@pytest.mark.parametrize("declares", [True, False])
def test_times_are_no_evidence_of_what_a_client_does(declares):
    """A fixed cost of any size, or times that do not depend on the task at all, change no plan."""
    apps = [declaring(pace=0, fixed_s=1.0) if declares else App(pace=0, fixed_s=1.0) for _ in range(3)]
    run = Run(apps, cycle_time_s=2.0, max_epochs=1)
    run.rounds(3)
    run.options = Options(cycle_time_s=20.0, max_epochs=5)
    run.rounds(3)
    assert not notes(run, "the app")
    assert not any(row.baseline for record in run.records[1:] for row in record.learners)


def test_an_evaluation_on_the_training_data_is_no_other_work():
    run = run_of(own=1, loader=True, passes=1)
    assert not notes(run, "the app")
    assert not any(row.baseline for record in run.records[1:] for row in record.learners)
    last = run.records[-1]
    assert last.waited_s <= 1.05 * last.makespan_s


def test_a_client_that_uses_all_its_samples_gets_epochs_only():
    run = run_of(own=2, chooses=False)
    assert len(notes(run, "uses all its samples")) == 1
    for record in run.records[1:]:
        assert {row.samples for row in record.learners} == {600}
        assert record.learners[0].epochs > record.learners[3].epochs == 1


def test_all_samples_of_a_client_that_never_said_how_many_it_holds():
    """Its costs are declared, so that it has no baseline round: its reply says it."""
    apps = [App(chooses=False, capability=declared()) for _ in range(3)]
    run = Run(apps, cycle_time_s=5.0, total_samples=900)
    run.rounds(3)
    assert [row.samples for row in run.records[-1].learners] == [600] * 3
    assert all(row.outcome is Outcome.USED for row in run.records[-1].learners)


@pytest.mark.parametrize(
    ("reads", "slow", "hungry"),
    [
        (True, "uses all its 600 samples, which takes 6 s", "uses all its 600 samples"),
        (False, "takes 6 s of T = 2 s", "uses 600 J of 30 J"),
    ],
)
def test_work_that_keeps_neither_time_nor_energy_is_not_planned(reads, slow, hungry):
    limit = {wire.ENERGY_LIMIT_J: 30.0}
    costs = ({}, {"c2": 1e-2}, {"g2": 1.0, "limits": limit})
    apps = [declaring(**c, chooses=False, reads=reads) for c in costs]
    run = Run(apps, cycle_time_s=2.0, total_samples=1800)
    run.rounds(2)
    fine_row, slow_row, hungry_row = run.records[-1].learners
    assert fine_row.outcome is Outcome.USED
    assert slow in slow_row.reason
    assert hungry in hungry_row.reason


def test_one_app_runs_on_all_clients():
    """What is known of some clients holds for those that were not seen yet."""
    apps = [App(reads=False, loader=True, own=2, named=False, capability=declared()) for _ in range(6)]
    run = Run(apps, cycle_time_s=5.0, total_samples=900)
    run.round(only=[0, 1, 2])
    later = run.round(only=[2, 3, 4, 5])
    assert run.row(3, later).epochs == 2  # as many as the others do
    assert run.row(2, later).epochs == 2


@pytest.mark.parametrize(
    ("chooses", "reads", "follows"),
    [
        (None, None, Follows.BOTH),
        (True, True, Follows.BOTH),
        (True, None, Follows.BOTH),
        (False, True, Follows.EPOCHS),
        (True, False, Follows.SAMPLES),
        (False, False, Follows.NOTHING),
        (None, False, Follows.SAMPLES),
    ],
)
def test_what_clients_follow(chooses, reads, follows):
    def known(node, **what):
        return replace(Learner.new(node), behaviour=Behaviour(**what))

    silent, told = known("1"), known("2", chooses=chooses, reads=reads)
    assert Population.of(State().with_learners([silent, told]), Options()).follows is follows
    assert Population.of(State(), Options()).follows is Follows.BOTH
    # Most reports decide.
    others = [known(str(k), chooses=True, reads=True) for k in (3, 4)]
    assert Population.of(State().with_learners([told, *others]), Options()).follows is Follows.BOTH


def test_a_client_without_a_report_is_planned_as_slow_as_the_slowest():
    run = Run([App(), App(pace=2e-3), App(pace=3e-3)], cycle_time_s=0.6)
    for _ in range(3):
        run.round(replies={"1000": Reply(dict(MODEL), 600, {}, None)})
    assert len(notes(run, "has no report")) == 1
    assert run.row(0).samples == run.row(2).samples < run.row(1).samples
