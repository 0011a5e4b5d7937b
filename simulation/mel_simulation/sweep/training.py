"""The training of one cell: its learners one after the other, in one process, without messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flwr_mel.clientapp import Assignment
from flwr_mel.cycle.average import Work, blend, weighted_average
from flwr_mel.cycle.options import Average
from flwr_mel.cycle.state import Task
from flwr_mel.cycle.updates import scaled
from mel_simulation.scenario.config import ADAM
from mel_simulation.scenario.job import batch_size, dataset_of, learn
from mel_simulation.scenario.network import Weights, evaluate, initial_weights
from mel_simulation.sweep.cells import Cell
from mel_simulation.sweep.schedule import PlannedCycle

_RULES = {"data": Average.SAMPLES, "nova": Average.NOVA}


def train_cell(cell: Cell, cycles: Sequence[PlannedCycle]) -> dict[str, list[float]]:
    """Do all tasks of a cell; return accuracy and loss after every cycle."""
    data, weights = dataset_of(cell), initial_weights(cell.seed)
    curves: dict[str, list[float]] = {"accuracy": [], "loss": []}
    adam = Adam(cell.eta) if cell.optimizer == "adam" else None
    for cycle in cycles:
        updates = [_update(cell, task, weights) for task in cycle.tasks]
        if updates:
            average = combine(cell, weights, updates, cycle)
            weights = average if adam is None else adam.step(cycle.number, weights, average)
        loss, accuracy = evaluate(weights, data.test_x, data.test_y)
        curves["accuracy"].append(accuracy)
        curves["loss"].append(loss)
    return curves


def _update(cell: Cell, task: Task, weights: Weights) -> Weights:
    data, learner = dataset_of(cell), int(task.node)
    shard = None if task.shard is None else (data.train_x[task.shard], data.train_y[task.shard])
    assignment = Assignment(task.epochs, task.samples, task.cycle, task.seed, shard)
    new, _, _ = learn(cell, weights, assignment, learner, batch_size(cell))
    if not all(np.isfinite(array).all() for array in new):
        raise FloatingPointError(f"{task.key} diverged in cycle {task.cycle}: lower the learning rate")
    return new


def combine(cell: Cell, old: Weights, updates: list[Weights], cycle: PlannedCycle) -> Weights:
    """Make one model of the learners' updates by the cell's rule."""
    works = [Work(t.epochs, t.samples) for t in cycle.tasks]
    mix = blend(_RULES[cell.average], works)
    before = {str(i): w for i, w in enumerate(old)}
    changed = [
        list(scaled({str(i): w for i, w in enumerate(update)}, before, factor).values())
        for update, factor in zip(updates, mix.factors, strict=True)
    ]
    return weighted_average(changed, mix.weights)


class Adam:
    """Flower's FedAdam without messages.

    Parameters
    ----------
    eta : float
        Its step.
    """

    def __init__(self, eta: float) -> None:
        self.eta = eta
        self.first: list[Any] | None = None
        self.second: list[Any] | None = None

    def step(self, cycle: int, old: Weights, average: Weights) -> Weights:
        """Return the new model: the average gives the direction, the moments the length of the step."""
        b1, b2, tau = ADAM["beta_1"], ADAM["beta_2"], ADAM["tau"]
        deltas = [new - was for new, was in zip(average, old, strict=True)]
        zeros = [np.zeros_like(delta) for delta in deltas]
        first, second = self.first or zeros, self.second or zeros
        self.first = [b1 * m + (1 - b1) * delta for m, delta in zip(first, deltas, strict=True)]
        self.second = [b2 * v + (1 - b2) * delta**2 for v, delta in zip(second, deltas, strict=True)]
        eta = self.eta * np.sqrt(1 - b2 ** (cycle + 1.0)) / (1 - b1 ** (cycle + 1.0))
        return [
            (was + eta * m / (np.sqrt(v) + tau)).astype(was.dtype)
            for was, m, v in zip(old, self.first, self.second, strict=True)
        ]
