"""A task in the keys of the wire, the same for both APIs."""

from __future__ import annotations

from typing import Any

from flwr_mel import wire
from flwr_mel._npy import write_npy
from flwr_mel.cycle.options import Options
from flwr_mel.cycle.state import Task


def task_words(task: Task, options: Options) -> dict[str, Any]:
    """Return the flat keys and values of a task, with its shard if it has one.

    Parameters
    ----------
    task : Task
        From `plan`.
    options : Options
        The server's data and the key of the epochs. Types of arrays stay as they are.
    """
    words: dict[str, Any] = {wire.CYCLE: task.cycle, wire.SEED: task.seed}
    if options.rounds.epochs_key is not None:
        words[wire.EPOCHS_KEY] = options.rounds.epochs_key
    if task.baseline:
        return words | {wire.BASELINE: 1}
    words |= {wire.EPOCHS: task.epochs, wire.SAMPLES: task.samples}
    if task.shard is not None and options.shards is not None:
        for i, array in enumerate(options.shards.arrays):
            words[f"{wire.SHARD}{i}"] = write_npy(array[task.shard])
    return words
