"""Checks of the replies of the Message API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from flwr_mel import wire
from flwr_mel.orchestrator import RefusedUpdate, Task, check_update, check_weight

Model = Mapping[str, npt.NDArray[Any]]


def report_of(reply: Message) -> dict[str, object]:
    """Return what the mod attached to a reply."""
    record = reply.content.config_records.get(wire.RECORD) if reply.has_content() else None
    return dict(record) if record is not None else {}


@dataclass(frozen=True, slots=True)
class CleanReply:
    """A reply's content, checked; the weight is the server's own."""

    arrays_name: str
    arrays: dict[str, Array]
    metrics_name: str
    metrics: dict[str, Any]
    others: dict[str, ConfigRecord]
    weight: int

    def content(self, keys: set[str]) -> RecordDict:
        """Put it together again for the inner strategy.

        Parameters
        ----------
        keys : set of str
            The metrics that everybody reports; others are dropped.
        """
        metrics = {key: value for key, value in self.metrics.items() if key in keys}
        return RecordDict(
            {
                self.arrays_name: ArrayRecord(self.arrays),
                self.metrics_name: MetricRecord(metrics),
                **self.others,
            }
        )


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
    if len(arrays) != 1 or len(metrics) != 1:
        raise RefusedUpdate(
            f"has {len(arrays)} ArrayRecords and {len(metrics)} MetricRecords, not one of each"
        )
    arrays_name, update = next(iter(arrays.items()))
    metrics_name, said = next(iter(metrics.items()))
    weight = check_weight(said.get(weight_key), task.samples)
    decoded = _decode(update, model)
    checked = check_update(decoded, list(model.values()))
    return CleanReply(
        arrays_name,
        {
            key: update[key] if new is old else Array(new)
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
        raise RefusedUpdate(f"its arrays are not the model's: {', '.join(odd)}")
    decoded = []
    for key, mine in model.items():
        theirs = update[key]
        if len(theirs.data) > 2 * mine.nbytes + 4096:
            raise RefusedUpdate(f"{key} has {len(theirs.data)} bytes instead of {mine.nbytes}")
        try:
            decoded.append(np.asarray(theirs.numpy()))
        except Exception as error:
            raise RefusedUpdate(f"{key} cannot be decoded: {error}") from None
    return decoded
