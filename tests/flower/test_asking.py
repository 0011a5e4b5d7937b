"""Questions beside the training, the mod alone, and the strategy's own cost; without Ray."""

import sys
from threading import Barrier, Event

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.common import Code, GetPropertiesRes, Status
from flwr.server.superlink.linkstate import utils as engine
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity

from bench.strategy import InProcessGrid, no_op_app
from flwr_mel import Device, Workload, wire
from flwr_mel.clientapp import MelMod, mel_mod
from flwr_mel.devices import Measured
from flwr_mel.flower.patience import Patience
from flwr_mel.server.asking import Questions
from flwr_mel.serverapp import MelStrategy, asking


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    """Messages can only be made inside a run."""
    for name in ("task_id", "run_id", "node_id"):
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1)


class Client:
    """Answers, fails, or waits until it is let."""

    def __init__(self, cid, error=None, wait=None):
        self.cid, self.error, self.wait, self.asked = cid, error, wait, 0

    def get_properties(self, ins, timeout, group_id):
        self.asked += 1
        if self.wait is not None:
            self.wait()
        if self.error is not None:
            raise self.error
        return GetPropertiesRes(Status(Code.OK, ""), {"cycle": ins.config[wire.PROBE]})


IN_VAIN = [
    engine.MESSAGE_UNAVAILABLE_ERROR_REASON,
    engine.REPLY_MESSAGE_UNAVAILABLE_ERROR_REASON,
    engine.NODE_UNAVAILABLE_ERROR_REASON,
]


class ExpiringGrid(InProcessGrid):
    """Nobody answers in time, and the engine says so."""

    def __init__(self, reason):
        super().__init__(no_op_app(), 1)
        self.reason, self.sent = reason, {}

    def push_messages(self, messages):
        messages = list(messages)
        ids = super().push_messages(messages)
        self.sent |= dict(zip(ids, messages, strict=True))
        return ids

    def pull_messages(self, message_ids):
        return [Message(Error(3, self.reason), reply_to=self.sent[key]) for key in message_ids]


@pytest.mark.parametrize("reason", IN_VAIN)
def test_a_question_that_expires_is_no_sign_that_the_mod_is_missing(reason):
    """A slow start of the engine was told as "no mel_mod"."""
    grid, questions = ExpiringGrid(reason), asking.Questions(Patience(timeout_s=600.0))
    questions.ask(["1"], 1, grid)
    assert questions.answers(grid, ["1"]) == {"1": None}

    words = f"Message contains an Error (reason: {reason}). It originated during client-side execution"
    classic = Questions(Patience(timeout_s=600.0))
    classic.ask([Client("1", error=ValueError(words))], 1)
    assert classic.answers(["1"]) == {"1": None}


def test_classic_clients_are_asked_at_once_and_none_waits_for_another():
    together, free = Barrier(3), Event()
    questions = Questions(Patience(timeout_s=600.0))
    slow, fine = Client("slow", wait=free.wait), Client("fine")
    others = [Client(str(k), wait=together.wait) for k in range(3)]
    questions.ask([slow, *others, Client("broken", error=ValueError("no data")), fine], 3)
    everybody = {"0", "1", "2", "broken", "fine"}
    heard = {}
    while heard.keys() != everybody:
        heard |= questions.answers(everybody - heard.keys())
    assert heard == {
        "0": {"cycle": 3},
        "1": {"cycle": 3},
        "2": {"cycle": 3},
        "broken": {wire.PROBLEM: "no data"},
        "fine": {"cycle": 3},
    }
    questions.ask([slow, fine], 4)
    assert questions.answers(["fine"]) == {"fine": {"cycle": 4}}
    free.set()
    assert questions.answers(["slow"]) == {"slow": {"cycle": 3}}
    assert slow.asked == 1


def context(k=2, **config):
    return Context(1, 1, {"partition-id": k, **config}, RecordDict(), {"mel-tx-power-w": 0.2})


def probe(cycle=4):
    return Message(RecordDict({wire.RECORD: ConfigRecord({wire.PROBE: cycle})}), 1, "train")


def said(mod, ctx):
    words = dict(mod(probe(), ctx, None).content[wire.RECORD])
    assert words.pop(wire.PROBE) == 4  # the mod's own sign: it repeats the question
    assert words.pop(wire.ANSWER_SECONDS) >= 0
    return words


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
    assert set(report) == {wire.LEARNER, wire.TRAIN_SECONDS, wire.EPOCHS_READ, wire.PROBLEM}
    assert said(MelMod(lambda ctx, cycle: 1 / 0), context()) == {
        wire.LEARNER: "2",
        wire.PROBLEM: "ZeroDivisionError: division by zero",
    }


def calls_of_a_cycle(learners):
    """Count the functions that MelStrategy calls in one cycle after the first."""
    counted = 0

    def count(frame, event, arg):
        nonlocal counted
        counted += event in ("call", "c_call")

    inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=learners, min_available_nodes=learners)
    strategy = MelStrategy(
        inner,
        cycle_time_s=10.0,
        total_samples=2000 * learners,
        workload=Workload.mlp((8, 4), ship_data=False),
    )
    grid = InProcessGrid(no_op_app(), learners)
    arrays = ArrayRecord([np.zeros(2, np.float32)])
    for cycle in (1, 2):
        sys.setprofile(count if cycle == 2 else None)
        messages = list(strategy.configure_train(cycle, arrays, ConfigRecord(), grid))
        sys.setprofile(None)
        replies = grid.send_and_receive(messages)
        sys.setprofile(count if cycle == 2 else None)
        strategy.aggregate_train(cycle, replies)
        sys.setprofile(None)
    assert len(messages) == learners
    return counted


def test_the_cost_of_the_strategy_grows_with_the_learners_and_no_faster():
    assert calls_of_a_cycle(1000) < 12 * calls_of_a_cycle(100)
