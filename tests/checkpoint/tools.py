"""What these tests share: checkpoints to keep, and small trainings through both APIs without an engine."""

import threading
from typing import ClassVar

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common import Code, FitRes, GetPropertiesRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import Server, SimpleClientManager
from flwr.server import strategy as classic_flower
from flwr.server.client_proxy import ClientProxy
from flwr.serverapp import strategy as message_flower

from bench.strategy import InProcessGrid
from flwr_mel import server as classic
from flwr_mel import serverapp as message
from flwr_mel.checkpoint import Checkpoint
from flwr_mel.clientapp import Assignment, MelMod, describe
from flwr_mel.devices import Measured
from flwr_mel.records import CycleRecord, LearnerRecord, Outcome

LEARNERS, CYCLES = 4, 4
#: numpy parses the head of an array as Python, which several threads at once cannot do safely in Python 3.11
#: ("AST constructor recursion depth mismatch"). Real clients are processes of their own.
ONE_AT_A_TIME = threading.Lock()


def record(cycle):
    row = LearnerRecord("a", "1", Outcome.USED, epochs=2, samples=10, time_s=0.1 + 0.2)
    return CycleRecord(cycle, 2.0, learners=[row], metrics={"accuracy": 0.1 * cycle, "odd": float("nan")})


def checkpoint(cycle, **more):
    rng = np.random.default_rng(cycle)
    model = {"w/1": rng.normal(size=(3, 4)).astype(np.float32), "w/2": rng.integers(0, 9, 5)}
    kept = {"fingerprint": {"seed": 3, "model": [["w/1", "<f4", [3, 4]]]}, "state": {"cycle": cycle}}
    return Checkpoint(cycle, model, records=[record(n + 1) for n in range(cycle)], **(kept | more))


def same(a, b):
    """Whether two trees have the same types, values and bits."""
    if isinstance(a, np.ndarray | np.generic):
        return type(a) is type(b) and (a.dtype.str, a.shape, a.tobytes()) == (
            b.dtype.str,
            b.shape,
            b.tobytes(),
        )
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def names(directory):
    return sorted(path.name for path in directory.iterdir() if path.name != "lock")


def measured(k):
    return Measured(1e-3, 1e-3, 0.1, 1e-4, 0.0, 0.1, name=f"d{k}", max_samples=40 + 5 * k)


def work(config, weights):
    """Something that depends on everything a task says."""
    task = Assignment.from_config(config)
    rng = task.rng()
    return [
        w + (0.01 * task.epochs * rng.normal(size=w.shape)).astype(w.dtype) for w in weights
    ], task.samples


def accuracy(weights):
    return float(np.tanh(sum(np.abs(w).sum() for w in weights) / 50))


def start_weights():
    rng = np.random.default_rng(1)
    return [rng.normal(size=(5, 3)).astype(np.float32), rng.normal(size=4)]


COMMON = {"cycle_time_s": 2.0, "total_samples": 100, "staleness": 2, "seed": 5, "stragglers": "keep"}


class ByMessage:
    """A training through the Message API."""

    inners: ClassVar = {
        "FedAvg": message.MelFedAvg,
        "FedAdam": lambda **o: message_flower.FedAdam(**o, eta=0.05),
        "FedYogi": lambda **o: message_flower.FedYogi(**o, eta=0.05),
        "FedAvgM": lambda **o: message_flower.FedAvgM(**o, server_momentum=0.9, server_learning_rate=0.7),
        # Its clipping norm changes from cycle to cycle; without noise, which nobody could repeat.
        "clipped": lambda **o: message_flower.DifferentialPrivacyServerSideAdaptiveClipping(
            message_flower.FedAdam(**o, eta=0.05), 0.0, LEARNERS, clipped_count_stddev=1e-300
        ),
    }

    def __init__(self, inner="FedAdam", weights=None, **options):
        self.weights = weights or start_weights()
        self.inner = self.inners[inner](
            fraction_evaluate=0.0, min_train_nodes=LEARNERS, min_available_nodes=LEARNERS
        )
        self.strategy = message.MelStrategy(self.inner, **(COMMON | options))
        self.rounds_evaluated = []

    def run(self, cycles=CYCLES):
        app = ClientApp(mods=[MelMod(lambda context, _: measured(int(context.node_config["partition-id"])))])

        @app.train()
        def train(asked, context):
            moved, samples = work(asked.content["config"], asked.content["arrays"].to_numpy_ndarrays())
            metrics = MetricRecord(
                {"num-examples": samples, "round": asked.content["config"]["server-round"]}
            )
            named = zip(asked.content["arrays"], moved, strict=True)
            arrays = ArrayRecord({name: Array(array) for name, array in named})
            return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=asked)

        def evaluate(server_round, arrays):
            self.rounds_evaluated.append(server_round)
            return MetricRecord({"accuracy": accuracy(arrays.to_numpy_ndarrays())})

        grid, start = InProcessGrid(app, LEARNERS), ArrayRecord(self.weights)
        result = self.strategy.start(grid, start, num_rounds=cycles, evaluate_fn=evaluate)
        self.result = result
        self.final = result.arrays.to_numpy_ndarrays()
        return self


class Proxy(ClientProxy):
    """A classic client in this process."""

    def __init__(self, k):
        super().__init__(str(k + 1))  # as the nodes of the Message API are numbered
        self.k = k

    def get_properties(self, ins, timeout, group_id):
        return GetPropertiesRes(Status(Code.OK, ""), describe(measured(self.k)))

    def fit(self, ins, timeout, group_id):
        with ONE_AT_A_TIME:
            weights = parameters_to_ndarrays(ins.parameters)
        moved, samples = work(ins.config, weights)
        return FitRes(Status(Code.OK, ""), ndarrays_to_parameters(moved), samples, {})

    get_parameters = evaluate = reconnect = None


class ByClassic:
    """A training through the classic API."""

    inners: ClassVar = {
        "FedAvg": classic.MelFedAvg,
        "FedAdam": lambda **o: classic_flower.FedAdam(**o, eta=0.05),
        "FedYogi": lambda **o: classic_flower.FedYogi(**o, eta=0.05),
        "FedAvgM": lambda **o: classic_flower.FedAvgM(**o, server_momentum=0.9, server_learning_rate=0.7),
        "clipped": lambda **o: classic_flower.DifferentialPrivacyServerSideAdaptiveClipping(
            classic_flower.FedAdam(**o, eta=0.05), 0.0, LEARNERS, clipped_count_stddev=1e-300
        ),
    }

    def __init__(self, inner="FedAdam", weights=None, **options):
        self.rounds_evaluated = []

        def evaluate(server_round, weights, config):
            self.rounds_evaluated.append(server_round)
            return 1.0, {"accuracy": accuracy(weights)}

        self.inner = self.inners[inner](
            fraction_evaluate=0.0,
            min_fit_clients=LEARNERS,
            min_available_clients=LEARNERS,
            evaluate_fn=evaluate,
            initial_parameters=ndarrays_to_parameters(weights or start_weights()),
        )
        self.strategy = classic.MelStrategy(self.inner, **(COMMON | options))

    def run(self, cycles=CYCLES):
        manager = SimpleClientManager()
        for k in range(LEARNERS):
            manager.register(Proxy(k))
        server = Server(client_manager=manager, strategy=self.strategy)
        server.fit(self.strategy.rounds_left(cycles), timeout=None)
        self.final = parameters_to_ndarrays(server.parameters)
        return self


APIS = pytest.mark.parametrize("api", [ByMessage, ByClassic])


STATE = ("m_t", "v_t", "momentum_vector", "current_weights", "clipping_norm")


def moments(training):
    found = {}
    for layer in (training.inner, getattr(training.inner, "strategy", training.inner)):
        found |= {name: value for name, value in vars(layer).items() if name in STATE and value is not None}
    return found


def facts(records):
    """Records without what a real clock measured, and what only a mod sees."""
    plain = [r.as_dict() for r in records]
    for cycle in plain:
        for key in ("began_at", "ended_at", "duration_s", "waited_s", "flower_s"):
            cycle.pop(key, None)
        for row in cycle["learners"]:
            for key in ("sent_at", "received_at", "since"):
                row.pop(key, None)
            row["reported_time_s"] = row["round_trip_s"] = row["epochs_done"] = row["samples_used"] = None
    return plain


def assert_equal(a, b):
    assert same(a.final, b.final)
    assert same(moments(a), moments(b))
    assert facts(a.strategy.records) == facts(b.strategy.records)
    assert a.strategy.orchestrator.state.snapshot() == b.strategy.orchestrator.state.snapshot()
    assert a.strategy.stopped == b.strategy.stopped
