"""Both APIs without an engine: Flower's own loops, clients whose work is scripted (`tests.cycle.tools`).

A client's model moves by its number plus one, unless `Fleet.moves` says otherwise.
"""

from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.common import (
    Code,
    EvaluateRes,
    FitRes,
    GetPropertiesRes,
    Status,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.server import Server, SimpleClientManager
from flwr.server import strategy as classic_flower
from flwr.serverapp import strategy as message_flower

import flwr_mel.server
import flwr_mel.serverapp
import flwr_mel.wrapped
from flwr_mel import wire
from tests.cycle.tools import MODEL, App, declared
from tests.doubles import EchoClient, InProcessGrid

#: Node ids are far from the numbers of the clients.
FIRST = 1001


@dataclass
class Fleet:
    """Clients, and what they do other than their tasks."""

    apps: list
    #: Gets the number of the client, the round and the model's arrays by name; returns the new arrays.
    moves: object = None
    #: Rounds and clients whose app raises, and those whose reply never comes.
    errors: set = field(default_factory=set)
    lost: set = field(default_factory=set)
    #: Gets the number of the client; returns its metrics in an evaluation.
    evaluates: object = staticmethod(lambda _k: {"accuracy": 0.5})
    #: What was received, by round and client.
    tasks: dict = field(default_factory=dict)
    probed: list = field(default_factory=list)
    rounds: int = 0

    def trained(self, k, config, arrays, round_):
        """Return the reply to a task, or raise; without a task the app does its own work."""
        cycle = config.get(wire.CYCLE, round_)
        self.tasks[cycle, k] = dict(config)
        if (cycle, k) in self.errors:
            raise RuntimeError(f"client {k} is broken")
        task = SimpleNamespace(
            cycle=cycle,
            baseline=wire.SAMPLES not in config,
            epochs=config.get(wire.EPOCHS),
            samples=config.get(wire.SAMPLES),
        )
        reply = self.apps[k].reply(k, task, {})
        new = {name: x + np.asarray(k + 1, x.dtype) for name, x in arrays.items()}
        return (new if self.moves is None else self.moves(k, cycle, arrays)), reply


class FakeGrid(InProcessGrid):
    """Replies are there as soon as a message is pushed, unless they are lost."""

    def __init__(self, fleet):
        super().__init__(self._reply, len(fleet.apps))
        self.fleet, self.contexts = fleet, {FIRST + k: k for k in range(len(fleet.apps))}

    def pull_messages(self, message_ids):
        return [reply for reply in super().pull_messages(message_ids) if reply is not None]

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        self.fleet.rounds += any(m.metadata.message_type == "train" for m in messages)
        return super().send_and_receive(messages, timeout=timeout)

    def _reply(self, message, k):
        if message.metadata.message_type == "evaluate":
            metrics = MetricRecord({"num-examples": 10, **self.fleet.evaluates(k)})
            return Message(RecordDict({"metrics": metrics}), reply_to=message)
        configs = list(message.content.config_records.values())
        if configs and wire.PROBE in configs[0]:
            self.fleet.probed.append(k)
            words = self.fleet.apps[k].about(k)
            if not self.fleet.apps[k].modded:
                return Message(Error(0, "KeyError: 'arrays'"), reply_to=message)
            return Message(RecordDict({wire.RECORD: ConfigRecord(words)}), reply_to=message)
        return self._train(message, k, configs[0] if configs else {})

    def _train(self, message, k, config):
        (given,) = message.content.array_records.values()
        try:
            given = {name: array.numpy() for name, array in given.items()}
            arrays, reply = self.fleet.trained(k, config, given, self.fleet.rounds)
        except RuntimeError as error:
            return Message(Error(0, str(error)), reply_to=message)
        if (config.get(wire.CYCLE, self.fleet.rounds), k) in self.fleet.lost:
            return None
        if isinstance(arrays, RecordDict):
            return Message(arrays, reply_to=message)
        content = {
            "arrays": ArrayRecord({n: Array(np.asarray(x)) for n, x in arrays.items()}),
            "metrics": MetricRecord({"num-examples": reply.examples, "loss": 0.5 + k}),
        }
        if reply.words:
            content[wire.RECORD] = ConfigRecord(reply.words)
        return Message(RecordDict(content), reply_to=message)


class FakeProxy(EchoClient):
    """A client of the classic API."""

    def __init__(self, fleet, k, names):
        super().__init__(str(FIRST + k))
        self.fleet, self.k, self.names = fleet, k, names

    def get_properties(self, ins, timeout, group_id):
        self.fleet.probed.append(self.k)
        if not self.fleet.apps[self.k].modded:
            raise NotImplementedError("get_properties")
        return GetPropertiesRes(Status(Code.OK, ""), self.fleet.apps[self.k].about(self.k))

    def fit(self, ins, timeout, group_id):
        given = dict(zip(self.names, parameters_to_ndarrays(ins.parameters), strict=True))
        arrays, reply = self.fleet.trained(self.k, ins.config, given, group_id)
        if (ins.config.get(wire.CYCLE, group_id), self.k) in self.fleet.lost:
            raise TimeoutError("no reply")
        parameters = ndarrays_to_parameters([np.asarray(x) for x in arrays.values()])
        metrics = {"loss": 0.5 + self.k, **reply.words}
        return FitRes(Status(Code.OK, ""), parameters, reply.examples, metrics)

    def evaluate(self, ins, timeout, group_id):
        metrics = dict(self.fleet.evaluates(self.k))
        return EvaluateRes(Status(Code.OK, ""), 1.0, 10, metrics)


class MessageApi:
    """Trains with Flower's `Strategy.start`."""

    name, flower, mel = "message", message_flower, flwr_mel.serverapp

    @staticmethod
    def inner(kind="FedAvg", **options):
        everyone = {"fraction_evaluate": 0.0, "min_train_nodes": 1, "min_available_nodes": 1}
        kind = getattr(message_flower, kind) if isinstance(kind, str) else kind
        return kind(**(everyone | options))

    @staticmethod
    def sampled(fraction):
        return {"fraction_train": fraction}

    @staticmethod
    def train(strategy, fleet, rounds=3, model=MODEL, timeout=0.3, **more):
        """Return the arrays by name."""
        start = ArrayRecord({name: Array(np.asarray(x)) for name, x in model.items()})
        result = strategy.start(FakeGrid(fleet), start, num_rounds=rounds, timeout=timeout, **more)
        fleet.result = result
        arrays = result.arrays or start
        return {name: x.numpy() for name, x in arrays.items()}


class ClassicApi:
    """Trains with Flower's `Server`."""

    name, flower, mel = "classic", classic_flower, flwr_mel.server

    @staticmethod
    def inner(kind="FedAvg", **options):
        everyone = {"fraction_evaluate": 0.0, "min_fit_clients": 1, "min_available_clients": 1}
        everyone |= {"initial_parameters": ndarrays_to_parameters(list(MODEL.values()))}
        kind = getattr(classic_flower, kind) if isinstance(kind, str) else kind
        return kind(**(everyone | options))

    @staticmethod
    def sampled(fraction):
        return {"fraction_fit": fraction}

    @staticmethod
    def train(strategy, fleet, rounds=3, model=MODEL, timeout=None):
        """Return the arrays by name."""
        manager = SimpleClientManager()
        for k in range(len(fleet.apps)):
            manager.register(FakeProxy(fleet, k, list(model)))
        server = Server(client_manager=manager, strategy=strategy)
        server.set_max_workers(1)
        start = ndarrays_to_parameters([np.asarray(x) for x in model.values()])
        for layer in flwr_mel.wrapped.layers(strategy):
            if hasattr(layer, "initial_parameters"):
                layer.initial_parameters = start
        fleet.result, _ = server.fit(rounds, timeout)
        return dict(zip(model, parameters_to_ndarrays(server.parameters), strict=True))


APIS = {"message": MessageApi, "classic": ClassicApi}


def close(a, b):
    """Whether two models are equal but for the order of a sum."""
    return list(a) == list(b) and all(
        (a[n].dtype, a[n].shape) == (b[n].dtype, b[n].shape)
        and np.allclose(
            a[n], b[n], rtol=4e-3 if a[n].dtype == np.float16 else 1e-5, atol=1e-6, equal_nan=True
        )
        for n in a
    )


def same(a, b):
    """Whether two models have the same names, types and bits."""
    return list(a) == list(b) and all(
        (a[n].dtype, a[n].shape, a[n].tobytes()) == (b[n].dtype, b[n].shape, b[n].tobytes()) for n in a
    )


COSTS = declared((1e-3, 0, 0.01, 0, 0, 0)) | {wire.MAX_SAMPLES: 60}
SLOW = (1, 1, 3, 10)


def measured(**more):
    """Clients that declare nothing, the last ones slow."""
    return [App(own=2, pace=1e-3 * s, **more) for s in SLOW]


def planned(n=4):
    """Clients that declare equal costs."""
    return [App(held=60, capability=COSTS) for _ in range(n)]


def moves(k, cycle, arrays):
    """Move each array by something that depends on the client and the round."""
    rng = np.random.default_rng([k, cycle])
    return {name: x + rng.normal(size=x.shape).astype(x.dtype) for name, x in arrays.items()}


def wrapped(api, *, inner=None, **options):
    return api.mel.MelStrategy(api.inner(**(inner or {})), **options)
