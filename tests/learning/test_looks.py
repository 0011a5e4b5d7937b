"""A reply that is announced and not uploaded yet holds nobody up: Flower's `pull_messages` waits for it."""

import threading

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from bench.strategy import InProcessGrid
from flwr_mel.clientapp import MelMod
from flwr_mel.devices import Measured
from flwr_mel.records import Outcome
from flwr_mel.serverapp import MelStrategy
from flwr_mel.serverapp.looking import Looks
from tests.waiting import PATIENCE_S, wait_for

SLOW = 2


def app():
    made = ClientApp(
        mods=[MelMod([Measured(1e-3, 0, 0, 0, 0, 0, name=f"d{k}", max_samples=9) for k in range(3)])]
    )

    @made.train()
    def train(message, context):
        said = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": message.content["arrays"], "metrics": said}), reply_to=message)

    return made


class Uploading(InProcessGrid):
    """Whoever asks for the first update of one node waits until it is uploaded, as in Flower's grid."""

    def __init__(self):
        super().__init__(app(), 3)
        self.slow, self.waiting, self.uploaded = None, threading.Event(), threading.Event()
        self.asked = []

    def push_messages(self, messages):
        messages = list(messages)
        ids = list(super().push_messages(messages))
        for key, message in zip(ids, messages, strict=True):
            if self.slow is None and message.metadata.dst_node_id == SLOW and message.content.array_records:
                self.slow = key
        return ids

    def pull_messages(self, message_ids):
        message_ids = list(message_ids)
        self.asked += message_ids
        if self.slow in message_ids:
            self.waiting.set()
            assert self.uploaded.wait(PATIENCE_S)
        return super().pull_messages(message_ids)


@pytest.mark.parametrize("how", ["deadline", "quorum", "keep"])
def test_the_cycle_goes_on_without_it(how, run_of_flower):
    """By the deadline, or as soon as enough others are there; late is not lost where tasks may span."""
    settings = {
        "deadline": {"cycle_time_s": 0.2, "enforce_deadline": True, "stragglers": "span"},
        "quorum": {"cycle_time_s": 60.0, "quorum": 0.6, "stragglers": "span"},
        "keep": {"cycle_time_s": 0.2, "enforce_deadline": True, "stragglers": "keep"},
    }[how]
    grid, seen = Uploading(), []

    def released(record):
        seen.append(record.cycle)
        if record.cycle == 2:
            assert grid.waiting.is_set()
            assert not grid.uploaded.is_set()
            grid.uploaded.set()
            name = "look for replies"
            wait_for(lambda: not any(thread.name == name for thread in threading.enumerate()))

    inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    strategy = MelStrategy(inner, max_epochs=1, callbacks=[released], **settings)
    strategy.start(grid, ArrayRecord([np.zeros(2)]), num_rounds=4)
    assert seen == [1, 2, 3, 4]
    rows = [{row.learner: row for row in record.learners} for record in strategy.records]
    assert rows[0]["d1"].outcome is (Outcome.BUSY if how == "quorum" else Outcome.LATE)
    assert grid.asked.count(grid.slow) == 1, "a second request would be told that there is no such message"
    moved = [n for n, row in enumerate(rows) if row["d1"].moved_weight]
    assert moved == ([] if how == "keep" else [2])


@pytest.fixture
def run_of_flower(monkeypatch):
    """Messages need a run to be made in."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("task_id", "run_id", "node_id"):
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1)


def message(key):
    made = Message(RecordDict({"config": ConfigRecord({})}), dst_node_id=1, message_type="train")
    made.metadata.__dict__["_reply_to_message_id"] = key
    return made


def test_what_a_look_brings(run_of_flower):
    gates = {key: threading.Event() for key in "abc"}
    there = dict(gates)

    def pull(ids):
        (key,) = ids  # few are asked for one by one
        if key == "b":
            assert gates["b"].wait(PATIENCE_S)
        return [message(key)] if there.pop(key, None) else []

    looks = Looks(pull)

    def found(ids, patience_s=PATIENCE_S):
        return [reply.metadata.reply_to_message_id for reply, _ in looks.look(ids, patience_s)]

    assert found("abc") == ["a", "c"]
    assert found("b", 0.0) == []
    gates["b"].set()
    assert wait_for(lambda: found("b")) == ["b"]
    assert found("abc") == []


def test_what_nobody_wants_any_more_is_dropped(run_of_flower):
    looks = Looks(lambda ids: [message("b"), message("c")] if ids == ["a"] else [])
    assert looks.look(["a"]) == []
    looks.forget(["c"])
    assert [reply.metadata.reply_to_message_id for reply, _ in looks.look(["b", "c"])] == ["c"]


def test_an_error_is_raised_where_somebody_hears_it():
    def pull(ids):
        raise ConnectionError("no SuperLink")

    with pytest.raises(ConnectionError, match="no SuperLink"):
        Looks(pull).look(["a"])


def test_many_share_the_requests():
    asked = []

    def pull(ids):
        asked.append(list(ids))
        return []

    looks = Looks(pull)
    assert looks.look([str(k) for k in range(100)]) == []
    assert len(asked) == 32
    assert sorted(key for ids in asked for key in ids) == sorted(str(k) for k in range(100))
    assert looks.asking_s >= 0
