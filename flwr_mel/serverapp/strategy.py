"""The Message API strategy: allocation in `configure_train`, checks and weights in `aggregate_train`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result, Strategy

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
from flwr_mel.records import Callback, CycleRecord, Outcome

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]

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
        self.strategy = inner_strategy
        self.records: list[CycleRecord] = []
        self.orchestrator = Orchestrator(Settings(**settings), [self.records.append, *callbacks])
        self.probe_timeout_s = probe_timeout_s
        self._sent: dict[str, tuple[Message, Task | None]] = {}
        self._model: ArrayRecord | None = None
        self._watched = False

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
        self._model, self._sent = arrays, {}
        if self.stopped is not None:
            self.orchestrator.plan(server_round, [])
            return []
        # A copy, because strategies write into the caller's config.
        proposed = list(self.strategy.configure_train(server_round, arrays, ConfigRecord(dict(config)), grid))
        by_node = {str(m.metadata.dst_node_id): m for m in proposed}
        self._meet(self.orchestrator.strangers(by_node), server_round, grid)
        plan = self.orchestrator.plan(server_round, list(by_node))
        messages = []
        for task in plan.tasks:
            message = self._task_message(by_node[task.node], task)
            self._sent[task.node] = (message, task)
            messages.append(message)
        # Those without a task are asked again in the same phase: their limits may have changed.
        for node in plan.ask_again:
            message = _probe(int(node), server_round + 1)
            self._sent[node] = (message, None)
            messages.append(message)
        return messages

    def _meet(self, nodes: list[str], cycle: int, grid: Grid) -> None:
        if not nodes:
            return
        probes = [_probe(int(node), cycle) for node in nodes]
        replies = grid.send_and_receive(probes, timeout=self.probe_timeout_s)
        said = {str(r.metadata.src_node_id): _report(r) for r in replies if not r.has_error()}
        for node in nodes:
            self.orchestrator.hear(node, said.get(node))

    def _task_message(self, template: Message, task: Task) -> Message:
        """Build a message of the learner's own: inner strategies share one content among all."""
        settings, deadline = self.orchestrator.settings, self.orchestrator.deadline_s
        content = RecordDict(dict(template.content))
        content[wire.RECORD] = ConfigRecord(task_words(task, settings.dataset))
        keys = {settings.epochs_key: task.epochs, settings.samples_key: task.samples}
        extra = {key: value for key, value in keys.items() if key is not None}
        for name, record in template.content.config_records.items():
            content[name] = ConfigRecord({**record, **extra})
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
        used: dict[str, int] = {}
        failed: dict[str, tuple[Outcome, str]] = {}
        reports: dict[str, Mapping[str, object]] = {}
        clean: dict[str, Message] = {}
        # Errors of the engine do not carry the node themselves, but they do say what they answer.
        sent_to = {message.metadata.message_id: node for node, (message, _) in self._sent.items()}
        for reply in replies:
            node = sent_to.get(reply.metadata.reply_to_message_id, str(reply.metadata.src_node_id))
            if node not in self._sent:
                continue
            task = self._sent[node][1]
            if reply.has_error():
                late = reply.error.code == _EXPIRED
                failed[node] = (
                    Outcome.LATE if late else Outcome.FAILED,
                    str(reply.error.reason or "no reason given"),
                )
                continue
            reports[node] = _report(reply)
            if task is None:
                continue
            try:
                clean[node], used[node] = self._clean(reply, task)
            except RefusedUpdate as refused:
                failed[node] = (Outcome.REFUSED, str(refused))
        for node, (_, task) in self._sent.items():
            if task is not None and node not in used and node not in failed:
                failed[node] = (Outcome.LATE, "no reply in time")
        failed = {n: why for n, why in failed.items() if self._sent[n][1] is not None}
        self.orchestrator.settle(used, failed, reports)
        # In the order of the tasks, so that sums have the same bits whoever answers first.
        ordered = [clean[node] for node in self._sent if node in clean]
        if not ordered:
            return None, None
        arrays, metrics = self.strategy.aggregate_train(server_round, ordered)
        if metrics is not None:
            self.orchestrator.observe({f"train-{key}": value for key, value in metrics.items()})
        return arrays, metrics

    def _clean(self, reply: Message, task: Task) -> tuple[Message, int]:
        """Return the reply with checked arrays and the server's own weight, or refuse it."""
        content = reply.content
        if len(content.array_records) != 1 or len(content.metric_records) != 1:
            raise RefusedUpdate(
                f"has {len(content.array_records)} ArrayRecords and {len(content.metric_records)} "
                "MetricRecords, not one of each"
            )
        (arrays_name, update), (metrics_name, metrics) = (
            next(iter(content.array_records.items())),
            next(iter(content.metric_records.items())),
        )
        key = self._weight_key
        weight = check_weight(metrics.get(key), task.samples)
        model = self._model if self._model is not None else update
        checked = check_update(_decode(update, model), [a.numpy() for a in model.values()])
        clean = RecordDict(
            {
                arrays_name: ArrayRecord({k: Array(a) for k, a in zip(model, checked, strict=True)}),
                metrics_name: MetricRecord({**metrics, key: weight}),
            }
        )
        others = {k: v for k, v in content.config_records.items() if k != wire.RECORD}
        reply.content = RecordDict({**clean, **others})
        return reply, weight

    @property
    def _weight_key(self) -> str:
        inner: object = self.strategy
        while inner is not None:
            if isinstance(key := getattr(inner, "weighted_by_key", None), str):
                return key
            inner = getattr(inner, "strategy", None)
        return "num-examples"

    # --- evaluation and the end of a cycle -------------------------------------------------------------

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Leave evaluation to the inner strategy; after the stop nobody is asked."""
        if self.stopped is not None:
            return []
        return self.strategy.configure_evaluate(server_round, arrays, ConfigRecord(dict(config)), grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Leave aggregation to the inner strategy and put the metrics on record."""
        metrics = self.strategy.aggregate_evaluate(server_round, replies)
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
            if self.stopped is not None:
                return None
            metrics = evaluate_fn(server_round, arrays)
            if metrics is not None:
                self.orchestrator.observe(dict(metrics))
            self.orchestrator.close()
            return metrics

        return watched

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
        result = super().start(
            grid, initial_arrays, num_rounds, timeout, train_config, evaluate_config, self.watch(evaluate_fn)
        )
        self.orchestrator.close()
        return MelResult(**vars(result), stopped=self.stopped, records=list(self.records))


class MelFedAvg(FedAvg):
    """FedAvg with the paper's d_k-weighted average in double precision.

    The same bits as `flwr_mel.server.MelFedAvg` in the classic API.
    """

    def aggregate_train(
        self,
        server_round: int,  # noqa: ARG002
        replies: Iterable[Message],
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average arrays with `weighted_average`; metrics as FedAvg does."""
        valid, _ = self._check_and_log_replies(replies, is_train=True)
        if not valid:
            return None, None
        contents = [reply.content for reply in valid]
        records = [next(iter(c.array_records.values())) for c in contents]
        weights = [next(iter(c.metric_records.values()))[self.weighted_by_key] for c in contents]
        arrays = weighted_average([[a.numpy() for a in r.values()] for r in records], weights)  # type: ignore[arg-type]
        average = ArrayRecord({k: Array(a) for k, a in zip(records[0], arrays, strict=True)})
        return average, self.train_metrics_aggr_fn(contents, self.weighted_by_key)


def _probe(node: int, cycle: int) -> Message:
    return Message(
        RecordDict({wire.RECORD: ConfigRecord({wire.PROBE: cycle})}),
        dst_node_id=node,
        message_type=MessageType.TRAIN,
    )


def _report(reply: Message) -> dict[str, object]:
    record = reply.content.config_records.get(wire.RECORD)
    return dict(record) if record is not None else {}


def _decode(update: ArrayRecord, model: ArrayRecord) -> list[npt.NDArray[Any]]:
    """Decode a learner's arrays in the model's order, refusing other keys, sizes and formats."""
    if set(update) != set(model):
        odd = sorted(set(update) ^ set(model))[:3]
        raise RefusedUpdate(f"its arrays are not the model's: {', '.join(odd)}")
    decoded = []
    for key, mine in model.items():
        theirs = update[key]
        if len(theirs.data) > 2 * len(mine.data) + 4096:
            raise RefusedUpdate(f"{key} has {len(theirs.data)} bytes instead of {len(mine.data)}")
        try:
            decoded.append(np.asarray(theirs.numpy()))
        except Exception as error:
            raise RefusedUpdate(f"{key} cannot be decoded: {error}") from None
    return decoded
