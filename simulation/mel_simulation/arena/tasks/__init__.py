"""What is learnt in the arena: data, a model, how it is trained and judged."""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from flwr_mel._validate import complain
from mel_simulation.arena.tasks.cifar import cifar10
from mel_simulation.arena.tasks.images import Perceptron, perceptron
from mel_simulation.arena.tasks.task import TorchTask
from mel_simulation.arena.tasks.text import shakespeare

Task: TypeAlias = Perceptron | TorchTask

#: Names of the tasks.
TASKS = ("digits", "mnist", "fashion-mnist", "cifar10", "shakespeare")


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
    if name in ("digits", "mnist", "fashion-mnist"):
        return perceptron(name, data_dir, samples)
    if name in ("cifar10", "shakespeare"):
        return (cifar10 if name == "cifar10" else shakespeare)(data_dir, samples)
    raise complain("task", f"one of {', '.join(TASKS)}", name)
