"""Questions beside the training, the mod alone, and the strategy's own cost; without Ray."""

import time

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.common import Code, GetPropertiesRes, Status
from flwr.supercore.task_identity import TaskIdentity

from bench.strategy import in_process
from flwr_mel import Device, wire
from flwr_mel.clientapp import MelMod, mel_mod
from flwr_mel.learners import Measured
from flwr_mel.server.asking import Questions as ClassicQuestions
from flwr_mel.serverapp.asking import Questions as MessageQuestions


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    """Messages can only be made inside a run."""
    for name in ("task_id", "run_id", "node_id"):
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1)


class Client:
    def __init__(self, cid, seconds=0.0, error=None):
        self.cid, self.seconds, self.error, self.asked = cid, seconds, error, 0

    def get_properties(self, ins, timeout, group_id):
        self.asked += 1
        time.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        return GetPropertiesRes(Status(Code.OK, ""), {"cycle": ins.config[wire.PROBE]})


class OddGrid:
    """Node 1 answers, node 2 with an error, node 3 never."""

    def __init__(self):
        self.sent = {}

    def push_messages(self, messages):
        for n, message in enumerate(messages):
            message.metadata.__dict__["_message_id"] = f"{len(self.sent)}-{n}"
            self.sent[message.metadata.message_id] = message
        return list(self.sent)

    def pull_messages(self, message_ids):
        for i in message_ids:
            question = self.sent[i]
            if question.metadata.dst_node_id == 1:
                yield Message(
                    RecordDict({wire.RECORD: ConfigRecord({"mel-learner": "a"})}), reply_to=question
                )
            elif question.metadata.dst_node_id == 2:
                yield Message(Error(code=2, reason="no mod"), reply_to=question)


def test_classic_clients_are_asked_at_once_and_waited_for_once():
    questions = ClassicQuestions(timeout_s=1.0)
    slow, fine, broken = Client("slow", 3.0), Client("fine"), Client("broken", error=ValueError())
    questions.ask([slow, fine, broken], 3)
    assert questions.answers() == {"slow": None, "fine": {"cycle": 3}, "broken": None}
    questions.ask([slow, fine], 4)
    start = time.perf_counter()
    while "fine" not in (heard := questions.answers()):
        pass
    assert time.perf_counter() - start < 0.9  # the slow one is not waited for again
    assert "slow" not in heard
    while not (heard := questions.answers()):
        time.sleep(0.1)
    assert heard == {"slow": {"cycle": 3}}
    assert slow.asked == 1


def test_message_nodes_are_asked_at_once_and_waited_for_once():
    questions, grid = MessageQuestions(timeout_s=0.3), OddGrid()
    questions.ask(["1", "2", "3"], 1, grid)
    assert questions.answers(grid) == {"1": {"mel-learner": "a"}, "2": None, "3": None}
    questions.ask(["1", "3"], 2, grid)
    assert len(grid.sent) == 4
    start = time.perf_counter()
    assert questions.answers(grid) == {"1": {"mel-learner": "a"}}
    assert time.perf_counter() - start < 0.2


def context(k=2, **config):
    return Context(1, 1, {"partition-id": k, **config}, RecordDict(), {"mel-tx-power-w": 0.2})


def probe(cycle=4):
    return Message(RecordDict({wire.RECORD: ConfigRecord({wire.PROBE: cycle})}), 1, "train")


def said(mod, ctx):
    reply = mod(probe(), ctx, None)
    return dict(reply.content[wire.RECORD])


def test_the_mod_reads_the_node_config_and_the_run_config():
    assert said(mel_mod, context(**{"mel-cpu-hz": 2e9, "other": 1})) == {
        wire.CPU_HZ: 2e9,
        wire.TX_POWER_W: 0.2,
        wire.LEARNER: "2",
    }
    assert said(mel_mod, context(name="pi"))[wire.LEARNER] == "pi"


def test_the_mod_takes_devices_lists_functions_and_numpy_numbers():
    fleet = [Device(1e9 + k, 1e7, 0.1) for k in range(4)]
    assert said(MelMod(fleet), context())[wire.CPU_HZ] == 1e9 + 2
    assert said(MelMod(Measured(1, 2, 3, 4, 5, 6)), context())[wire.COEFFICIENTS[5]] == 6.0
    words = said(
        MelMod(lambda ctx, cycle: {wire.CPU_HZ: np.float32(cycle), "mel-x": {}, "mel-y": None}), context()
    )
    assert words == {wire.CPU_HZ: 4.0, wire.LEARNER: "2"}


def test_a_broken_capability_still_lets_the_reply_through():
    def train(message, ctx):
        return Message(RecordDict({"metrics": MetricRecord({"n": 1})}), reply_to=message)

    task = RecordDict({"config": ConfigRecord({wire.EPOCHS: 1, wire.CYCLE: 1})})
    reply = MelMod(lambda ctx, cycle: 1 / 0)(Message(task, 1, "train"), context(), train)
    report = reply.content[wire.RECORD]
    assert set(report) == {wire.LEARNER, wire.TRAIN_SECONDS}
    assert said(MelMod(lambda ctx, cycle: 1 / 0), context()) == {wire.LEARNER: "2"}


def test_the_cost_of_the_strategy_grows_with_the_learners_and_no_faster():
    few, many = in_process(100), in_process(1000)
    assert many["own_ms"] < 25 * few["own_ms"]
    assert many["own_ms"] < 1000
