"""What is learnt in the arena: data, a model, how it is trained and judged."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import TypeAlias

from mel_simulation.arena.tasks.cifar import cifar10
from mel_simulation.arena.tasks.images import Perceptron, perceptron
from mel_simulation.arena.tasks.task import TorchTask
from mel_simulation.arena.tasks.text import shakespeare

Task: TypeAlias = Perceptron | TorchTask

#: Of a directory and a number of training samples.
TASKS: dict[str, Callable[[str, int], Task]] = {
    **{name: partial(perceptron, name) for name in ("digits", "mnist", "fashion-mnist")},
    "cifar10": cifar10,
    "shakespeare": shakespeare,
}


@lru_cache(maxsize=2)
def task_of(name: str, data_dir: str, samples: int) -> Task:
    """Return a task, its data read once per process.

    Parameters
    ----------
    name : str
        See `TASKS`.
    data_dir : str
        Directory of the data; empty: where the simulation looks for them.
    samples : int
        Training samples that are used, the first ones in an order drawn once; 0: all.
    """
    return TASKS[name](data_dir, samples)
