"""The training of one cell: its learners one after the other, in one process, without messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flwr_mel.clientapp import Assignment
from flwr_mel.cycle import average as averaging
from flwr_mel.cycle.average import weighted_average
from flwr_mel.cycle.options import Average
from flwr_mel.cycle.updates import scaled
from mel_simulation.scenario.config import ADAM
from mel_simulation.scenario.job import dataset_of
from mel_simulation.scenario.learning import learn
from mel_simulation.scenario.network import Weights, evaluate, initial_weights
from mel_simulation.sweep.cells import Cell
from mel_simulation.sweep.schedule import PlannedCycle, Work

_RULES = {"data": Average.SAMPLES, "nova": Average.NOVA}


def train_cell(cell: Cell, cycles: Sequence[PlannedCycle]) -> dict[str, list[float]]:
    """Do all tasks of a cell; return accuracy and loss after every cycle."""
    data, weights = dataset_of(cell.config), initial_weights(cell.config.seed)
    curves: dict[str, list[float]] = {"accuracy": [], "loss": []}
    adam = Adam(cell.config.eta) if cell.config.optimizer == "adam" else None
    for cycle in cycles:
        updates = [_update(cell, cycle.number, task, weights) for task in cycle.tasks]
        if updates:
            average = combine(cell, weights, updates, cycle)
            weights = average if adam is None else adam.step(cycle.number, weights, average)
        loss, accuracy = evaluate(weights, data.test_x, data.test_y)
        curves["accuracy"].append(accuracy)
        curves["loss"].append(loss)
    return curves


def _update(cell: Cell, cycle: int, task: Work, weights: Weights) -> Weights:
    data = dataset_of(cell.config)
    shard = None if task.rows is None else (data.train_x[task.rows], data.train_y[task.rows])
    assignment = Assignment(task.epochs, task.samples, cycle, task.seed, shard)
    new, _, _ = learn(cell.config, weights, assignment, task.learner)
    if not all(np.isfinite(array).all() for array in new):
        raise FloatingPointError(f"learner {task.learner} diverged in cycle {cycle}: lower the learning rate")
    return new


def combine(cell: Cell, old: Weights, updates: list[Weights], cycle: PlannedCycle) -> Weights:
    """Make one model of the learners' updates by the cell's rule."""
    works = [averaging.Work(t.epochs, t.samples) for t in cycle.tasks]
    blend = averaging.blend(_RULES[cell.average], works)
    before = {str(i): w for i, w in enumerate(old)}
    changed = [
        list(scaled({str(i): w for i, w in enumerate(update)}, before, factor).values())
        for update, factor in zip(updates, blend.factors, strict=True)
    ]
    return weighted_average(changed, blend.weights)


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
