"""What is known about one client: each value follows its own evidence."""

import pytest

from flwr_mel import wire
from flwr_mel.cycle.learner import Behaviour, Identity, Learner, Patience
from flwr_mel.cycle.reports import Report

NEW = Identity("71", "71", "71")


def counted(drawn, used=100, **more):
    """A report with what was drawn from a loader over `used` samples."""
    return Report(train_s=1.0, used=used, held=600, drawn=drawn, **more)


# --- identity --------------------------------------------------------------------------------------------


def test_an_answer_without_a_mod_shows_only_that_the_client_is_there():
    after = NEW.after({wire.PROBLEM: "no mod", wire.PARTITION: 3, wire.VIRTUAL: 1})
    assert after == Identity("71", "71", "71", answered=True, problem="no mod")


def test_the_newest_answer_of_a_mod_wins():
    first = NEW.after(
        {wire.MODDED: 1, wire.SIMULATED: 1, wire.PARTITION: 3, wire.VIRTUAL: 1, wire.PROBLEM: "x"}
    )
    assert first == Identity("3", "71", "3", True, True, True, True, "x")
    second = first.after({wire.MODDED: 1, wire.LEARNER: "pi"})
    assert second == Identity("3", "71", "pi", True, True, False, False, "")
    # An error is no evidence of anything.
    assert first.after({}) == Identity("3", "71", "3", True, True, True, True, "")


# --- behaviour -------------------------------------------------------------------------------------------


def test_a_reply_without_a_report_says_nothing():
    known = Behaviour(own_epochs=2, held=600, reads=True, chooses=True, stops=True, own_tasks=1)
    assert known.after(Report(used=3, held=5), 3, 100) is known


def test_what_a_report_says():
    report = Report(train_s=1.0, own_epochs=3, read=True, used=100, held=600, stops=True)
    assert Behaviour().after(report, 0, 50) == Behaviour(3, 600, None, True, True, True, 0)
    silent = Behaviour().after(Report(train_s=1.0), 2, 50)
    assert silent == Behaviour(None, 50, None, None, False, False, 0)  # the app's number of examples
    # What is not reported keeps its value, what is counted in each task is of this task.
    assert Behaviour(3, 600, None, True, True, True).after(Report(train_s=1.0), 2, 50) == Behaviour(
        3, 600, None, True, False, False, 0
    )


def test_own_work_is_counted_in_own_tasks():
    own = Behaviour().after(counted(1800, used=600), 0, 600)
    assert (own.own_epochs, own.own_drawn) == (3, 1800)
    # In a task it is not, and a task that was cut says nothing about epochs.
    assert own.after(counted(500), 5, 600).own_drawn == 1800
    cut = own.after(counted(130, stopped=True), 5, 600)
    assert (cut.own_epochs, cut.own_drawn, cut.own_tasks) == (3, 1800, 0)


@pytest.mark.parametrize(
    ("epochs", "done", "same"),
    [
        (4, 4, True),
        (4, 5, True),  # an evaluation
        (4, 6, True),  # half as many more
        (4, 6.1, False),
        (4, 2.7, True),
        (4, 2.6, False),
        (1, 2, True),  # an evaluation
        (1, 2.1, False),
        (10, 15, True),
        (10, 15.1, False),
    ],
)
def test_counted_epochs_are_those_of_the_task_or_the_client_does_own_tasks(epochs, done, same):
    """Within a factor of 1.5, because a loader may leave out samples, and one more for an evaluation."""
    after = Behaviour(own_epochs=4, reads=True).after(counted(100 * done), epochs, 100)
    assert after.own_tasks == (0 if same else 2)


def test_after_two_own_tasks_a_client_is_tried_again():
    x = Behaviour(own_epochs=2, reads=True).after(counted(200), 5, 100)
    tasks = [x.own_tasks]
    for _ in range(3):
        x = x.after(counted(200), 0, 100)
        tasks.append(x.own_tasks)
    assert tasks == [2, 1, 0, 0]


def test_own_tasks_that_are_not_counted_are_counted_down():
    x = Behaviour(own_epochs=2, reads=True, own_tasks=2)
    tasks = []
    for _ in range(3):
        x = x.after(Report(train_s=1.0, used=100), 0, 100)
        tasks.append(x.own_tasks)
    assert tasks == [1, 0, 0]


def test_epochs_that_are_not_read_are_the_projects_own():
    """What the loader counts is true, whatever the config says."""
    x = Behaviour().after(counted(300, read=False, own_epochs=5), 0, 100)
    assert (x.own_epochs, x.own_tasks) == (3, 0)
    assert x.after(counted(300, read=False), 5, 100).own_tasks == 0


# --- patience --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slow", [True, False])
def test_waits_double_up_to_sixteen_rounds(slow):
    x, cycle, waits = Patience(), 1, []
    for _ in range(6):
        x = x.after(cycle, slow=slow)
        waits.append(x.until - cycle - 1)
        cycle = x.until
    assert waits == [2, 4, 8, 16, 16, 16]
    assert x.slow is slow


def test_a_sign_of_life_ends_the_first_wait_of_a_silent_client():
    once = Patience().after(3, slow=False)
    assert once.heard() == Patience(1, 0)
    twice = once.after(6, slow=False)
    assert twice.heard() == twice
    slow = Patience().after(3, slow=True)
    assert slow.heard() == slow  # it answered all the time


# --- the whole learner -----------------------------------------------------------------------------------


def test_own_work_of_epochs_and_of_counts():
    def of(**behaviour):
        return Learner(NEW, behaviour=Behaviour(**behaviour))

    assert of().own_work is None
    assert of(held=600).own_work == 600
    assert of(held=600, own_epochs=3).own_work == 1800
    # Counted, with an evaluation, which is no part of the time that is planned.
    both = of(held=600, own_epochs=1, own_drawn=1200)
    assert (both.own_work, both.own_trained) == (1200, 600)
    # Some samples fewer, because the loader drops the last batch.
    fewer = of(held=600, own_epochs=1, own_drawn=590)
    assert (fewer.own_work, fewer.own_trained) == (590, 590)
    # max_steps: its epochs say nothing.
    steps = of(held=600, own_epochs=1, own_drawn=320, own_tasks=2)
    assert (steps.own_work, steps.own_trained) == (320, 320)
    # The app was repaired since: the count is out of date.
    assert of(held=600, own_epochs=1, own_drawn=320).own_work == 600


def test_a_checkpoint_forgets_that_a_client_did_other_work():
    """Its app may have been repaired since."""
    x = Learner(NEW, behaviour=Behaviour(2, 600, 1200.0, True, True, True, 2), patience=Patience(2, 9, True))
    back = Learner.from_dict("71", x.as_dict())
    assert back.behaviour == Behaviour(2, 600, 1200.0, True, True, True, 0)
    assert back.patience == x.patience
    assert not back.identity.answered
