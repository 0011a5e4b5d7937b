"""The training of one cell: its learners one after the other, in one process, without messages."""

from __future__ import annotations

import numpy as np

from flwr_mel.clientapp import Assignment
from flwr_mel.cycle import average as averaging
from flwr_mel.cycle import options
from flwr_mel.cycle.average import weighted_average
from flwr_mel.cycle.updates import scaled
from mel_simulation.scenario.config import LAYERS
from mel_simulation.scenario.job import dataset_of, held_by
from mel_simulation.scenario.learning import learn
from mel_simulation.scenario.network import Weights, evaluate, initial_weights
from mel_simulation.sweep.cells import Average, Baseline, Cell
from mel_simulation.sweep.schedule import PlannedCycle, Schedule, Work

_RULES = {
    Average.DATA: options.Average.SAMPLES,
    Average.NOVA: options.Average.NOVA,
    Average.HELD: options.Average.NOVA_HELD,
}


def train_cell(cell: Cell, schedule: Schedule) -> dict[str, list[float]]:
    """Do all tasks of a schedule; return accuracy and loss after every cycle."""
    data, weights = dataset_of(cell.config), initial_weights(cell.config.seed, LAYERS)
    curves: dict[str, list[float]] = {"accuracy": [], "loss": []}
    for cycle in schedule.cycles:
        updates = [_update(cell, cycle.number, task, weights) for task in cycle.tasks]
        weights = combine(cell, weights, updates, cycle) if updates else weights
        loss, accuracy = evaluate(weights, data.test_x, data.test_y)
        curves["accuracy"].append(accuracy)
        curves["loss"].append(loss)
    return curves


def _update(cell: Cell, cycle: int, task: Work, weights: Weights) -> Weights:
    data = dataset_of(cell.config)
    shard = None if task.rows is None else (data.train_x[task.rows], data.train_y[task.rows])
    assignment = Assignment(task.epochs, task.samples, cycle, task.seed, shard)
    proximal = cell.proximal if cell.baseline is Baseline.PROX else 0.0
    new, _, _ = learn(cell.config, weights, assignment, task.learner, proximal=proximal)
    if not all(np.isfinite(array).all() for array in new):
        raise FloatingPointError(f"learner {task.learner} diverged in cycle {cycle}: lower the learning rate")
    return new


def combine(cell: Cell, old: Weights, updates: list[Weights], cycle: PlannedCycle) -> Weights:
    """Make one model of the learners' updates by the cell's rule."""
    if cell.average is Average.UNIFORM:
        return weighted_average(updates, [1] * len(updates))
    works = [averaging.Work(t.epochs, t.samples, held_by(cell.config, t.learner)) for t in cycle.tasks]
    blend = averaging.blend(_RULES[cell.average], works)
    before = {str(i): w for i, w in enumerate(old)}
    changed = [
        list(scaled({str(i): w for i, w in enumerate(update)}, before, factor).values())
        for update, factor in zip(updates, blend.factors, strict=True)
    ]
    return weighted_average(changed, blend.weights)
