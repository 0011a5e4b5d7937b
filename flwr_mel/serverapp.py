"""The Message API strategy: plans in `configure_train`, checks and weights in `aggregate_train`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from inspect import signature
from time import monotonic
from typing import Any, cast

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result, Strategy

from flwr_mel import wire
from flwr_mel._text import last_error
from flwr_mel.cycle.average import weighted_average
from flwr_mel.cycle.metrics import Records
from flwr_mel.cycle.settle import ERRORS, Kind, Reply, Update
from flwr_mel.cycle.state import Task
from flwr_mel.cycle.updates import Rejected, decode
from flwr_mel.grid import GridProbes, TimedGrid
from flwr_mel.records import CycleRecord
from flwr_mel.step_strategies import MessageSlopeStep as SlopeStep
from flwr_mel.strategy import MelStrategy as Common
from flwr_mel.wrapped import weight_key

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]
_ROUND = ("configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate")
#: How Flower names numpy's format.
_NUMPY = "numpy.ndarray"


@dataclass(repr=False)
class MelResult(Result):
    """Flower's result, the reason why training stopped, and the records of the last rounds.

    It prints as Flower's result does, without the values of the arrays.

    Parameters
    ----------
    stopped : str
        The reason that a callback gave; "" if all rounds were run.
    records : list of CycleRecord
        The last 100; callbacks such as `JsonlWriter` receive all.
    """

    stopped: str = ""
    records: list[CycleRecord] = field(default_factory=list)


class MelStrategy(Common, Strategy):  # noqa: D101 - the docstring is the base class's
    __doc__ = Common.__doc__

    _kind, _other = Strategy, "flwr_mel.server.MelStrategy"
    _slope_step = SlopeStep

    def _set_up(self) -> None:
        self._grid: TimedGrid | None = None
        self._probes: GridProbes = GridProbes()
        self._sent: dict[str, Message] = {}
        self._sent_at = 0.0
        self._evaluates = False

    # --- training ---------------------------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the wrapped strategy sample the clients, then give each its own task."""
        self._sent = {}
        if self.stopped:
            return []
        cycle = self.cycle_of(server_round)
        proposed = self.strategy.configure_train(cycle, arrays, config, grid)
        by_node = {str(message.metadata.dst_node_id): message for message in proposed}
        self._probes.grid = grid
        connected = list(dict.fromkeys([*map(str, grid.get_node_ids()), *by_node]))
        tasks = self._begin(cycle, list(by_node), connected, views(arrays))
        deadline_s = self._deadline_s(tasks)
        if self._grid is not None:
            self._grid.deadline_s = deadline_s
        self._sent = {task.node: self._message(by_node[task.node], task, deadline_s) for task in tasks}
        self._sent_at = monotonic()
        return list(self._sent.values())

    def _message(self, template: Message, task: Task, ttl: float | None) -> Message:
        """Build a message of the client's own: strategies share one content among all clients.

        The task goes into the one ConfigRecord that is there, because Flower's DP mods take only one.
        """
        records: dict[str, Any] = dict(template.content)
        configs = [name for name, x in records.items() if isinstance(x, ConfigRecord)]
        name = configs[0] if len(configs) == 1 else wire.RECORD
        records[name] = ConfigRecord({**records.get(name, {}), **self._words(task)})
        content = RecordDict(records)
        return Message(
            content,
            dst_node_id=template.metadata.dst_node_id,
            message_type=template.metadata.message_type,
            ttl=template.metadata.ttl if ttl is None else ttl,
            group_id=template.metadata.group_id,
        )

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check the replies, weight them by their tasks' samples, let the wrapped strategy aggregate."""
        waited_s = monotonic() - self._sent_at
        key = weight_key(self.strategy)
        came = self._by_node(replies)
        took = {} if self._grid is None else self._grid.took_s
        trips = {node: took.get(message.metadata.message_id) for node, message in self._sent.items()}
        read = {node: _read(reply, key, trips.get(node)) for node, reply in came.items()}

        def inner(updates: list[Update]) -> tuple[ArrayRecord | None, MetricRecord | None]:
            found = {x.node: _records(came[x.node].content, key, arrays=True) for x in updates}
            records = self._consistent("training", found, {x.node: x.weight for x in updates})
            for x in updates:
                content, good = came[x.node].content, records[x.node]
                if x.changed or good is not found[x.node]:
                    came[x.node].content = _content(content, x, good, key)
                else:  # nothing to replace but the weight and our own record
                    _weighed(content, good, x.weight, key)
            ordered = [came[update.node] for update in updates]
            result: tuple[ArrayRecord | None, MetricRecord | None]
            result = self.strategy.aggregate_train(self.cycle_of(server_round), ordered)
            return result

        return self._aggregate(read, waited_s, inner, views)

    def _by_node(self, replies: Iterable[Message]) -> dict[str, Message]:
        """Return the replies by node: errors of the engine carry its own id, not the node's."""
        sent_to = {message.metadata.message_id: node for node, message in self._sent.items()}
        found: dict[str, Message] = {}
        for reply in replies:
            node = sent_to.get(reply.metadata.reply_to_message_id)
            # The first reply counts, and no client answers for another.
            if node is not None and (reply.has_error() or str(reply.metadata.src_node_id) == node):
                found.setdefault(node, reply)
        return found

    # --- evaluation and the end of a round ------------------------------------------------------------------

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Leave evaluation to the wrapped strategy; there is none after the training stopped."""
        if self._grid is not None:
            self._grid.deadline_s = None
        if self.stopped:
            return []
        self._model = views(arrays)  # a strategy around this one may have changed it
        cycle = self.cycle_of(server_round)
        messages: Iterable[Message] = self.strategy.configure_evaluate(cycle, arrays, config, grid)
        return messages

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Leave aggregation to the wrapped strategy, and record its metrics."""
        if self.stopped:
            return None
        metrics: MetricRecord | None = self.strategy.aggregate_evaluate(
            self.cycle_of(server_round), self._evaluated(list(replies))
        )
        self._observe(metrics)
        if not self._evaluates:
            self._close()
        return metrics

    def _evaluated(self, replies: list[Message]) -> list[Message]:
        """Return replies to an evaluation that the wrapped strategy can combine."""
        key = weight_key(self.strategy)
        by_node = {str(reply.metadata.src_node_id): reply for reply in replies if reply.has_content()}
        found: dict[str, tuple[Records, object]] = {}
        for node, reply in by_node.items():
            records = _records(reply.content)
            examples = next(
                (metrics[key] for metrics in records.values() if metrics and key in metrics), None
            )
            found[node] = records, examples
        good = self._evaluations(found)
        for node, records in good.items():
            content = dict(by_node[node].content)
            kept = {name: x for name, x in content.items() if not isinstance(x, MetricRecord)}
            metrics = {name: MetricRecord(dict(x or {})) for name, x in records.items()}
            by_node[node].content = RecordDict(kept | metrics)
        return [*(reply for reply in replies if reply.has_error()), *(by_node[node] for node in good)]

    def watch(self, evaluate_fn: EvaluateFn | None) -> EvaluateFn | None:
        """Wrap a server-side evaluation so that records and callbacks see its metrics.

        `start` does this itself. Call it if another strategy, such as a DP wrapper, is the outermost.

        Parameters
        ----------
        evaluate_fn : callable or None
            As for `start`.
        """
        if evaluate_fn is None:
            return None
        self._evaluates = True

        def watched(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            # A resumed training starts with a model that was evaluated when its round ended.
            if self.stopped or (server_round == 0 and self._offset):
                return None
            metrics = evaluate_fn(self.cycle_of(server_round), arrays)
            self._observe(metrics)
            self._close()
            return metrics

        return watched

    def start(self, grid: Grid, initial_arrays: ArrayRecord, *given: Any, **more: Any) -> Result:
        """Run the training, with the wrapped strategy's own `start` if it has one.

        Parameters
        ----------
        grid, initial_arrays
            As for Flower's `Strategy.start`.
        *given, **more
            Further arguments of the wrapped strategy's `start`, by default those of Flower: `num_rounds`,
            `timeout`, `train_config`, `evaluate_config` and `evaluate_fn`.
        """
        names = list(signature(type(self.strategy).start).parameters)[3:]
        more |= dict(zip(names, given, strict=False))
        if "evaluate_fn" in more:
            more["evaluate_fn"] = self.watch(more["evaluate_fn"])
        self._grid = grid if isinstance(grid, TimedGrid) else TimedGrid(grid)
        if not self._resumed:  # a training that had stopped before a resume stays so
            self.state = replace(self.state, stopped="")
        self._resumed = False
        if type(self.strategy).start is Strategy.start:
            result: Any = super().start(self._grid, initial_arrays, **more)
        else:
            self.summary()
            result = self._own_loop().start(self._grid, initial_arrays, **more)
        self._finish()
        if type(result) is not Result:  # an own `start` may return anything
            return result  # type: ignore[no-any-return]
        if not result.arrays:  # no update was used: the model stays
            result.arrays = initial_arrays
        for kind in ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp"):
            setattr(result, kind, {self.cycle_of(n): x for n, x in getattr(result, kind).items()})
        return MelResult(**vars(result), stopped=self.stopped, records=list(self.records))

    def _own_loop(self) -> Strategy:
        """Return the wrapped strategy with our four methods of a round, for its own `start` to call.

        It is an object of a subclass that shares the attributes of the wrapped strategy, so that what `start`
        writes stays there.
        """
        rounds = {name: staticmethod(getattr(self, name)) for name in _ROUND}
        kind = type(type(self.strategy).__name__, (type(self.strategy),), rounds)
        loop: Strategy = object.__new__(kind)
        loop.__dict__ = self.strategy.__dict__
        return loop


def _read(reply: Message, key: str, round_trip_s: float | None) -> Reply:
    """Return a reply in neutral terms."""
    if reply.has_error():
        kind = ERRORS.get(reply.error.code, Kind.FAILED)
        reason = last_error(reply.error.reason or "no reason given")
        return Reply(
            error=reason if kind is Kind.FAILED else kind.value, round_trip_s=round_trip_s, kind=kind
        )
    content = dict(reply.content)
    words, examples = dict(content.get(wire.RECORD, {})), None
    for metrics in content.values():
        if isinstance(metrics, MetricRecord):
            examples = metrics.get(key, examples)
    records = {name: x for name, x in content.items() if isinstance(x, ArrayRecord)}
    if not records:
        return Reply(words=words, error="its reply has no ArrayRecord", round_trip_s=round_trip_s)
    try:
        arrays: dict[str, Any] = {}
        for name, record in records.items():  # several records have their names before the arrays'
            arrays |= views(record, "" if len(records) == 1 else f"{name}/")
    except Rejected as rejected:
        return Reply(words=words, round_trip_s=round_trip_s, error=str(rejected))
    return Reply(arrays, examples, words, round_trip_s)


def views(record: ArrayRecord, prefix: str = "") -> dict[str, Any]:
    """Return views of the arrays of a record."""
    found = {}
    for name, array in record.items():
        if array.stype != _NUMPY:
            raise Rejected(f"array {name[:60]} has the format {array.stype[:40]!r} instead of numpy's")
        found[f"{prefix}{name}"] = decode(name, array.data)
    return found


def _records(content: RecordDict, key: str = "", *, arrays: bool = False) -> Records:
    """Return the metrics of a reply by record, without those of a key; records of arrays without them."""
    found: dict[str, Any] = {}
    for name, record in content.items():
        if isinstance(record, MetricRecord):
            found[name] = {k: x for k, x in record.items() if k != key}
        elif arrays and isinstance(record, ArrayRecord):
            found[name] = None
    return found


def _weighed(content: RecordDict, records: Records, weight: int, key: str) -> None:
    """Write our weight into a reply's metrics, and leave out our report."""
    content.pop(wire.RECORD, None)
    for name, metrics in records.items():
        if metrics is not None:
            cast(MetricRecord, content[name])[key] = weight


def _content(content: RecordDict, update: Update, records: Records, key: str) -> RecordDict:
    """Return a reply's content for the wrapped strategy: checked arrays, metrics, our weight."""
    mine = dict(content)
    given = {name: x for name, x in mine.items() if isinstance(x, ArrayRecord)}
    new: dict[str, Any] = {
        name: x for name, x in mine.items() if isinstance(x, ConfigRecord) and name != wire.RECORD
    }
    for name, metrics in records.items():
        if metrics is not None:
            new[name] = MetricRecord({**metrics, key: update.weight})
            continue
        home = name if name in given else next(iter(given))
        new[name] = given[home]
        if update.changed:
            prefix = f"{home}/" if len(given) > 1 else ""
            names = {f"{prefix}{k}": k for k in given[home]}
            new[name] = ArrayRecord({names[k]: Array(x) for k, x in update.arrays.items() if k in names})
    return RecordDict(new)


class MelFedAvg(FedAvg):
    """FedAvg with the d_k-weighted average in double precision.

    The same bits as `flwr_mel.server.MelFedAvg` in the classic API: Flower's own two FedAvg round
    differently.
    """

    def aggregate_train(
        self,
        server_round: int,  # noqa: ARG002
        replies: Iterable[Message],
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average arrays with `weighted_average`; metrics as FedAvg does."""
        contents = [reply.content for reply in replies if reply.has_content()]
        if not contents:
            return None, None
        records = [next(iter(content.array_records.values())) for content in contents]
        weights: Sequence[Any] = [
            next(iter(c.metric_records.values()))[self.weighted_by_key] for c in contents
        ]
        arrays = weighted_average(
            [[record[name].numpy() for name in records[0]] for record in records], weights
        )
        average = ArrayRecord({k: Array(a) for k, a in zip(records[0], arrays, strict=True)})
        return average, self.train_metrics_aggr_fn(contents, self.weighted_by_key)
