"""The task as an app reads it: planned, baseline, or under another strategy."""

import numpy as np
import pytest

from flwr_mel import wire
from flwr_mel._npy import write_npy
from flwr_mel.clientapp import Assignment, mel_mod
from tests.clientapp.tools import BASELINE, TASK, call, classic_call, context, reply_to, task_message


def test_a_task_chooses_its_samples():
    task = Assignment.from_message(task_message(TASK))
    assert (task.epochs, task.samples, task.cycle, task.seed, task.shard) == (7, 20, 1, 3, None)
    expected = np.sort(np.random.default_rng([3, 1]).choice(100, 20, replace=False))
    np.testing.assert_array_equal(task.choose(100), expected)
    np.testing.assert_array_equal(task.choose(20), np.arange(20))
    np.testing.assert_array_equal(task.choose(5), np.arange(5))
    assert task.rng().integers(1000) == np.random.default_rng(3).integers(1000)
    for name in ("epochs", "samples", "seconds_left"):
        with pytest.raises(AttributeError):
            setattr(task, name, 1)
    assert repr(task) == "Assignment(epochs=7, samples=20, cycle=1, seed=3, shard=None)"


def test_a_shard_is_the_clients_own():
    x, y = np.arange(40.0).reshape(20, 2), np.arange(20)
    parts = {f"{wire.SHARD}{i}": write_npy(part) for i, part in enumerate((x, y))}
    task = Assignment.from_message(task_message({**TASK, **parts}))
    np.testing.assert_array_equal(task.shard[0], x)
    np.testing.assert_array_equal(task.shard[1], y)
    task.shard[0][:] = 0
    with pytest.raises(ValueError, match="arrays of 21 samples"):
        Assignment.from_config({**TASK, **parts, wire.SAMPLES: 21})
    with pytest.raises(ValueError, match="mel-shard-0 cannot be decoded"):
        Assignment.from_config({**TASK, f"{wire.SHARD}0": b"x"})


def test_a_baseline_task_leaves_everything_as_it_is():
    task = Assignment.from_config(BASELINE)
    assert (task.epochs, task.samples, task.cycle, task.seed) == (1, None, 1, 3)
    np.testing.assert_array_equal(task.choose(100), np.arange(100))


def own_epochs(words, run_config=None, config=None, epochs=None):
    """Epochs of the task, in both APIs."""
    seen = []
    kwargs = {"ctx": context(run_config or {}), "config": config}
    one = call(lambda m, c: seen.append(Assignment.from_message(m, epochs).epochs), words, **kwargs)
    two = classic_call(lambda c: seen.append(Assignment.from_config(c, epochs).epochs), words, **kwargs)
    assert one.get(wire.OWN_EPOCHS) == two.get(wire.OWN_EPOCHS)
    assert seen[0] == seen[1]
    return seen[0], one.get(wire.OWN_EPOCHS)


def test_the_epochs_of_a_baseline_task_are_the_projects_own():
    assert own_epochs(BASELINE, {"local-epochs": 3}, {"epochs": 4}, epochs=5) == (5, 5)
    assert own_epochs(BASELINE, {"local-epochs": 3}, {"epochs": 4}) == (4, 4)
    assert own_epochs(BASELINE, {"local-epochs": 3}) == (3, 3)
    assert own_epochs(BASELINE) == (1, None)
    assert own_epochs({**BASELINE, wire.EPOCHS_KEY: "e"}, {"local-epochs": 3}, {"e": "6"}) == (6, 6)
    # A planned task has its own, and still reports the project's.
    assert own_epochs(TASK, {"local-epochs": 3}, epochs=5) == (7, 5)


def test_under_another_strategy_the_task_is_neutral_and_one_warning_says_so(caplog):
    seen = []

    def work(message, ctx):
        task = Assignment.from_message(message)
        seen.append((task.epochs, task.samples, task.cycle, len(task.choose(50))))
        return reply_to(message)

    for server_round in (1, 2):
        message = task_message({}, lr=0.1, **{"server-round": server_round})
        reply = mel_mod(message, context({"local-epochs": 3}), work)
        assert wire.RECORD not in reply.content
    assert seen == [(3, None, 1, 50), (3, None, 2, 50)]
    # Without the mod, the epochs are the message's or those of the argument.
    assert Assignment.from_config({"epochs": 4}).epochs == 4
    assert Assignment.from_config({}, epochs=2).epochs == 2
    warnings = [x.getMessage() for x in caplog.records if x.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "not planned by flwr_mel" in warnings[0]
    assert "MelStrategy" in warnings[0]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({wire.EPOCHS: 0}, "mel-epochs must be an integer from 1"),
        ({wire.SAMPLES: "x"}, "mel-samples must be an integer from 1"),
        ({wire.SEED: -1}, "mel-seed must be an integer from 0"),
        ({wire.CYCLE: 0}, "mel-cycle must be an integer from 1"),
    ],
)
def test_a_task_that_makes_no_sense_is_an_error(change, text):
    with pytest.raises(ValueError, match=text):
        Assignment.from_config({**TASK, **change})
    with pytest.raises(ValueError, match="epochs must be an integer from 1"):
        Assignment.from_config(BASELINE, epochs=0)
