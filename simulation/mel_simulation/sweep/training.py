"""The training of one cell: its learners one after the other, in one process, without messages."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from flwr_mel.clientapp import Assignment
from flwr_mel.flower.arrays import Array, Key, check_update
from flwr_mel.flower.average import scaled, weighted_average
from flwr_mel.flower.moving import moved
from flwr_mel.orchestrator import averaging
from flwr_mel.orchestrator.averaging import Work
from flwr_mel.orchestrator.state import Task
from mel_simulation.scenario.config import LAYERS
from mel_simulation.scenario.data import Dataset
from mel_simulation.scenario.job import dataset_of
from mel_simulation.scenario.learning import learn
from mel_simulation.scenario.network import Weights, evaluate, initial_weights
from mel_simulation.sweep.cells import Average, Baseline, Cell
from mel_simulation.sweep.schedule import PlannedCycle, Schedule

_RULES = {
    Average.DATA: averaging.Average.SAMPLES,
    Average.NOVA: averaging.Average.NOVA,
    Average.HELD: averaging.Average.NOVA_HELD,
}


@dataclass(frozen=True, slots=True)
class Curve:
    """Accuracy and loss after every cycle, and the seconds that the training took."""

    accuracy: list[float]
    loss: list[float]
    seconds: float
    #: On the labels that only a few learners hold, if there are such.
    rare: list[float] = field(default_factory=list)

    def as_dict(self) -> dict[str, list[float]]:
        """Return what follows from the configuration alone."""
        rare = {"rare_accuracy": self.rare} if self.rare else {}
        return {"accuracy": self.accuracy, "loss": self.loss, **rare}


def train_cell(cell: Cell, schedule: Schedule) -> Curve:
    """Do all tasks of a schedule.

    Parameters
    ----------
    cell : Cell
        Data, SGD and the way to average.
    schedule : Schedule
        Who does what in which cycle.
    """
    start = time.monotonic()
    data, weights = dataset_of(cell.config), initial_weights(cell.config.seed, LAYERS)
    index = {name: k for k, name in enumerate(schedule.names)}
    curve, held = Curve([], [], 0.0), dict(zip(schedule.names, schedule.held, strict=True))
    rare = data.test_y >= int(data.test_y.max()) + 1 - cell.config.rare_labels
    models: dict[int, Weights] = {}
    kept: dict[tuple[str, int], Weights] = {}
    for n, cycle in enumerate(schedule.cycles, 1):
        again = {(task.learner, task.cycle) for each in schedule.cycles[n - 1 :] for task, _ in each.again}
        later = {task.cycle for each in schedule.cycles[n - 1 :] for task in each.moved}
        later |= {begun for _, begun in again}
        kept = {whose: new for whose, new in kept.items() if whose in again}
        models = {begun: model for begun, model in models.items() if begun in later} | {n: weights}
        updates = [_update(cell, task, index, weights, data) for task in cycle.tasks]
        for task in cycle.moved:
            old = models[task.cycle]
            kept[task.learner, task.cycle] = _update(cell, task, index, old, data)
            updates.append(_moved(kept[task.learner, task.cycle], old, weights))
        for task, _ in cycle.again:
            updates.append(_moved(kept[task.learner, task.cycle], models[task.cycle], weights))
        weights = combine(cell.average, weights, updates, cycle, held) if updates else weights
        loss, accuracy = evaluate(weights, data.test_x, data.test_y)
        curve.accuracy.append(accuracy)
        curve.loss.append(loss)
        if cell.config.rare_labels:
            curve.rare.append(evaluate(weights, data.test_x[rare], data.test_y[rare])[1])
    return replace(curve, seconds=time.monotonic() - start)


def _moved(new: Weights, old: Weights, now: Weights) -> Weights:
    """Move an update from the model that it began with onto the present one."""
    return moved(_keyed(new), _keyed(old), _keyed(now))


def _keyed(model: Weights) -> dict[Key, Array]:
    return {(str(i),): array for i, array in enumerate(model)}


def _update(cell: Cell, task: Task, index: dict[str, int], weights: Weights, data: Dataset) -> Weights:
    shard = None if task.shard is None else (data.train_x[task.shard], data.train_y[task.shard])
    assignment = Assignment(task.epochs, task.samples, task.cycle, task.seed, shard)
    proximal = cell.proximal if cell.baseline is Baseline.PROX else 0.0
    new, _, _ = learn(cell.config, weights, assignment, index[task.learner], len(index), proximal=proximal)
    return check_update(new, weights)


def combine(
    average: Average,
    old: Weights,
    updates: list[Weights],
    cycle: PlannedCycle,
    held: Mapping[str, int | None] | None = None,
) -> Weights:
    """Make one model of the learners'.

    Parameters
    ----------
    average : Average
        The rule.
    old : list of ndarray
        The global model the learners began with, or were moved onto.
    updates : list of lists of ndarray
        Theirs, in the order of the tasks, then those of earlier cycles, then those that count again.
    cycle : PlannedCycle
        The tasks.
    held : mapping of str to int, optional
        What learners hold.
    """
    if average is Average.UNIFORM:
        return weighted_average(updates, [1] * len(updates))
    works = [
        Work(t.epochs, t.samples, (held or {}).get(t.learner), max(cycle.number - t.cycle, 0) + 1)
        for t in (*cycle.tasks, *cycle.moved)
    ]
    works += [Work(t.epochs, t.samples, (held or {}).get(t.learner), m) for t, m in cycle.again]
    blend = averaging.blend(_RULES[average], works)
    updates = [scaled(u, old, factor) for u, factor in zip(updates, blend.factors, strict=True)]
    return weighted_average(updates, blend.weights)
