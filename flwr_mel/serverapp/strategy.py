"""The Message API strategy: allocation in `configure_train`, checks and weights in `aggregate_train`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from flwr_mel import wire
from flwr_mel.checkpoint import Checkpoints
from flwr_mel.checkpoint.keeper import Keeper
from flwr_mel.orchestrator import Orchestrator, RefusedUpdate, Settings, Stopped, Task, brief, odd_metrics
from flwr_mel.orchestrator.inner import check_inner, weight_key
from flwr_mel.orchestrator.messages import task_words
from flwr_mel.orchestrator.transport import check_transport
from flwr_mel.records import Callback, CycleRecord, Outcome
from flwr_mel.serverapp.asking import Questions
from flwr_mel.serverapp.replies import (
    CleanReply,
    Model,
    check_evaluations,
    check_reply,
    common_names,
    is_from,
    report_of,
)
from flwr_mel.serverapp.timing import RoundTrips

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]
Failed = dict[str, tuple[Outcome, str]]

#: Flower's error code for a message that outlived its time to live.
_EXPIRED = 3


@dataclass
class MelResult(Result):
    """Flower's result, and why and when training stopped."""

    stopped: Stopped | None = None
    records: list[CycleRecord] = field(default_factory=list)


class MelStrategy(Strategy):
    """Make any Message API strategy heterogeneity-aware.

    Wraps a Flower strategy. Each cycle every learner gets its own number of epochs and samples, so that all
    report within the cycle time and nobody exceeds its energy limit.

    Parameters
    ----------
    inner_strategy : flwr.serverapp.strategy.Strategy
        Samples nodes and aggregates; gets clean replies, weighted by allocated samples.
    callbacks : iterable of callables
        Each takes every finished `CycleRecord`, e.g. `flwr_mel.records.JsonlWriter`.
    probe_timeout_s : float
        How long new learners may take to say what they can do. A simulation's engine starts in this time.
    checkpoints : flwr_mel.checkpoint.Checkpoints or path, optional
        Where to keep a checkpoint of every cycle; see docs/CHECKPOINTS.md. When there are some already,
        `start` goes on after the last one, and `num_rounds` counts the cycles in all.
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
        check_inner(inner_strategy, Strategy, "flwr_mel.server.MelStrategy")
        self.strategy = inner_strategy
        self.records: list[CycleRecord] = []
        self.orchestrator = Orchestrator(Settings(**settings), [self.records.append, *callbacks])
        self._keeper = Keeper(checkpoints, resume, inner_strategy, self.orchestrator, self.records, _named)
        self._questions = Questions(probe_timeout_s)
        self._sent: dict[str, tuple[Message, Task]] = {}
        self._model: Model = {}
        self._arrays_name = "arrays"
        self._watched = False
        self._clock = RoundTrips()

    @property
    def stopped(self) -> Stopped | None:
        """Cycle and reason, once a stopping criterion is met."""
        return self.orchestrator.state.stopped

    def summary(self) -> None:
        """Log what the wrapped strategy is about."""
        self.strategy.summary()

    # --- training -----------------------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the inner strategy choose the nodes, then give each its own task."""
        cycle = self.orchestrator.cycle_of(server_round)
        self._sent = {}
        self._clock.forget()
        if self.stopped is not None:
            return []
        check_transport(grid, self.orchestrator.settings)
        self._keeper.begin(arrays)
        self._model = _named(arrays)
        # A copy, because strategies write into the caller's config.
        proposed = self.strategy.configure_train(cycle, arrays, ConfigRecord(dict(config)), grid)
        by_node = {str(message.metadata.dst_node_id): message for message in proposed}
        self._questions.ask(self.orchestrator.strangers(by_node), cycle, grid)
        for node, said in self._questions.answers(grid).items():
            self.orchestrator.hear(node, said)
        plan = self.orchestrator.plan(cycle, list(by_node))
        # Those without a task are asked while the others train: their limits may have changed.
        self._questions.ask(plan.ask_again, cycle + 1, grid)
        for task in plan.tasks:
            self._sent[task.node] = (self._task_message(by_node[task.node], task), task)
        return [message for message, _ in self._sent.values()]

    def _task_message(self, template: Message, task: Task) -> Message:
        """Build a message of the learner's own: inner strategies share one content among all.

        The task goes into the one ConfigRecord that is there, because Flower's DP mods take only one.
        """
        content = RecordDict(dict(template.content))
        self._arrays_name = next(iter(content.array_records), self._arrays_name)
        configs = content.config_records
        name = next(iter(configs)) if len(configs) == 1 else wire.RECORD
        words = task_words(task, self.orchestrator.settings)
        content[name] = ConfigRecord({**configs.get(name, {}), **words})
        deadline = self.orchestrator.deadline_s
        return Message(
            content,
            dst_node_id=template.metadata.dst_node_id,
            message_type=template.metadata.message_type,
            ttl=template.metadata.ttl if deadline is None else deadline,
            group_id=template.metadata.group_id,
        )

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check every reply, weight it by its allocated samples, let the inner strategy aggregate."""
        by_node = self._by_node(replies)
        clean, failed = self._check(by_node)
        reports: dict[str, Mapping[str, object]] = {n: report_of(r) for n, r in by_node.items()}
        keys, odd = odd_metrics({node: reply.metrics for node, reply in clean.items()})
        for node, reason in odd.items():
            del clean[node]
            failed[node] = (Outcome.REFUSED, reason)
        names = common_names(clean.values(), self._arrays_name)
        for node, reply in clean.items():
            by_node[node].content = reply.content(keys, names)
        for node in self._sent:
            if node not in clean and node not in failed:
                failed[node] = (Outcome.LATE, "no reply in time")
        weights = {node: reply.weight for node, reply in clean.items()}
        sent_to = {message.metadata.message_id: node for node, (message, _) in self._sent.items()}
        self.orchestrator.settle(weights, failed, reports, self._clock.of(sent_to))
        # In the order of the tasks, so that sums have the same bits whoever answers first.
        ordered = [by_node[node] for node in self._sent if node in clean]
        if not ordered:
            return None, None
        cycle = self.orchestrator.cycle_of(server_round)
        arrays, metrics = self.strategy.aggregate_train(cycle, ordered)
        if metrics is not None:
            self.orchestrator.observe({f"train-{key}": value for key, value in metrics.items()})
        return arrays, metrics

    def _by_node(self, replies: Iterable[Message]) -> dict[str, Message]:
        """Tell whose replies these are: errors of the engine carry its own id, not the node's."""
        sent_to = {message.metadata.message_id: node for node, (message, _) in self._sent.items()}
        found: dict[str, Message] = {}
        for reply in replies:
            node = sent_to.get(reply.metadata.reply_to_message_id)
            # The first reply counts, and nobody answers for another.
            if node is not None and is_from(reply, node):
                found.setdefault(node, reply)
        return found

    def _check(self, replies: Mapping[str, Message]) -> tuple[dict[str, CleanReply], Failed]:
        """Sort the replies into clean and failed ones."""
        clean: dict[str, CleanReply] = {}
        failed: Failed = {}
        key = weight_key(self.strategy)
        for node, reply in replies.items():
            if reply.has_error():
                late = reply.error.code == _EXPIRED
                reason = "no reply in time" if late else brief(reply.error.reason or "")
                failed[node] = (Outcome.LATE if late else Outcome.FAILED, reason)
                continue
            try:
                clean[node] = check_reply(reply.content, self._sent[node][1], self._model, key)
            except RefusedUpdate as refused:
                failed[node] = (Outcome.REFUSED, str(refused))
        return clean, failed

    # --- evaluation and the end of a cycle -------------------------------------------------------------

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Leave evaluation to the inner strategy; after the stop nobody is asked."""
        if self.stopped is not None:
            return []
        self._keeper.see(arrays)
        cycle = self.orchestrator.cycle_of(server_round)
        return self.strategy.configure_evaluate(cycle, arrays, ConfigRecord(dict(config)), grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Leave aggregation to the inner strategy and put the metrics on record."""
        checked = check_evaluations(replies, weight_key(self.strategy))
        metrics = self.strategy.aggregate_evaluate(self.orchestrator.cycle_of(server_round), checked)
        if metrics is not None:
            self.orchestrator.observe(dict(metrics))
        if not self._watched:
            self.orchestrator.close()
        return metrics

    def watch(self, evaluate_fn: EvaluateFn | None) -> EvaluateFn | None:
        """Wrap a server-side evaluation so that stopping criteria see its metrics.

        `start` does it by itself. Call it when another strategy, such as a DP wrapper, is the outermost.

        Parameters
        ----------
        evaluate_fn : callable or None
            As for `start`.
        """
        if evaluate_fn is None:
            return None
        self._watched = True

        def watched(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            cycle = self.orchestrator.cycle_of(server_round)
            # What a resumed training starts with was evaluated when its cycle ended.
            if self.stopped is not None or cycle > server_round == 0:
                return None
            self._keeper.see(arrays)
            metrics = evaluate_fn(cycle, arrays)
            if metrics is not None:
                self.orchestrator.observe(dict(metrics))
            self.orchestrator.close()
            return metrics

        return watched

    def resume(self, initial_arrays: ArrayRecord, num_rounds: int) -> tuple[ArrayRecord, int]:
        """Return what to start with and the rounds left, going on from the last checkpoint if there is one.

        `start` does it by itself. Call it when another strategy, such as a DP wrapper, is the outermost.

        Parameters
        ----------
        initial_arrays : ArrayRecord
            What a new training starts with.
        num_rounds : int
            Cycles in all, those before an interruption included.
        """
        model = self._keeper.resume(initial_arrays)
        if model is not None:
            initial_arrays = ArrayRecord({key: Array(array) for key, array in model.items()})
        return initial_arrays, self._keeper.rounds_left(num_rounds)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFn | None = None,
    ) -> MelResult:
        """Run Flower's own loop; the result also tells when and why training stopped."""
        initial_arrays, num_rounds = self.resume(initial_arrays, num_rounds)
        if self.orchestrator.settings.learning is not None:
            grid = self._clock.watch(grid)
        result = super().start(
            grid, initial_arrays, num_rounds, timeout, train_config, evaluate_config, self.watch(evaluate_fn)
        )
        self.orchestrator.close()
        if not result.arrays:  # nobody ever answered: the old model stays
            result.arrays = initial_arrays
        for kind in ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp"):
            by_round = getattr(result, kind)
            setattr(result, kind, {self.orchestrator.cycle_of(n): said for n, said in by_round.items()})
        return MelResult(**vars(result), stopped=self.stopped, records=list(self.records))


def _named(arrays: ArrayRecord) -> Model:
    return {key: np.asarray(array.numpy()) for key, array in arrays.items()}
