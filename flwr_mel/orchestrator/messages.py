"""Tasks in the words of the wire, the same for both APIs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from flwr_mel import wire
from flwr_mel.clientapp.assignment import pack
from flwr_mel.orchestrator.core import Task


def task_words(task: Task, dataset: Sequence[npt.NDArray[Any]] | None) -> dict[str, Any]:
    """Return the flat keys and values of a task, with its shard if it has one.

    Parameters
    ----------
    task : Task
        From the plan.
    dataset : sequence of arrays, optional
        The server's data. Types stay as they are: uint8 stays uint8 on the wire.
    """
    words: dict[str, Any] = {
        wire.CYCLE: task.cycle,
        wire.EPOCHS: task.epochs,
        wire.SAMPLES: task.samples,
        wire.SEED: task.seed,
    }
    if task.shard is not None and dataset is not None:
        for i, array in enumerate(dataset):
            words[f"{wire.SHARD}{i}"] = pack(array[task.shard])
    return words
