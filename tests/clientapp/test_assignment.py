"""The task as an app reads it: real, free, or not there."""

import numpy as np
import pytest

from flwr_mel import wire
from flwr_mel.clientapp import Assignment
from tests.clientapp.tools import FREE, TASK, call, context, task_message


def test_a_task_chooses_its_samples():
    task = Assignment.from_message(task_message(TASK))
    assert (task.epochs, task.samples, task.cycle, task.seed, task.free) == (7, 20, 1, 3, False)
    rows = task.choose(100)
    assert len(set(rows.tolist())) == 20
    assert (np.diff(rows) > 0).all()
    np.testing.assert_array_equal(rows, task.choose(100))
    np.testing.assert_array_equal(task.choose(20), np.arange(20))
    np.testing.assert_array_equal(task.choose(5), np.arange(5))


def test_a_free_task_leaves_everything_as_it_is():
    task = Assignment.from_config(FREE)
    assert task.free
    np.testing.assert_array_equal(task.choose(100), np.arange(100))
    assert task.rng().integers(1000) == Assignment.from_config(FREE).rng().integers(1000)
    with pytest.raises(ValueError, match=r"this cycle is free.*task.choose"):
        _ = task.samples


def test_the_epochs_of_a_free_task_are_the_projects_own():
    seen = []
    ctx = context({"local-epochs": 3})
    report = call(lambda m, c: seen.append(Assignment.from_message(m).epochs), FREE, ctx)
    assert seen == [3]
    assert (report[wire.EPOCHS_READ], report[wire.EPOCHS_DONE]) == (wire.YES, 3)
    told = call(lambda m, c: seen.append(Assignment.from_message(m, epochs=2).epochs), FREE)
    assert seen == [3, 2]
    assert (told[wire.OWN_EPOCHS], told[wire.EPOCHS_DONE]) == (2, 2)
    # A task with epochs does not ask for the project's own.
    call(lambda m, c: seen.append(Assignment.from_message(m, epochs=2).epochs), TASK)
    assert seen == [3, 2, 7]


def test_epochs_that_nobody_knows_are_an_error_with_the_remedy():
    with pytest.raises(ValueError, match=r"this cycle is free.*epochs=.*epochs_key="):
        _ = Assignment.from_config(FREE).epochs


@pytest.mark.parametrize("config", [{}, {"lr": 0.1}, {wire.CYCLE: 1}, {wire.FREE: 1}])
def test_no_task_is_an_error_with_the_remedy(config):
    with pytest.raises(KeyError, match="wrapped in MelStrategy"):
        Assignment.from_config(config)
    with pytest.raises(KeyError, match="wrapped in MelStrategy"):
        Assignment.from_message(task_message({}, **config))


def test_a_task_can_be_shown_without_being_read():
    shown = []
    report = call(lambda m, c: shown.append(repr(Assignment.from_message(m))), TASK)
    assert shown[0].startswith("Assignment(epochs=7, samples=20, cycle=1, seed=3, shard=None")
    assert report[wire.EPOCHS_READ] == wire.NO
    assert "free=True" in repr(Assignment.from_config(FREE))


def test_hugging_face_datasets_select_what_was_chosen():
    import datasets

    data = datasets.Dataset.from_dict({"x": list(range(100))})
    task = Assignment.from_config(TASK)
    assert data.select(task.choose(len(data)))["x"][:] == task.choose(100).tolist()
