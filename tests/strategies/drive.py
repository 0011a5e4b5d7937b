"""Drives strategies of both APIs as Flower's loop does, plain or wrapped, without an engine.

A client is a function of its number, the cycle and the model's arrays by name; it returns arrays by name and
its metrics. Everybody holds as many samples and may do one epoch, so that the allocation is trivial, unless
`said` says otherwise; then the driver's `tasks` has the epochs and samples of the client that is called.
"""

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.client_manager import SimpleClientManager

import flwr_mel.server
import flwr_mel.serverapp
from flwr_mel import wire
from tests.attacks import COSTS, Client, OneRound

SAMPLES = 30
#: Node ids are far from the names, which are theirs who come first.
FIRST = 1001
TRIVIAL = {"cycle_time_s": 100.0, "max_epochs": 1, "probe_timeout_s": 20.0}


def words(k):
    return {wire.LEARNER: str(k), wire.MAX_SAMPLES: SAMPLES, **COSTS}


def task_in(config):
    """Return epochs and samples of a task; of a strategy that is not wrapped, everybody's."""
    return config.get(wire.EPOCHS, 1), config.get(wire.SAMPLES, SAMPLES)


class Messages:
    """The Message API."""

    strategy = flwr_mel.serverapp.MelStrategy

    def __init__(self, strategy, learners, model, *, record="arrays", key="num-examples", said=words):
        self.strategy, self.record, self.key = strategy, record, key
        self.grid = OneRound({FIRST + k: said(k) for k in range(learners)})
        self.tasks = {}
        self.model = ArrayRecord({name: Array(np.asarray(a)) for name, a in model.items()})
        self.metrics = None

    def arrays(self):
        return {name: array.numpy() for name, array in self.model.items()}

    def cycle(self, cycle, client):
        replies = []
        sent = self.strategy.configure_train(cycle, self.model, ConfigRecord(), self.grid)
        for message in sorted(sent, key=lambda m: m.metadata.dst_node_id):
            k = message.metadata.dst_node_id - FIRST
            message.metadata.__dict__["_message_id"] = f"task-{cycle}-{k}"
            (given,) = message.content.array_records.values()
            self.tasks[k] = task_in(next(iter(message.content.config_records.values()), {}))
            arrays, metrics = client(k, cycle, {name: a.numpy() for name, a in given.items()})
            replies.append(Message(self.content(arrays, metrics, self.tasks[k][1]), reply_to=message))
        np.random.seed(cycle)  # noqa: NPY002 - Flower's noise comes from there
        model, self.metrics = self.strategy.aggregate_train(cycle, replies)
        if model is not None:
            self.model = model

    def content(self, arrays, metrics, samples):
        if isinstance(arrays, RecordDict):
            return arrays
        record = ArrayRecord(
            {name: a if isinstance(a, Array) else Array(np.asarray(a)) for name, a in arrays.items()}
        )
        said = MetricRecord({self.key: samples, **metrics})
        return RecordDict({self.record: record, "metrics": said})


class Results:
    """The classic API; arrays go by their order."""

    strategy = flwr_mel.server.MelStrategy

    def __init__(self, strategy, learners, model, *, said=words):
        self.strategy, self.names = strategy, list(model)
        self.manager = SimpleClientManager()
        for k in range(learners):
            self.manager.register(Client(FIRST + k, said(k)))
        self.tasks = {}
        self.model = ndarrays_to_parameters([np.asarray(a) for a in model.values()])
        self.metrics = None

    def arrays(self):
        return dict(zip(self.names, parameters_to_ndarrays(self.model), strict=True))

    def cycle(self, cycle, client):
        results = []
        sent = self.strategy.configure_fit(
            server_round=cycle, parameters=self.model, client_manager=self.manager
        )
        for proxy, ins in sorted(sent, key=lambda pair: int(pair[0].cid)):
            given = dict(zip(self.names, parameters_to_ndarrays(ins.parameters), strict=True))
            k = int(proxy.cid) - FIRST
            self.tasks[k] = task_in(ins.config)
            arrays, metrics = client(k, cycle, given)
            parameters = ndarrays_to_parameters([np.asarray(a) for a in arrays.values()])
            results.append((proxy, FitRes(Status(Code.OK, ""), parameters, self.tasks[k][1], dict(metrics))))
        np.random.seed(cycle)  # noqa: NPY002 - Flower's noise comes from there
        model, self.metrics = self.strategy.aggregate_fit(cycle, results, [])
        if model is not None:
            self.model = model


APIS = {"message": Messages, "classic": Results}


def run(api, inner, model, client, *, learners=3, cycles=3, wrapped=True, settings=None, **options):
    """Train; return the driver, which has the last model and the strategy."""
    kind = APIS[api]
    strategy = kind.strategy(inner, **{**TRIVIAL, **(settings or {})}) if wrapped else inner
    driver = kind(strategy, learners, model, **options)
    for cycle in range(1, cycles + 1):
        driver.cycle(cycle, client)
        if wrapped:
            strategy.orchestrator.close()
    return driver


def same_bits(a, b):
    """Whether two models are the same, names, types and bits."""
    return list(a) == list(b) and all(
        (a[name].dtype, a[name].shape, a[name].tobytes()) == (b[name].dtype, b[name].shape, b[name].tobytes())
        for name in a
    )


def outcomes(driver):
    """Outcome and reason of everybody in every cycle."""
    return [
        (record.cycle, row.learner, str(row.outcome), row.reason)
        for record in driver.strategy.records
        for row in record.learners
    ]
