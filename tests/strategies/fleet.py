"""A fleet without an engine, the same for both APIs: nodes come, go, answer when they are let, and train.

Time is a count: `Fleet.waits` says how often a strategy waited, and every wait moves the clock on.
"""

from queue import Empty

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common import Code, FitRes, GetPropertiesRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import SimpleClientManager
from flwr.server import strategy as classic_flower
from flwr.serverapp import strategy as message_flower

import flwr_mel.server
import flwr_mel.serverapp
from flwr_mel import wire
from flwr_mel.server import asking as classic_asking
from flwr_mel.serverapp import asking as message_asking
from tests import attacks

OPTIONS = {
    "cycle_time_s": 10.0,
    "total_samples": 60,
    "max_epochs": 3,
    "probe_timeout_s": 50.0,
    "stragglers": "keep",
}


def words(name, **more):
    return {wire.LEARNER: name, wire.MAX_SAMPLES: 100, **attacks.COSTS, **more}


class Fleet:
    """Who is there and what they say.

    `nodes` maps node ids to words; None: the app has no mod. Nodes in `mute` do not answer (yet), those in
    `late` do not train in time. `asked` lists cycle and node of every question.
    """

    def __init__(self, nodes, mute=()):
        self.nodes, self.mute, self.late = dict(nodes), set(mute), set()
        self.asked, self.waits, self.now = [], 0, 0.0

    def wait(self, seconds):
        self.waits += 1
        self.now += seconds


class Grid(attacks.OneRound):
    """The Message API's way to a fleet."""

    def __init__(self, fleet):
        super().__init__({})
        self.fleet, self.questions = fleet, {}

    def get_node_ids(self):
        return list(self.fleet.nodes)

    def push_messages(self, messages):
        for message in messages:
            node = message.metadata.dst_node_id
            key = f"question-{len(self.fleet.asked)}"
            message.metadata.__dict__["_message_id"] = key
            self.fleet.asked.append((message.content[wire.RECORD][wire.PROBE], node))
            self.questions[key] = message
        return list(self.questions)

    def pull_messages(self, message_ids):
        for key in list(message_ids):
            node = self.questions[key].metadata.dst_node_id
            if node in self.fleet.nodes and node not in self.fleet.mute:
                said = self.fleet.nodes[node] or {}
                content = RecordDict({wire.RECORD: ConfigRecord(said)} if said else {})
                yield Message(content, reply_to=self.questions.pop(key))


class ByMessage:
    """MelStrategy of the Message API, driven as Flower's loop does."""

    def __init__(self, fleet, monkeypatch, **options):
        attacks.outside_runtime(monkeypatch)
        monkeypatch.setattr(message_asking, "sleep", fleet.wait)
        monkeypatch.setattr(message_asking, "monotonic", lambda: fleet.now)
        inner = message_flower.FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
        self.strategy = flwr_mel.serverapp.MelStrategy(inner, **(OPTIONS | options))
        self.fleet, self.grid = fleet, Grid(fleet)
        self.model = ArrayRecord([np.zeros(2, np.float32)])

    def cycle(self, n):
        """Run one cycle; return who was given work."""
        sent = list(self.strategy.configure_train(n, self.model, ConfigRecord(), self.grid))
        replies = []
        for message in sent:
            message.metadata.__dict__["_message_id"] = f"task-{message.metadata.dst_node_id}"
            if message.metadata.dst_node_id in self.fleet.late:
                continue
            task = message.content["config"]
            content = {
                "arrays": message.content["arrays"],
                "metrics": MetricRecord({"num-examples": task[wire.SAMPLES]}),
            }
            replies.append(Message(RecordDict(content), reply_to=message))
        self.strategy.aggregate_train(n, replies)
        list(self.strategy.configure_evaluate(n, self.model, ConfigRecord(), self.grid))
        self.strategy.orchestrator.close()
        return {message.metadata.dst_node_id for message in sent}


class Answers:
    """The queue of the classic API's answers: who may answer is asked when somebody looks, not by threads."""

    def __init__(self, fleet):
        self.fleet, self.open = fleet, []

    def put(self, entry):
        self.open.append(entry)

    def get(self, timeout):
        for entry in self.open:
            if int(entry[0]) not in self.fleet.mute:
                self.open.remove(entry)
                return entry
        if timeout:
            self.fleet.wait(timeout)
        raise Empty


class AtOnce:
    """A thread that has run when it is started."""

    def __init__(self, target, daemon):
        assert daemon
        self.start = target


class Client(attacks.Client):
    def __init__(self, fleet, node):
        super().__init__(node, fleet.nodes[node])
        self.fleet, self.node = fleet, node

    def get_properties(self, ins, timeout, group_id):
        self.fleet.asked.append((ins.config[wire.PROBE], self.node))
        if self.words is None:
            raise NotImplementedError
        return GetPropertiesRes(Status(Code.OK, ""), dict(self.words))

    def fit(self, ins, timeout, group_id):
        own = ndarrays_to_parameters(parameters_to_ndarrays(ins.parameters))
        return FitRes(Status(Code.OK, ""), own, ins.config[wire.SAMPLES], {})


class ByClassic:
    """MelStrategy of the classic API, driven as Flower's loop does."""

    def __init__(self, fleet, monkeypatch, **options):
        attacks.outside_runtime(monkeypatch)
        monkeypatch.setattr(classic_asking, "Thread", AtOnce)
        monkeypatch.setattr(classic_asking, "monotonic", lambda: fleet.now)
        inner = classic_flower.FedAvg(fraction_evaluate=0.0, min_fit_clients=1, min_available_clients=1)
        self.strategy = flwr_mel.server.MelStrategy(inner, **(OPTIONS | options))
        self.strategy._questions._answers = Answers(fleet)
        self.fleet = fleet
        self.model = ndarrays_to_parameters([np.zeros(2, np.float32)])

    def cycle(self, n):
        """Run one cycle; return who was given work."""
        manager = SimpleClientManager()
        for node in self.fleet.nodes:
            manager.register(Client(self.fleet, node))
        sent = self.strategy.configure_fit(n, self.model, manager)
        results = []
        for proxy, ins in sent:
            if int(proxy.cid) in self.fleet.late:
                proxy.late, proxy.failure = True, "no reply in time"
            else:
                results.append((proxy, proxy.fit(ins, None, None)))
        self.strategy.aggregate_fit(n, results, [])
        self.strategy.configure_evaluate(n, self.model, manager)
        self.strategy.orchestrator.close()
        return {int(proxy.cid) for proxy, _ in sent}


APIS = {"message": ByMessage, "classic": ByClassic}
