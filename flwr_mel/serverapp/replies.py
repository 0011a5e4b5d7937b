"""Checks of the replies of the Message API."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from flwr_mel import wire
from flwr_mel._validate import MAX_COUNT
from flwr_mel.orchestrator import RefusedUpdate, Task, check_update, check_weight, odd_metrics
from flwr_mel.orchestrator.updates import check_metrics, decode

log = logging.getLogger("flwr.mel")

Model = Mapping[str, npt.NDArray[Any]]
#: How Flower names numpy's format.
_NUMPY = "numpy.ndarray"
_MOST_RECORDS = 100


def report_of(reply: Message) -> dict[str, object]:
    """Return what the mod attached to a reply."""
    record = reply.content.config_records.get(wire.RECORD) if reply.has_content() else None
    return dict(record) if record is not None else {}


def is_from(reply: Message, node: str) -> bool:
    """Whether a reply comes from the node that was asked; errors may come from the engine."""
    return reply.has_error() or str(reply.metadata.src_node_id) == node


@dataclass(frozen=True, slots=True)
class CleanReply:
    """A reply's content, checked; the weight is the server's own."""

    arrays_name: str
    arrays: dict[str, Array]
    metrics_name: str
    metrics: dict[str, Any]
    others: dict[str, ConfigRecord]
    weight: int

    def content(self, keys: set[str], names: tuple[str, str]) -> RecordDict:
        """Put it together again for the inner strategy.

        Parameters
        ----------
        keys : set of str
            The metrics that everybody reports; others are dropped.
        names : tuple of two str
            What to call the arrays and the metrics: Flower's strategies want the same names from everybody.
        """
        metrics = {key: value for key, value in self.metrics.items() if key in keys}
        # The records that matter come last: no other record can take their names.
        return RecordDict(
            {**self.others, names[0]: ArrayRecord(self.arrays), names[1]: MetricRecord(metrics)}
        )


def common_names(replies: Iterable[CleanReply], sent: str) -> tuple[str, str]:
    """Return what most learners call their arrays and their metrics.

    Parameters
    ----------
    replies : iterable of CleanReply
        Of one cycle.
    sent : str
        What the server called the arrays; wins ties.
    """
    votes = Counter((reply.arrays_name, reply.metrics_name) for reply in replies)
    if not votes:
        return sent, "metrics"
    return max(votes, key=lambda names: (votes[names], names[0] == sent, names[1] == "metrics", names))


def check_reply(content: RecordDict, task: Task, model: Model, weight_key: str) -> CleanReply:
    """Check a reply's content, or refuse it.

    Parameters
    ----------
    content : RecordDict
        The reply's.
    task : Task
        What the learner was to do.
    model : mapping of str to array
        The global model.
    weight_key : str
        The metric that the inner strategy weights by.
    """
    arrays, metrics = content.array_records, content.metric_records
    if len(arrays) != 1 or len(metrics) != 1 or len(content) > _MOST_RECORDS:
        raise RefusedUpdate(
            f"has {len(arrays)} ArrayRecords and {len(metrics)} MetricRecords among {len(content)}, not one "
            "of each"
        )
    arrays_name, update = next(iter(arrays.items()))
    metrics_name, said = next(iter(metrics.items()))
    check_metrics(said)
    weight = check_weight(said.get(weight_key), task.samples)
    decoded = _decode(update, model)
    checked = check_update(decoded, list(model.values()))
    return CleanReply(
        arrays_name,
        {
            # With our own words of type and shape: those beside the bytes were not checked.
            key: Array(str(new.dtype), new.shape, _NUMPY, update[key].data) if new is old else Array(new)
            for key, new, old in zip(model, checked, decoded, strict=True)
        },
        metrics_name,
        {**said, weight_key: weight},
        {key: value for key, value in content.config_records.items() if key != wire.RECORD},
        weight,
    )


def _decode(update: ArrayRecord, model: Model) -> list[npt.NDArray[Any]]:
    """Decode a learner's arrays in the model's order, refusing other keys, sizes and formats."""
    if set(update) != set(model):
        odd = sorted(set(update) ^ set(model))[:3]
        raise RefusedUpdate(f"its arrays are not the model's: {', '.join(key[:60] for key in odd)}")
    decoded = []
    for key, mine in model.items():
        if update[key].stype != _NUMPY:
            raise RefusedUpdate(f"{key} cannot be decoded: its format is {update[key].stype[:40]!r}")
        decoded.append(decode(key, update[key].data, mine))
    return decoded


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
        del kept[node]
    names = Counter(name for node in said if node in kept for name in kept[node].content.metric_records)
    name = max(names, key=lambda name: (names[name], name == "metrics", name), default="metrics")
    for node, reply in kept.items():
        if node in said:
            metrics = {key: value for key, value in said[node].items() if key in keys}
            others = dict(reply.content.config_records)
            reply.content = RecordDict({**others, name: MetricRecord(metrics)})
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
    return {**said, weight_key: check_weight(said[weight_key], MAX_COUNT)}
