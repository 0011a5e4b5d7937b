"""Tasks in the words of the wire, the same for both APIs."""

from __future__ import annotations

from typing import Any

from flwr_mel import wire
from flwr_mel.clientapp.assignment import pack
from flwr_mel.orchestrator.settings import Settings
from flwr_mel.orchestrator.state import Task


def task_words(task: Task, settings: Settings) -> dict[str, Any]:
    """Return the flat keys and values of a task, with its shard if it has one.

    Parameters
    ----------
    task : Task
        From the plan.
    settings : Settings
        The server's data, and under which other names the client wants its epochs and samples. Types of
        arrays stay as they are: uint8 stays uint8 on the wire.
    """
    own = {settings.epochs_key: task.epochs, settings.samples_key: task.samples}
    words: dict[str, Any] = {key: value for key, value in own.items() if key is not None}
    words |= {
        wire.CYCLE: task.cycle,
        wire.EPOCHS: task.epochs,
        wire.SAMPLES: task.samples,
        wire.SEED: task.seed,
    }
    if task.shard is not None and settings.dataset is not None:
        for i, array in enumerate(settings.dataset):
            words[f"{wire.SHARD}{i}"] = pack(array[task.shard])
    return words
