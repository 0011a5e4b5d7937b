"""Trainings that continue as if nothing had happened."""

import logging
import subprocess
import sys
from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import ArrayRecord
from flwr.serverapp import strategy as message_flower

from flwr_mel import Estimation, JsonlWriter, Rounds, Stopping, read_jsonl
from flwr_mel.checkpoint.files import read
from flwr_mel.cycle.state import State
from tests.checkpoint.project import (
    APIS,
    CLIENTS,
    LocalGrid,
    Training,
    assert_equal,
    facts,
    same,
    start_weights,
)
from tests.waiting import PATIENCE_S

STATE = {
    "FedAvg": set(),
    "FedAdam": {"m_t", "v_t"},
    "FedAvgM": {"momentum_vector"},
    "clipped": {"m_t", "v_t", "clipping_norm"},
    "own": {"norm", "history"},
}


def state_of(training, names):
    layers = (training.inner, getattr(training.inner, "strategy", training.inner))
    return {name: x for layer in layers for name, x in vars(layer).items() if name in names}


@APIS
@pytest.mark.parametrize("inner", STATE)
def test_a_resumed_training_equals_an_uninterrupted_one(tmp_path, api, inner):
    whole = Training(api, inner=inner).run()
    assert [r.cycle for r in whole.mel.records] == [1, 2, 3, 4]
    assert all(r.total_samples == 100 and not r.failures for r in whole.mel.records)
    first = Training(api, tmp_path, inner).run(2)
    assert not same(first.final, whole.final)
    # The model that the project begins with does not matter any more.
    rest = Training(api, tmp_path, inner, weights=[np.zeros_like(w) for w in start_weights()]).run()
    assert_equal(rest, whole)
    assert first.evaluated + rest.evaluated == whole.evaluated == [0, 1, 2, 3, 4]
    assert set(state_of(whole, STATE[inner])) == STATE[inner]
    np.testing.assert_equal(state_of(rest, STATE[inner]), state_of(whole, STATE[inner]))
    if api == "message":
        assert list(rest.result.evaluate_metrics_serverapp) == [3, 4]
        assert [r.cycle for r in rest.result.records] == [1, 2, 3, 4]


KILLS = """
import gc, logging, os, signal, sys
from pathlib import Path
from flwr_mel import JsonlWriter, read_jsonl
from tests import identity
from tests.checkpoint.project import Training, assert_equal, facts
identity.pretend()
logging.getLogger("flwr").setLevel(logging.ERROR)
place, api = Path(sys.argv[1]), sys.argv[2]
training = lambda: Training(api, place / "c", callbacks=[JsonlWriter(place / "r.jsonl")])


def kill_at(n):
    # Kill this process when it is about to change the disk for the nth time.
    left = n
    def counted(change):
        def call(*args, **kwargs):
            nonlocal left
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            return change(*args, **kwargs)
        return call
    for name in ("fsync", "replace", "unlink", "truncate"):
        setattr(os, name, counted(getattr(os, name)))


gc.freeze()  # Flower collects garbage after every array
for n in (8, 1, 2, 3, 4, 5, 7):
    child = os.fork()
    if not child:
        kill_at(n)
        training().run(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, n
rest, whole = training(), Training(api).run(7)
assert 0 < rest.strategy.rounds_left(7) < 5, rest.strategy.rounds_left(7)
assert_equal(rest.run(7), whole)
assert facts(read_jsonl(place / "r.jsonl")) == facts(whole.mel.records)
"""


@APIS
def test_a_server_killed_again_and_again_ends_where_it_would_have(tmp_path, api):
    done = subprocess.run(
        [sys.executable, "-c", KILLS, tmp_path, api],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr


@APIS
def test_nothing_is_left_to_do_and_more_rounds(tmp_path, api):
    done = Training(api, tmp_path).run()
    again = Training(api, tmp_path)
    again.inner.eta = 0.5
    assert_equal(again.run(), done)
    assert again.evaluated == []
    assert again.inner.eta == 0.5  # what training leaves alone stays the user's setting
    assert_equal(Training(api, tmp_path).run(6), Training(api).run(6))


def test_arguments_of_start_may_be_positional(tmp_path):
    training = Training("message", tmp_path)
    training.strategy.start(LocalGrid("message"), ArrayRecord(start_weights()), 2, 60.0)
    assert len(training.mel.records) == 2


@APIS
def test_a_stopped_training_stays_stopped_unless_the_criteria_change(tmp_path, api, caplog):
    caplog.set_level(logging.INFO, "flwr.mel")
    stopped = Training(api, tmp_path, callbacks=[Stopping(cycles=2)]).run()
    assert stopped.mel.stopped == "2 rounds done"
    assert_equal(Training(api, tmp_path, callbacks=[Stopping(cycles=2)]).run(), stopped)
    assert "training had stopped after round 2: 2 rounds done" in caplog.text
    more = Training(api, tmp_path, callbacks=[Stopping(cycles=3)]).run()
    assert [r.stopped for r in more.mel.records] == ["", "2 rounds done", "3 rounds done"]
    assert same(more.final, Training(api, callbacks=[Stopping(cycles=3)]).run().final)


def test_the_file_of_records_loses_repeated_rounds_only(tmp_path):
    path = tmp_path / "r.jsonl"
    Training("message", callbacks=[JsonlWriter(path)]).run(3)  # another training
    Training("message", tmp_path / "c", callbacks=[JsonlWriter(path)]).run(3)
    (tmp_path / "c" / "round-00000003.npz").unlink()
    Training("message", tmp_path / "c", callbacks=[JsonlWriter(path)]).run()
    assert [r.cycle for r in read_jsonl(path)] == [1, 2, 3, 1, 2, 3, 4]


def test_under_another_strategy_the_model_is_that_ones(tmp_path):
    """A DP wrapper outside adds noise; the checkpoint has the noisy model."""
    first = Training("message", tmp_path, "FedAvg")
    checkpointed = first.strategy
    first.strategy = message_flower.DifferentialPrivacyServerSideFixedClipping(
        checkpointed, 0.1, 1.0, CLIENTS
    )
    with pytest.raises(RuntimeError, match=r"num_rounds = checkpointed\.resume"):
        first.run(2)
    checkpointed.resume(ArrayRecord(start_weights()), 2)
    first.run(2)
    assert same(list(read(tmp_path / "round-00000002.npz")["model"].values()), first.final)
    rest = Training("message", tmp_path, "FedAvg")
    arrays, left = rest.strategy.resume(ArrayRecord(start_weights()), 5)
    assert left == 3
    assert same(arrays.to_numpy_ndarrays(), first.final)


class Past(deque):
    """State that a checkpoint cannot keep."""


@APIS
def test_state_that_cannot_be_kept_is_named_once(tmp_path, api, caplog):
    """Other attributes that cannot be kept do not change: they are no state."""
    training = Training(api, tmp_path, "own")
    training.inner.history, training.inner.folder = Past(), tmp_path
    training.inner.logger, training.inner.hook = logging.getLogger("x"), lambda: 1
    training.run(4)
    (warning,) = [r.getMessage() for r in caplog.records if "cannot keep" in r.getMessage()]
    assert warning.startswith(f"round 2: checkpoints cannot keep {type(training.inner).__name__}.history, ")


@APIS
def test_a_training_that_keeps_its_state_has_no_warning(tmp_path, api, caplog):
    for inner in STATE:
        Training(api, tmp_path / inner, inner).run(3)
    assert "cannot keep" not in caplog.text


def test_checkpoints_do_not_grow_with_the_rounds_of_large_fleets(tmp_path, monkeypatch):
    """The clients of older rounds are left out when they are many; the last round is kept."""
    monkeypatch.setattr("flwr_mel.checkpoint.strategies._KEEP_ROWS", 2 * CLIENTS)
    whole = Training("message", tmp_path / "a", callbacks=[JsonlWriter(tmp_path / "r.jsonl")]).run(4)
    rest = Training("message", tmp_path / "a").run(5)
    assert [len(record.learners) for record in whole.mel.records] == [CLIENTS] * 4
    assert [len(record.learners) for record in rest.mel.records] == [0, 0, CLIENTS, CLIENTS, CLIENTS]
    for old, new in zip(whole.mel.records, rest.mel.records, strict=False):
        assert replace(old, learners=new.learners) == new
    assert all(len(record.learners) == CLIENTS for record in read_jsonl(tmp_path / "r.jsonl"))


@APIS
def test_learned_costs_come_back(tmp_path, api):
    Training(api, tmp_path, estimation=Estimation()).run(3)
    state = read(tmp_path / "round-00000003.npz")["state"]
    assert len(state["learners"]) == CLIENTS
    assert all(x["estimate"]["seen"] == 3 for x in state["learners"].values())
    rest = Training(api, tmp_path, estimation=Estimation()).run(3)
    assert rest.mel.state.as_dict() == state == State.from_dict(state).as_dict()


class Held(LocalGrid):
    """For some rounds one node does not answer, because it still works for the server that was killed."""

    def __init__(self, node, messages):
        super().__init__("message")
        self.node, self.messages = node, messages

    def push_messages(self, messages):
        ids = []
        for message in messages:
            ids += super().push_messages([message])
            if message.metadata.dst_node_id == self.node and self.messages:
                self.messages -= 1
                del self.replies[ids[-1]]
        return ids


def test_a_client_held_by_the_old_server_loses_at_most_three_rounds(tmp_path):
    options = {"rounds": Rounds(deadline_slack=0.0, probe_timeout_s=0.1)}
    before = Training("message", tmp_path, "FedAvg", **options).run(2)
    rest = Training("message", tmp_path, "FedAvg", **options)
    rest.run(7, Held(4, messages=2))  # the probe and the first task
    rows = [next(row for row in r.learners if row.node == "4") for r in rest.mel.records]
    work = [row.epochs * row.samples for row in rows]
    assert [str(row.outcome) for row in rows] == ["used", "used", "late", "used", "used", "used", "used"]
    assert work[3] < work[1]
    assert all(x >= work[1] for x in work[5:])
    # Its limits hold although it did not answer.
    assert rows[2].energy_limit_j == rows[1].energy_limit_j == 0.5
    assert rows[2].held == rows[1].held == 55
    assert facts(list(rest.mel.records)[:2]) == facts(before.mel.records)
