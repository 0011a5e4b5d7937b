"""The classic strategy: allocation in `configure_fit`, checks and weights in `aggregate_fit`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from flwr.common import (
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    Parameters,
    Scalar,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy

from flwr_mel.checkpoint import Checkpoints
from flwr_mel.checkpoint.keeper import Keeper, Model
from flwr_mel.orchestrator import (
    Orchestrator,
    RefusedUpdate,
    Settings,
    Stopped,
    Task,
    brief,
    check_update,
    check_weight,
    odd_metrics,
)
from flwr_mel.orchestrator.inner import check_inner
from flwr_mel.orchestrator.messages import task_words
from flwr_mel.orchestrator.transport import check_transport
from flwr_mel.orchestrator.updates import Arrays, check_metrics, decode
from flwr_mel.records import Callback, CycleRecord, Outcome
from flwr_mel.server.asking import Questions
from flwr_mel.server.evaluations import check_evaluations
from flwr_mel.server.proxy import TaskProxy

Results = list[tuple[ClientProxy, FitRes]]
Failures = list[tuple[ClientProxy, FitRes] | BaseException]
Failed = dict[str, tuple[Outcome, str]]
#: How Flower names numpy's format.
_NUMPY = "numpy.ndarray"


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
        How long new learners may take to say what they can do. A simulation's engine starts in this time.
    checkpoints : flwr_mel.checkpoint.Checkpoints or path, optional
        Where to keep a checkpoint of every cycle; see docs/CHECKPOINTS.md. When there are some already,
        training goes on after the last one; ask `rounds_left` for the number of rounds then.
    resume : bool
        False: there must not be any yet.
    **settings
        Keyword arguments of `flwr_mel.orchestrator.Settings`: cycle_time_s (required), total_samples,
        staleness, min_samples, max_samples, max_epochs, solver, workload, mode, dataset, default_profile,
        on_infeasible, enforce_deadline, deadline_slack, stopping, seed, learning, epochs_key,
        samples_key.
    """

    def __init__(
        self,
        inner_strategy: Strategy,
        *,
        callbacks: Iterable[Callback] = (),
        probe_timeout_s: float = 120.0,
        checkpoints: Checkpoints | str | os.PathLike[str] | None = None,
        resume: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__()
        check_inner(inner_strategy, Strategy, "flwr_mel.serverapp.MelStrategy")
        self.strategy = inner_strategy
        self.records: list[CycleRecord] = []
        self.orchestrator = Orchestrator(Settings(**settings), [self.records.append, *callbacks])
        self._keeper = Keeper(checkpoints, resume, inner_strategy, self.orchestrator, self.records, _numbered)
        self._questions = Questions(probe_timeout_s)
        self._sent: dict[str, tuple[TaskProxy, Task]] = {}
        self._model: Arrays = []

    @property
    def stopped(self) -> Stopped | None:
        """Cycle and reason, once a stopping criterion is met."""
        return self.orchestrator.state.stopped

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters | None:
        """Leave it to the inner strategy, unless there is a checkpoint to go on from."""
        given = self.strategy.initialize_parameters(client_manager)
        model = self._keeper.resume(given)
        return given if model is None else ndarrays_to_parameters(list(model.values()))

    def rounds_left(self, num_rounds: int) -> int:
        """Return how many rounds Flower is to run: ``ServerConfig(num_rounds=strategy.rounds_left(100))``.

        Parameters
        ----------
        num_rounds : int
            Cycles in all, those before an interruption included.
        """
        self._keeper.resume(None, inner=False)
        return self._keeper.rounds_left(num_rounds)

    # --- training -----------------------------------------------------------------------------------

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """Let the inner strategy choose the clients, then give each its own task."""
        cycle = self.orchestrator.cycle_of(server_round)
        self._sent = {}
        if self.stopped is not None:
            return []
        self._keeper.begin(parameters)
        self._model = parameters_to_ndarrays(parameters)
        proposed = self.strategy.configure_fit(cycle, parameters, client_manager)
        clients = {client.cid: (client, ins) for client, ins in proposed}
        for client, _ in clients.values():
            check_transport(client, self.orchestrator.settings)
        strangers = self.orchestrator.strangers(clients)
        self._questions.ask([clients[cid][0] for cid in strangers], cycle)
        for cid, said in self._questions.answers().items():
            self.orchestrator.hear(cid, said)
        plan = self.orchestrator.plan(cycle, list(clients))
        # Those without a task are asked while the others train: their limits may have changed.
        self._questions.ask([clients[cid][0] for cid in plan.ask_again], cycle + 1)
        instructions: list[tuple[ClientProxy, FitIns]] = []
        for task in plan.tasks:
            client, ins = clients[task.node]
            proxy = TaskProxy(client, self.orchestrator.deadline_s)
            self._sent[task.node] = (proxy, task)
            # Instructions of the learner's own: inner strategies share one object among all.
            config = {**ins.config, **task_words(task, self.orchestrator.settings)}
            instructions.append((proxy, FitIns(ins.parameters, config)))
        return instructions

    def aggregate_fit(
        self, server_round: int, results: Results, failures: Failures
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Check every result, weight it by its allocated samples, let the inner strategy aggregate."""
        _refuse_masked(results)
        reports: dict[str, Mapping[str, object]] = {
            client.cid: {k: v for k, v in result.metrics.items() if k.startswith("mel-")}
            for client, result in results
            if client.cid in self._sent
        }
        clean, failed = self._check(results)
        for cid, (proxy, _) in self._sent.items():
            if cid not in clean and cid not in failed:
                outcome = Outcome.LATE if proxy.late else Outcome.FAILED
                failed[cid] = (outcome, brief(proxy.failure or "no reply"))
        weights = {cid: r.num_examples for cid, r in clean.items()}
        took = {cid: proxy.round_trip_s for cid, (proxy, _) in self._sent.items()}
        round_trips = {cid: seconds for cid, seconds in took.items() if seconds is not None}
        self.orchestrator.settle(weights, failed, reports, round_trips)
        # In the order of the tasks, so that sums have the same bits whoever answers first.
        ordered = [(self._sent[cid][0].client, clean[cid]) for cid in self._sent if cid in clean]
        if not ordered:
            return None, {}
        cycle = self.orchestrator.cycle_of(server_round)
        parameters, metrics = self.strategy.aggregate_fit(cycle, ordered, failures)
        self.orchestrator.observe({f"train-{key}": value for key, value in metrics.items()})
        return parameters, metrics

    def _check(self, results: Results) -> tuple[dict[str, FitRes], Failed]:
        """Sort the results into clean and refused ones."""
        clean: dict[str, FitRes] = {}
        failed: Failed = {}
        for client, result in results:
            if client.cid not in self._sent:
                continue
            try:
                clean[client.cid] = self._clean(result, self._sent[client.cid][1])
            except RefusedUpdate as refused:
                failed[client.cid] = (Outcome.REFUSED, str(refused))
        keys, odd = odd_metrics({cid: result.metrics for cid, result in clean.items()})
        for cid, reason in odd.items():
            del clean[cid]
            failed[cid] = (Outcome.REFUSED, reason)
        for result in clean.values():
            result.metrics = {k: v for k, v in result.metrics.items() if k in keys}
        return clean, failed

    def _clean(self, result: FitRes, task: Task) -> FitRes:
        """Return the result with checked arrays and the server's own weight, or refuse it."""
        weight = check_weight(result.num_examples, task.samples)
        check_metrics(result.metrics)
        tensors = result.parameters.tensors
        if len(tensors) != len(self._model):
            raise RefusedUpdate(f"{len(tensors)} arrays instead of {len(self._model)}")
        named = zip(tensors, self._model, strict=True)
        update = [decode(f"array {i}", data, mine) for i, (data, mine) in enumerate(named)]
        checked = check_update(update, self._model)
        same = all(new is old for new, old in zip(checked, update, strict=True))
        parameters = Parameters(tensors, _NUMPY) if same else ndarrays_to_parameters(checked)
        metrics = {k: v for k, v in result.metrics.items() if not k.startswith("mel-")}
        return FitRes(result.status, parameters, weight, metrics)

    # --- evaluation and the end of a cycle -------------------------------------------------------------

    def evaluate(self, server_round: int, parameters: Parameters) -> tuple[float, dict[str, Scalar]] | None:
        """Leave it to the inner strategy; put its metrics on record."""
        cycle = self.orchestrator.cycle_of(server_round)
        # What a resumed training starts with was evaluated when its cycle ended.
        if self.stopped is not None or cycle > server_round == 0:
            return None
        result = self.strategy.evaluate(cycle, parameters)
        if result is not None:
            self.orchestrator.observe({"loss": result[0], **result[1]})
        return result

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        """Leave it to the inner strategy; after the stop nobody is asked."""
        if self.stopped is not None:
            return []
        self._keeper.see(parameters)
        cycle = self.orchestrator.cycle_of(server_round)
        instructions = self.strategy.configure_evaluate(cycle, parameters, client_manager)
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
        checked = check_evaluations(results)
        cycle = self.orchestrator.cycle_of(server_round)
        loss, metrics = self.strategy.aggregate_evaluate(cycle, checked, failures)
        self.orchestrator.observe({**({} if loss is None else {"loss": loss}), **metrics})
        self.orchestrator.close()
        return loss, metrics


def _numbered(parameters: Parameters) -> Model:
    return {str(i): array for i, array in enumerate(parameters_to_ndarrays(parameters))}


def _refuse_masked(results: Results) -> None:
    """Say clearly that secure aggregation does not compose.

    Flower's SecAgg+ workflow hands every client the one unmasked average in place of its own update.
    """
    if len(results) > 1 and all(result.parameters is results[0][1].parameters for _, result in results):
        raise RuntimeError(
            "these results come from secure aggregation (SecAgg+), which hides the learners' own "
            "updates: MelStrategy can then neither check them nor weight them by allocated samples. Use "
            "one or the other; see docs/COMPOSITION.md."
        )
