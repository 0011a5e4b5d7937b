"""The classic strategy: plans in `configure_fit`, checks and weights in `aggregate_fit`."""

from __future__ import annotations

from collections.abc import Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any

from flwr.common import (
    Code,
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    GetPropertiesIns,
    Parameters,
    Scalar,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import FedAvg, Strategy

from flwr_mel import wire
from flwr_mel._text import last_error, printable
from flwr_mel.cycle.average import weighted_average
from flwr_mel.cycle.reports import Words
from flwr_mel.cycle.settle import Kind, Reply, Update
from flwr_mel.cycle.updates import Rejected, decode
from flwr_mel.probes import Probes
from flwr_mel.step_strategies import ClassicSlopeStep as SlopeStep
from flwr_mel.strategy import MelStrategy as Common

Results = list[tuple[ClientProxy, FitRes]]
Failures = list[tuple[ClientProxy, FitRes] | BaseException]
_AT_ONCE = 64
#: What Flower's texts mean that stand for error codes of the Message API.
_TEXTS = {
    "Node Unavailable": Kind.OFFLINE,
    "Message Unavailable": Kind.LATE,
    "Expected one Message but got: 0": Kind.LATE,
}


class MelStrategy(Common, Strategy):  # noqa: D101 - the docstring is the base class's
    __doc__ = Common.__doc__

    _kind, _other = Strategy, "flwr_mel.serverapp.MelStrategy"
    _slope_step = SlopeStep

    def _set_up(self) -> None:
        self._probes: ProxyProbes = ProxyProbes()
        self._sent: dict[str, TaskProxy] = {}
        self._sent_at = 0.0

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters | None:
        """Leave it to the wrapped strategy."""
        self.summary()
        parameters: Parameters | None = self.strategy.initialize_parameters(client_manager)
        return parameters

    # --- training ---------------------------------------------------------------------------------------

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """Let the wrapped strategy sample the clients, then give each its own task."""
        self._sent = {}
        if self.stopped:
            return []
        cycle = self.cycle_of(server_round)
        proposed = self.strategy.configure_fit(cycle, parameters, client_manager)
        clients = {client.cid: (client, ins) for client, ins in proposed}
        connected = {**client_manager.all(), **{cid: client for cid, (client, _) in clients.items()}}
        self._probes.clients = connected
        tasks = self._begin(cycle, list(clients), list(connected), views(parameters))
        instructions: list[tuple[ClientProxy, FitIns]] = []
        for task in tasks:
            client, ins = clients[task.node]
            self._sent[task.node] = proxy = TaskProxy(client)
            # Instructions of the client's own: strategies share one object among all clients.
            config = {**ins.config, **self._words(task)}
            instructions.append((proxy, FitIns(ins.parameters, config)))
        self._sent_at = monotonic()
        return instructions

    def aggregate_fit(
        self, server_round: int, results: Results, failures: Failures
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Check the results, weight them by their tasks' samples, let the wrapped strategy aggregate."""
        waited_s = monotonic() - self._sent_at
        _reject_masked(results)
        came: dict[str, FitRes] = {}
        for client, result in results:
            came.setdefault(client.cid, result)
        replies = {
            cid: _read(came[cid], proxy) if cid in came else _failure(proxy)
            for cid, proxy in self._sent.items()
        }

        def inner(updates: list[Update]) -> tuple[Parameters | None, dict[str, Scalar]]:
            metrics_of = {x.node: {"": _metrics(came[x.node])} for x in updates}
            records = self._consistent("training", metrics_of, {x.node: x.weight for x in updates})
            ordered = [
                (self._sent[x.node].client, _result(came[x.node], x, dict(records[x.node][""] or {})))
                for x in updates
            ]
            result: tuple[Parameters | None, dict[str, Scalar]]
            result = self.strategy.aggregate_fit(self.cycle_of(server_round), ordered, failures)
            return result

        parameters, metrics = self._aggregate(replies, waited_s, inner, views)
        return parameters, metrics or {}

    # --- evaluation and the end of a round ------------------------------------------------------------------

    def evaluate(self, server_round: int, parameters: Parameters) -> tuple[float, dict[str, Scalar]] | None:
        """Leave it to the wrapped strategy, and record its metrics."""
        # A resumed training starts with a model that was evaluated when its round ended.
        if self.stopped or (server_round == 0 and self._offset):
            return None
        result: tuple[float, dict[str, Scalar]] | None = self.strategy.evaluate(
            self.cycle_of(server_round), parameters
        )
        if result is not None:
            self._observe({"loss": result[0], **result[1]})
        return result

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        """Leave it to the wrapped strategy; there is no evaluation after the training stopped."""
        if self.stopped:
            return []
        self._model = views(parameters)  # a strategy around this one may have changed it
        cycle = self.cycle_of(server_round)
        instructions: list[tuple[ClientProxy, EvaluateIns]]
        instructions = self.strategy.configure_evaluate(cycle, parameters, client_manager)
        if not instructions:
            self._close()
        return instructions

    def aggregate_evaluate(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, EvaluateRes]],
        failures: list[tuple[ClientProxy, EvaluateRes] | BaseException],
    ) -> tuple[float | None, dict[str, Scalar]]:
        """Leave it to the wrapped strategy, record its metrics and end the round."""
        results = self._evaluated(results)
        loss, metrics = self.strategy.aggregate_evaluate(self.cycle_of(server_round), results, failures)
        self._observe({**({} if loss is None else {"loss": loss}), **metrics})
        self._close()
        return loss, metrics

    def _evaluated(
        self, results: list[tuple[ClientProxy, EvaluateRes]]
    ) -> list[tuple[ClientProxy, EvaluateRes]]:
        """Return results of an evaluation that the wrapped strategy can combine."""
        came = {client.cid: (client, result) for client, result in results}
        good = self._evaluations({cid: ({"": x.metrics}, x.num_examples) for cid, (_, x) in came.items()})
        for cid, records in good.items():
            came[cid][1].metrics = dict(records[""] or {})
        return [came[cid] for cid in good]


class TaskProxy(ClientProxy):
    """A client proxy that notes how long its client took and why it failed.

    The classic API reports failures without saying which client they are from.

    Parameters
    ----------
    client : ClientProxy
        The real one.
    """

    def __init__(self, client: ClientProxy) -> None:
        super().__init__(client.cid)
        self.client = client
        self.properties = client.properties
        self.failure = ""
        self.round_trip_s: float | None = None

    def __getattr__(self, name: str) -> Any:
        """Return what only the real proxy has, such as ``node_id``, which Flower's workflows read."""
        if name == "client":  # not there yet, while being copied
            raise AttributeError(name)
        return getattr(self.client, name)

    def fit(self, ins: FitIns, timeout: float | None, group_id: int | None) -> FitRes:
        """Train, and note the time."""
        start = monotonic()
        try:
            result = self.client.fit(ins, timeout, group_id)
        except Exception as error:
            self.failure = last_error(str(error)) or type(error).__name__
            raise
        self.round_trip_s = monotonic() - start
        if result.status.code is not Code.OK:
            self.failure = result.status.message or str(result.status.code)
        return result

    def get_properties(self, ins: Any, timeout: float | None, group_id: int | None) -> Any:
        """Pass on."""
        return self.client.get_properties(ins, timeout, group_id)

    def get_parameters(self, ins: Any, timeout: float | None, group_id: int | None) -> Any:
        """Pass on."""
        return self.client.get_parameters(ins, timeout, group_id)

    def evaluate(self, ins: Any, timeout: float | None, group_id: int | None) -> Any:
        """Pass on."""
        return self.client.evaluate(ins, timeout, group_id)

    def reconnect(self, ins: Any, timeout: float | None, group_id: int | None) -> Any:
        """Pass on."""
        return self.client.reconnect(ins, timeout, group_id)


class ProxyProbes(Probes):
    """Probes as requests for properties, sent by threads."""

    def __init__(self) -> None:
        super().__init__()
        self.clients: dict[str, ClientProxy] = {}
        self._answers: SimpleQueue[tuple[str, Words | None]] = SimpleQueue()

    def send(self, nodes: Sequence[str], cycle: int, timeout_s: float) -> None:
        """Ask the clients in parallel."""
        waiting: SimpleQueue[ClientProxy] = SimpleQueue()
        for node in nodes:
            waiting.put(self.clients[node])

        def work() -> None:
            while True:
                try:
                    client = waiting.get_nowait()
                except Empty:
                    return
                self._answers.put((client.cid, _answer(client, cycle, timeout_s)))

        # Daemons: a client that never answers must not keep the finished program alive.
        for _ in range(min(len(nodes), _AT_ONCE)):
            Thread(target=work, daemon=True).start()

    def collect(self) -> dict[str, Words | None]:
        """Take what is there."""
        came: dict[str, Words | None] = {}
        while not self._answers.empty():
            cid, answer = self._answers.get()
            came[cid] = answer
        return came


def _answer(client: ClientProxy, cycle: int, timeout_s: float) -> Words | None:
    """Probe one client."""
    try:
        result = client.get_properties(GetPropertiesIns({wire.PROBE: cycle}), timeout_s, cycle)
    except Exception as error:
        reason = printable(last_error(str(error)), 200)
        return {wire.PROBLEM: f"it has no mel_mod: the probe failed with {reason}"}
    return dict(result.properties) if result.status.code is Code.OK else {}


def views(parameters: Parameters) -> dict[str, Any]:
    """Return views of the arrays, by their position."""
    return {str(i): decode(str(i), data) for i, data in enumerate(parameters.tensors)}


def _failure(proxy: TaskProxy) -> Reply:
    """Return why there is no result: the classic API passes on Flower's texts, not its error codes."""
    kind = next((kind for text, kind in _TEXTS.items() if text in proxy.failure), Kind.FAILED)
    kind = kind if proxy.failure else Kind.LATE
    return Reply(error=proxy.failure if kind is Kind.FAILED else kind.value, kind=kind)


def _read(result: FitRes, proxy: TaskProxy) -> Reply:
    """Return a result in neutral terms."""
    words = {key: value for key, value in result.metrics.items() if key.startswith("mel-")}
    if proxy.failure:
        return Reply(words=words, round_trip_s=proxy.round_trip_s, error=proxy.failure)
    try:
        arrays = views(result.parameters)
    except Rejected as rejected:
        return Reply(words=words, round_trip_s=proxy.round_trip_s, error=str(rejected))
    return Reply(arrays, result.num_examples, words, proxy.round_trip_s)


def _metrics(result: FitRes) -> dict[str, Scalar]:
    """Return the metrics of the app, without the report."""
    return {key: value for key, value in result.metrics.items() if not key.startswith("mel-")}


def _result(result: FitRes, update: Update, metrics: dict[str, Scalar]) -> FitRes:
    """Return a result for the wrapped strategy: our weight, checked arrays and metrics."""
    parameters = result.parameters
    if update.changed:
        parameters = ndarrays_to_parameters(list(update.arrays.values()))
    return FitRes(result.status, parameters, update.weight, metrics)


def _reject_masked(results: Results) -> None:
    """Raise for secure aggregation, whose workflow hands every client the one unmasked average."""
    if len(results) > 1 and all(result.parameters is results[0][1].parameters for _, result in results):
        raise RuntimeError(
            "these results come from secure aggregation (SecAgg+), which hides the clients' own updates: "
            "MelStrategy can neither check nor weight them. Use one without the other"
        )


class MelFedAvg(FedAvg):
    """FedAvg with the d_k-weighted average in double precision.

    The same bits as `flwr_mel.serverapp.MelFedAvg` in the Message API: Flower's own two FedAvg round
    differently.
    """

    def aggregate_fit(
        self,
        server_round: int,  # noqa: ARG002
        results: Results,
        failures: Failures,
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Average parameters with `weighted_average`; metrics as FedAvg does."""
        if not results or (failures and not self.accept_failures):
            return None, {}
        updates = [parameters_to_ndarrays(result.parameters) for _, result in results]
        average = weighted_average(updates, [result.num_examples for _, result in results])
        metrics: dict[str, Scalar] = {}
        if self.fit_metrics_aggregation_fn is not None:
            metrics = self.fit_metrics_aggregation_fn([(r.num_examples, r.metrics) for _, r in results])
        return ndarrays_to_parameters(average), metrics
