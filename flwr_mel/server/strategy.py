"""The classic strategy: allocation in `configure_fit`, checks and weights in `aggregate_fit`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
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
from flwr_mel.orchestrator import (
    Orchestrator,
    RefusedUpdate,
    Settings,
    Stopped,
    Task,
    check_update,
    check_weight,
    weighted_average,
)
from flwr_mel.orchestrator.messages import task_words
from flwr_mel.orchestrator.updates import Arrays
from flwr_mel.records import Callback, CycleRecord, Outcome
from flwr_mel.server.proxy import AskingProxy, TaskProxy

_AT_ONCE = 64

Results = list[tuple[ClientProxy, FitRes]]
Failures = list[tuple[ClientProxy, FitRes] | BaseException]


class MelStrategy(Strategy):
    """Make any classic strategy heterogeneity-aware.

    Wraps a Flower strategy. Each cycle every learner gets its own number of epochs and samples, so that all
    report within the cycle time and nobody exceeds its energy limit.

    Parameters
    ----------
    inner_strategy : flwr.server.strategy.Strategy
        Samples clients and aggregates; gets clean results, weighted by allocated samples.
    callbacks : iterable of callables
        Each takes every finished `CycleRecord`, e.g. `flwr_mel.records.JsonlWriter`.
    probe_timeout_s : float
        How long new learners may take to say what they can do.
    **settings
        Keyword arguments of `flwr_mel.orchestrator.Settings`: cycle_time_s (required), total_samples,
        staleness, min_samples, max_epochs, solver, workload, mode, dataset, default_profile,
        on_infeasible, enforce_deadline, deadline_slack, stopping, seed, epochs_key, samples_key.
    """

    def __init__(
        self,
        inner_strategy: Strategy,
        *,
        callbacks: Iterable[Callback] = (),
        probe_timeout_s: float = 60.0,
        **settings: Any,
    ) -> None:
        super().__init__()
        self.strategy = inner_strategy
        self.records: list[CycleRecord] = []
        self.orchestrator = Orchestrator(Settings(**settings), [self.records.append, *callbacks])
        self.probe_timeout_s = probe_timeout_s
        self._sent: dict[str, tuple[TaskProxy, Task]] = {}
        self._model: Arrays = []

    @property
    def stopped(self) -> Stopped | None:
        """Cycle and reason, once a stopping criterion is met."""
        return self.orchestrator.state.stopped

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters | None:
        """Leave it to the inner strategy."""
        return self.strategy.initialize_parameters(client_manager)

    # --- training -----------------------------------------------------------------------------------

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """Let the inner strategy choose the clients, then give each its own task."""
        self._sent = {}
        if self.stopped is not None:
            self.orchestrator.plan(server_round, [])
            return []
        self._model = parameters_to_ndarrays(parameters)
        proposed = self.strategy.configure_fit(server_round, parameters, client_manager)
        clients = {client.cid: (client, ins) for client, ins in proposed}
        self._meet([clients[cid][0] for cid in self.orchestrator.strangers(clients)], server_round)
        plan = self.orchestrator.plan(server_round, list(clients))
        instructions: list[tuple[ClientProxy, FitIns]] = []
        for task in plan.tasks:
            client, ins = clients[task.node]
            proxy = TaskProxy(client, self.orchestrator.deadline_s)
            self._sent[task.node] = (proxy, task)
            instructions.append((proxy, self._task_ins(ins, task)))
        if not instructions:
            return []
        # Those without a task are asked again in the same phase: their limits may have changed.
        for cid in plan.ask_again:
            client, ins = clients[cid]
            instructions.append((AskingProxy(client, server_round + 1, self.probe_timeout_s), ins))
        return instructions

    def _meet(self, clients: list[ClientProxy], cycle: int) -> None:
        if not clients:
            return

        def ask(client: ClientProxy) -> dict[str, Scalar] | None:
            try:
                ins = GetPropertiesIns({wire.PROBE: cycle})
                answer = client.get_properties(ins, timeout=self.probe_timeout_s, group_id=cycle)
            except Exception:
                return None  # it has no mod, or it is not there: the default profile is for such learners
            return answer.properties if answer.status.code is Code.OK else None

        with ThreadPoolExecutor(min(len(clients), _AT_ONCE)) as pool:
            for client, said in zip(clients, pool.map(ask, clients), strict=True):
                self.orchestrator.hear(client.cid, said)

    def _task_ins(self, ins: FitIns, task: Task) -> FitIns:
        """Build instructions of the learner's own: inner strategies share one object among all."""
        settings = self.orchestrator.settings
        keys = {settings.epochs_key: task.epochs, settings.samples_key: task.samples}
        extra = {key: value for key, value in keys.items() if key is not None}
        return FitIns(ins.parameters, {**ins.config, **extra, **task_words(task, settings.dataset)})

    def aggregate_fit(
        self, server_round: int, results: Results, failures: Failures
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Check every result, weight it by its allocated samples, let the inner strategy aggregate."""
        used: dict[str, int] = {}
        failed: dict[str, tuple[Outcome, str]] = {}
        reports: dict[str, Mapping[str, object]] = {}
        clean: dict[str, tuple[ClientProxy, FitRes]] = {}
        for client, result in results:
            reports[client.cid] = {k: v for k, v in result.metrics.items() if k.startswith("mel-")}
            if client.cid not in self._sent:
                continue
            try:
                self._refuse_masked(result, results)
                fit_res, weight = self._clean(result, self._sent[client.cid][1])
            except RefusedUpdate as refused:
                failed[client.cid] = (Outcome.REFUSED, str(refused))
                continue
            clean[client.cid] = (self._sent[client.cid][0].client, fit_res)
            used[client.cid] = weight
        for cid, (proxy, _) in self._sent.items():
            if cid not in used and cid not in failed:
                failed[cid] = (Outcome.LATE if proxy.late else Outcome.FAILED, proxy.failure or "no reply")
        self.orchestrator.settle(used, failed, reports)
        # In the order of the tasks, so that sums have the same bits whoever answers first.
        ordered = [clean[cid] for cid in self._sent if cid in clean]
        if not ordered:
            return None, {}
        lost = [f for f in failures if not isinstance(f, tuple) or f[0].cid in self._sent]
        parameters, metrics = self.strategy.aggregate_fit(server_round, ordered, lost)
        self.orchestrator.observe({f"train-{key}": value for key, value in metrics.items()})
        return parameters, metrics

    def _clean(self, result: FitRes, task: Task) -> tuple[FitRes, int]:
        """Return the result with checked arrays and the server's own weight, or refuse it."""
        weight = check_weight(result.num_examples, task.samples)
        size = sum(array.nbytes for array in self._model) + 4096 * len(self._model)
        if sum(len(tensor) for tensor in result.parameters.tensors) > 2 * size:
            raise RefusedUpdate("its parameters have far more bytes than the model")
        try:
            update = parameters_to_ndarrays(result.parameters)
        except Exception as error:
            raise RefusedUpdate(f"its parameters cannot be decoded: {error}") from None
        checked = ndarrays_to_parameters(check_update(update, self._model))
        metrics = {k: v for k, v in result.metrics.items() if not k.startswith("mel-")}
        return FitRes(result.status, checked, weight, metrics), weight

    @staticmethod
    def _refuse_masked(result: FitRes, results: Results) -> None:
        """Say clearly that secure aggregation does not compose."""
        if len(results) > 1 and all(other.parameters is result.parameters for _, other in results):
            raise RuntimeError(
                "these results come from secure aggregation (SecAgg+), which hides the learners' own updates: "
                "MelStrategy can then neither check them nor weight them by allocated samples. Use one or the "
                "other; see docs/COMPOSITION.md."
            )

    # --- evaluation and the end of a cycle -------------------------------------------------------------

    def evaluate(self, server_round: int, parameters: Parameters) -> tuple[float, dict[str, Scalar]] | None:
        """Leave it to the inner strategy; put its metrics on record."""
        if self.stopped is not None:
            return None
        result = self.strategy.evaluate(server_round, parameters)
        if result is not None:
            self.orchestrator.observe({"loss": result[0], **result[1]})
        return result

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        """Leave it to the inner strategy; after the stop nobody is asked."""
        if self.stopped is not None:
            return []
        instructions = self.strategy.configure_evaluate(server_round, parameters, client_manager)
        if not instructions:
            self.orchestrator.close()
        return instructions

    def aggregate_evaluate(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, EvaluateRes]],
        failures: list[tuple[ClientProxy, EvaluateRes] | BaseException],
    ) -> tuple[float | None, dict[str, Scalar]]:
        """Leave it to the inner strategy; put its metrics on record and end the cycle."""
        loss, metrics = self.strategy.aggregate_evaluate(server_round, results, failures)
        self.orchestrator.observe({**({} if loss is None else {"loss": loss}), **metrics})
        self.orchestrator.close()
        return loss, metrics


class MelFedAvg(FedAvg):
    """FedAvg with the paper's d_k-weighted average in double precision.

    The same bits as `flwr_mel.serverapp.MelFedAvg` in the Message API.
    """

    def aggregate_fit(
        self, server_round: int, results: Results, failures: Failures
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
