"""Tasks in the words of the wire, the same for both APIs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flwr_mel import wire
from flwr_mel.clientapp.assignment import pack
from flwr_mel.flower.metrics import check_weight, own_weight
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
    words: dict[str, Any] = {wire.CYCLE: task.cycle, wire.SEED: task.seed}
    if settings.epochs_key is not None:
        # Where there is a mod it lays the epochs there, and sees what the project's own were.
        words |= {wire.EPOCHS_KEY: settings.epochs_key}
    if task.free:
        return words | {wire.FREE: 1}
    if settings.epochs_key is not None and not task.modded:
        words[settings.epochs_key] = task.epochs
    if settings.samples_key is not None:
        words[settings.samples_key] = task.samples
    words |= {wire.EPOCHS: task.epochs, wire.SAMPLES: task.samples}
    if task.shard is not None and settings.dataset is not None:
        for i, array in enumerate(settings.dataset):
            words[f"{wire.SHARD}{i}"] = pack(array[task.shard])
    return words


def weight_of(task: Task, settings: Settings, claimed: object, report: Mapping[str, object]) -> int:
    """Return the samples that an update counts for, or refuse it.

    Parameters
    ----------
    task : Task
        What the learner was given.
    settings : Settings
        The most that anybody counts for.
    claimed : object
        What its app says it trained on; None when it says nothing.
    report : mapping
        What its mod says.
    """
    if task.free:
        batches = report.get(wire.SAMPLES_FROM) == wire.LOADER
        said = report.get(wire.SAMPLES_USED) if claimed is None or batches else claimed
        return own_weight(said, settings.max_samples)
    allocated = task.samples if settings.max_samples is None else min(task.samples, settings.max_samples)
    return check_weight(claimed, allocated, report)
