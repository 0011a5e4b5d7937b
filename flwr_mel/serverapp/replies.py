"""Reading the replies of the Message API."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from flwr_mel import wire
from flwr_mel.flower import arrays as checks
from flwr_mel.flower.arrays import Key
from flwr_mel.flower.metrics import check_metrics, fill_in, odd_metrics, positive
from flwr_mel.flower.moving import Models, moved
from flwr_mel.flower.reasons import RefusedUpdate
from flwr_mel.flower.replies import Reply

log = logging.getLogger("flwr.mel")

#: How Flower names numpy's format.
_NUMPY = "numpy.ndarray"
_MOST_RECORDS, _MOST_ARRAYS = 100, 100_000
_TYPE_NAME = re.compile(r"[a-z0-9_]{1,32}")


def report_of(reply: Message) -> dict[str, object]:
    """Return what the mod attached to a reply."""
    record = reply.content.config_records.get(wire.RECORD) if reply.has_content() else None
    return dict(record) if record is not None else {}


def is_from(reply: Message, node: str) -> bool:
    """Whether a reply comes from the node that was asked; errors may come from the engine."""
    return reply.has_error() or str(reply.metadata.src_node_id) == node


@dataclass(frozen=True, slots=True)
class Read:
    """A reply's content, read.

    Parameters
    ----------
    reply : Reply
        What is checked.
    arrays : mapping of name to mapping of name to Array
        What is handed on.
    metrics_name : str
        What its metrics are called.
    others : mapping of name to ConfigRecord
        What is handed on besides.
    """

    reply: Reply
    arrays: Mapping[str, Mapping[str, Array]]
    metrics_name: str
    others: Mapping[str, ConfigRecord]

    def after(self, epochs: int) -> Read:
        """Return it with the epochs that were done for it.

        Parameters
        ----------
        epochs : int
            Of the task; 0: everybody's own.
        """
        return replace(self, reply=replace(self.reply, epochs=max(epochs, 1)))

    def content(self, metrics: Mapping[str, Any], keys: Iterable[Key], names: tuple[str, str]) -> RecordDict:
        """Put it together again for the inner strategy.

        Parameters
        ----------
        metrics : mapping
            Those that count, the server's own weight among them.
        keys : iterable of keys
            The order of the arrays.
        names : tuple of two str
            What to call a single ArrayRecord and the metrics: Flower's strategies want the same names from
            everybody.
        """
        arrays: dict[str, dict[str, Array]] = {}
        for key in keys:
            theirs, ours = (key[0], key[0]) if len(key) > 1 else (next(iter(self.arrays)), names[0])
            arrays.setdefault(ours, {})[key[-1]] = self.arrays[theirs][key[-1]]
        # The records that matter come last: no other record can take their names.
        return RecordDict(
            {
                **self.others,
                **{name: ArrayRecord(record) for name, record in arrays.items()},
                names[1]: MetricRecord(dict(metrics)),
            }
        )


def common_names(replies: Iterable[Read], sent: str) -> tuple[str, str]:
    """Return what most learners call their arrays and their metrics.

    Parameters
    ----------
    replies : iterable of Read
        Of one cycle.
    sent : str
        What the server called the arrays; wins ties.
    """
    votes = Counter((next(iter(read.arrays)), read.metrics_name) for read in replies)
    if not votes:
        return sent, "metrics"
    return max(votes, key=lambda names: (votes[names], names[0] == sent, names[1] == "metrics", names))


def read_reply(content: RecordDict, weigh: Callable[[object], int], weight_key: str, *, free: bool) -> Read:
    """Read a reply's content, or refuse it.

    Parameters
    ----------
    content : RecordDict
        The reply's.
    weigh : callable
        Makes of what the app says it trained on what the update counts for, or refuses it.
    weight_key : str
        The metric that the inner strategy weights by.
    free : bool
        Whether the task was the project's own round: then the app's own weight, which may be a fraction,
        counts.
    """
    arrays, metrics = content.array_records, content.metric_records
    if not arrays or len(metrics) != 1 or len(content) > _MOST_RECORDS:
        raise RefusedUpdate(
            f"has {len(arrays)} ArrayRecords and {len(metrics)} MetricRecords among {len(content)}, not one "
            "of each"
        )
    if sum(len(record) for record in arrays.values()) > _MOST_ARRAYS:
        raise RefusedUpdate(f"has more than {_MOST_ARRAYS:,} arrays")
    metrics_name, said = next(iter(metrics.items()))
    check_metrics(said)
    claimed = said.get(weight_key)
    weight = weigh(claimed)
    counts = claimed if free and isinstance(claimed, float) and round(claimed) <= weight else weight
    views: dict[Key, checks.Array] = {}
    records: dict[str, dict[str, Array]] = {name: {} for name in arrays}
    for name, record in arrays.items():
        for key, array in record.items():
            view = views[(name, key) if len(arrays) > 1 else (key,)] = _view(key, array)
            records[name][key] = _truthful(array, view)
    others = {key: value for key, value in content.config_records.items() if key != wire.RECORD}
    return Read(Reply(views, {**said, weight_key: counts}, weight), records, metrics_name, others)


def read_arrays(record: ArrayRecord) -> dict[Key, checks.Array]:
    """Return views of a model's arrays; raise `RefusedUpdate` if they cannot be read."""
    return {(key,): _view(key, array) for key, array in record.items()}


def moved_from(models: Models, cycle: int, views: Mapping[Key, checks.Array]) -> list[checks.Array]:
    """Return an update's arrays, moved from the model that it began with onto the present one.

    Parameters
    ----------
    models : Models
        Both.
    cycle : int
        In which it began.
    views : mapping of key to array
        The update.
    """
    old, now = (read_arrays(models[n]) for n in (cycle, max(models)))
    return moved(views, old, now)


def blended(
    content: RecordDict,
    scale: Callable[[Mapping[Key, checks.Array]], list[checks.Array]],
    weight: dict[str, int],
) -> RecordDict:
    """Return a reply's content with other arrays and another weight.

    Parameters
    ----------
    content : RecordDict
        As it is handed on.
    scale : callable
        Takes views of all its arrays and returns the arrays to hand on; a view stands for what came.
    weight : dict
        The metric to change.
    """
    views: dict[Key, checks.Array] = {
        (name, key): _view(key, array)
        for name, record in content.array_records.items()
        for key, array in record.items()
    }
    arrays: dict[str, dict[str, Array]] = {}
    for (place, view), new in zip(views.items(), scale(views), strict=True):
        name, key = place
        arrays.setdefault(name, {})[key] = content.array_records[name][key] if new is view else Array(new)
    return RecordDict(
        {
            **content,
            **{name: ArrayRecord(record) for name, record in arrays.items()},
            **{name: MetricRecord({**said, **weight}) for name, said in content.metric_records.items()},
        }
    )


def _view(key: str, array: Array) -> checks.Array:
    if array.stype != _NUMPY:
        raise RefusedUpdate(f"array {key[:60]} cannot be decoded: its format is {array.stype[:40]!r}")
    return checks.decode(f"array {key}", array.data)


def _truthful(array: Array, view: checks.Array) -> Array:
    """Return an array as it came, if the words beside its bytes are true, or else with true ones."""
    # numpy has no word for types such as bfloat16: then the sender's own tells what the bytes are.
    word = array.dtype if view.dtype.kind == "V" and _TYPE_NAME.fullmatch(array.dtype) else str(view.dtype)
    honest = (array.dtype, array.shape) == (word, view.shape)
    return array if honest else Array(word, view.shape, _NUMPY, array.data)


def check_evaluations(replies: Iterable[Message], weight_key: str) -> list[Message]:
    """Return the evaluations that can be averaged; the others are logged and left out.

    Flower gives up the whole run over one reply that does not fit the others.

    Parameters
    ----------
    replies : iterable of Message
        To evaluate messages; errors are kept, for the inner strategy to see.
    weight_key : str
        The metric that the inner strategy weights by.
    """
    kept: dict[str, Message] = {}
    said: dict[str, dict[str, Any]] = {}
    for i, reply in enumerate(replies):
        node = f"{i}: node {reply.metadata.src_node_id}"
        try:
            if not reply.has_error():
                said[node] = _evaluation(reply.content, weight_key)
            kept[node] = reply
        except RefusedUpdate as refused:
            log.warning("evaluation of node %d is left out: %s", reply.metadata.src_node_id, refused)
    keys, odd = odd_metrics(said)
    for node, reason in odd.items():
        log.warning("evaluation of%s is left out: %s", node.partition(":")[2], reason)
        del kept[node], said[node]
    names = Counter(name for node in said for name in kept[node].content.metric_records)
    name = max(names, key=lambda name: (names[name], name == "metrics", name), default="metrics")
    common = {node: {key: x for key, x in mine.items() if key in keys} for node, mine in said.items()}
    for node, metrics in fill_in(common, {node: mine[weight_key] for node, mine in said.items()}).items():
        others = dict(kept[node].content.config_records)
        kept[node].content = RecordDict({**others, name: MetricRecord(metrics)})
    return list(kept.values())


def _evaluation(content: RecordDict, weight_key: str) -> dict[str, Any]:
    """Return the metrics of one evaluation, with a weight that can be summed."""
    metrics = content.metric_records
    if len(metrics) != 1 or len(content) > _MOST_RECORDS:
        raise RefusedUpdate(f"has {len(metrics)} MetricRecords among {len(content)}, not one")
    said = next(iter(metrics.values()))
    check_metrics(said)
    if weight_key not in said:
        raise RefusedUpdate(f"does not say on how many samples ({weight_key})")
    return {**said, weight_key: positive(said[weight_key])}
