"""A small project through both APIs, for a grid in this process and for Flower's engine."""

from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import Server, ServerConfig, SimpleClientManager
from flwr.server import strategy as classic_flower
from flwr.server.compat import start_grid
from flwr.serverapp import strategy as message_flower

from bench.strategy import InProcessGrid
from flwr_mel import server as classic
from flwr_mel import serverapp as message
from flwr_mel.checkpoint import Checkpointed
from flwr_mel.clientapp import Assignment, MelMod
from flwr_mel.devices import Measured

CLIENTS, ROUNDS = 4, 4
COMMON = {"cycle_time_s": 0.2, "total_samples": 100, "staleness": 2, "seed": 5}
APIS = pytest.mark.parametrize("api", ["message", "classic"])


def device(context, cycle):
    k = int(context.node_config["partition-id"])
    return Measured(1e-4, 1e-4, 0.01, 1e-4, 0.0, 0.1, energy_limit_j=0.5, max_samples=40 + 5 * k)


def work(config, weights):
    """Something that depends on everything in a task."""
    task = Assignment.from_config(config)
    rows = task.choose(60)
    rng = task.rng()
    moved = [w + (0.01 * task.epochs * rng.normal(size=w.shape)).astype(w.dtype) for w in weights]
    return moved, len(rows)


message_client = ClientApp(mods=[MelMod(device)])


@message_client.train()
def train(asked, context):
    model = asked.content["arrays"]
    moved, samples = work(asked.content["config"], model.to_numpy_ndarrays())
    arrays = ArrayRecord({name: Array(w) for name, w in zip(model, moved, strict=True)})
    metrics = MetricRecord({"num-examples": samples})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=asked)


class Client(NumPyClient):
    def fit(self, parameters, config):
        return *work(config, parameters), {}


classic_client = ClientApp(client_fn=lambda context: Client().to_client(), mods=[MelMod(device)])
CLIENT_APPS = {"message": message_client, "classic": classic_client}


class LocalGrid(InProcessGrid):
    """Clients in this process."""

    run = SimpleNamespace(run_id=1)

    def __init__(self, api):
        super().__init__(CLIENT_APPS[api], CLIENTS)


class OwnState:
    """State in a number, a list and a generator; all of it changes the weights of the clients."""

    def __init__(self, **options):
        super().__init__(**options)
        self.norm, self.history, self.rng = 1.0, [], np.random.default_rng(8)

    def weight(self, examples):
        self.norm *= 0.7
        self.history.append((self.rng.uniform(), {examples: "text"}))
        return int(1000 * (self.norm + len(self.history) + self.history[-1][0]))


class MessageOwn(OwnState, message.MelFedAvg):
    def aggregate_train(self, server_round, replies):
        for reply in replies:
            metrics = reply.content["metrics"]
            metrics["num-examples"] = self.weight(metrics["num-examples"])
        return super().aggregate_train(server_round, replies)


class ClassicOwn(OwnState, classic.MelFedAvg):
    def aggregate_fit(self, server_round, results, failures):
        for _, result in results:
            result.num_examples = self.weight(result.num_examples)
        return super().aggregate_fit(server_round, results, failures)


def start_weights():
    rng = np.random.default_rng(1)
    return [rng.normal(size=(5, 3)).astype(np.float32), rng.normal(size=4)]


def accuracy(weights):
    return float(np.tanh(sum(np.abs(w).sum() for w in weights) / 50))


class Training:
    """One training; without a directory there are no checkpoints."""

    def __init__(self, api, directory=None, inner="FedAdam", weights=None, **options):
        self.api, self.evaluated = api, []
        self.weights = start_weights() if weights is None else weights
        package, flower = (message, message_flower) if api == "message" else (classic, classic_flower)
        counts = ("min_train_nodes", "min_available_nodes")
        common = dict.fromkeys(
            counts if api == "message" else ("min_fit_clients", "min_available_clients"), 4
        )
        if api == "classic":
            common |= {"initial_parameters": ndarrays_to_parameters(self.weights)}
            common |= {
                "evaluate_fn": lambda server_round, weights, _: (1.0, self.evaluate(server_round, weights))
            }
        common["fraction_evaluate"] = 0.0
        self.inner = {
            "FedAvg": lambda: package.MelFedAvg(**common),
            "FedAdam": lambda: flower.FedAdam(**common, eta=0.05),
            "FedAvgM": lambda: flower.FedAvgM(**common, server_momentum=0.9, server_learning_rate=0.7),
            # Its clipping norm changes from round to round; without noise, which could not be repeated.
            "clipped": lambda: flower.DifferentialPrivacyServerSideAdaptiveClipping(
                flower.FedAdam(**common, eta=0.05), 0.0, CLIENTS, clipped_count_stddev=1e-300
            ),
            "own": lambda: (MessageOwn if api == "message" else ClassicOwn)(**common),
        }[inner]()
        self.mel = package.MelStrategy(self.inner, **(COMMON | options))
        self.strategy = self.mel if directory is None else Checkpointed(self.mel, directory)

    def evaluate(self, server_round, weights):
        self.evaluated.append(server_round)
        return {"accuracy": accuracy(weights)}

    def run(self, rounds=ROUNDS, grid=None):
        grid = grid or LocalGrid(self.api)
        if self.api == "message":

            def evaluate(server_round, arrays):
                return MetricRecord(self.evaluate(server_round, arrays.to_numpy_ndarrays()))

            self.result = self.strategy.start(grid, ArrayRecord(self.weights), rounds, evaluate_fn=evaluate)
            self.final = self.result.arrays.to_numpy_ndarrays()
        else:
            left = getattr(self.strategy, "rounds_left", lambda n: n)(rounds)
            server = Server(client_manager=SimpleClientManager(), strategy=self.strategy)
            server.set_max_workers(1)  # numpy's reader is not safe in threads on Python 3.11
            start_grid(grid=grid, server=server, config=ServerConfig(left))
            self.final = parameters_to_ndarrays(server.parameters)
        return self


def facts(records):
    """Records without what a real clock measured."""
    plain = [record.as_dict() for record in records]
    for record in plain:
        for key in ("began_at", "waited_s", "clock_s"):
            del record[key]
        for row in record["learners"]:
            del row["round_trip_s"], row["train_s"], row["stop_after_s"], row["node"]
    return plain


def same(a, b):
    """Whether two lists of arrays have the same types and bits."""
    return [(x.dtype, x.shape, x.tobytes()) for x in a] == [(x.dtype, x.shape, x.tobytes()) for x in b]


def assert_equal(a, b):
    assert same(a.final, b.final)
    assert facts(a.mel.records) == facts(b.mel.records)
    assert a.mel.stopped == b.mel.stopped
