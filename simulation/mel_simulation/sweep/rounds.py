"""The rounds of a cell without Flower's engine: learners train one after the other, in one process.

`plan` and `settle` are called as `MelStrategy` calls them: a cell has the bits of `flwr-mel simulate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from flwr_mel import wire
from flwr_mel.allocation import AllocationProblem
from flwr_mel.allocation.capacity import Capacities, relaxed_synchronous
from flwr_mel.allocation.screening import screen
from flwr_mel.clientapp import Assignment
from flwr_mel.cycle.average import weighted_average
from flwr_mel.cycle.options import Average, Options
from flwr_mel.cycle.plan import plan
from flwr_mel.cycle.settle import Reply, settle
from flwr_mel.cycle.state import State, Task, with_answers
from flwr_mel.records import CycleRecord
from flwr_mel.solvers.equal import EqualBatches
from mel_simulation.scenario import job
from mel_simulation.scenario.adam import adam
from mel_simulation.scenario.network import Weights, initial_weights
from mel_simulation.sweep.cells import Cell

_AVERAGES = {"data": Average.SAMPLES, "nova": Average.NOVA}
#: T of the baseline, which waits for all learners.
_FOREVER_S = 1e9
#: Trains a learner as a task says.
Train = Callable[[Cell, Task, Weights], Weights]


def train(cell: Cell, task: Task, weights: Weights) -> Weights:
    """Return a learner's model after its task."""
    data, learner = job.dataset_of(cell), int(task.node)
    shard = None if task.shard is None else (data.train_x[task.shard], data.train_y[task.shard])
    assignment = Assignment(task.epochs, task.samples, task.cycle, task.seed, shard)
    new, _, _ = job.learn(cell, weights, assignment, learner, job.batch_size(cell))
    if not all(np.isfinite(array).all() for array in new):
        raise FloatingPointError(f"{task.key} diverged in cycle {task.cycle}: lower the learning rate")
    return new


def rounds(cell: Cell, train: Train = train) -> Iterator[tuple[Sequence[Task], CycleRecord, Weights]]:
    """Yield the tasks, the record and the new model of every cycle; raise `Infeasible` before the first.

    Parameters
    ----------
    cell : Cell
        The run.
    train : callable
        What a learner does.
    """
    if not cell.baseline:
        job.check_feasible(cell)
    options, state, weights = _options(cell), State(), initial_weights(cell.seed)
    step = adam(cell.eta) if cell.optimizer == "adam" else None
    for cycle in range(1, cell.cycles + 1):
        answers = _answers(cell, cycle)
        state = with_answers(state, options, answers)
        state, tasks, record = plan(state, options, cycle, list(answers))
        updates = {task.node: train(cell, task, weights) for task in tasks}
        replies = {task.node: Reply(_named(updates[task.node]), task.samples) for task in tasks}
        state, record, used = settle(state, options, record, replies, _named(weights))
        if used:
            average = weighted_average([[*x.arrays.values()] for x in used], [x.weight for x in used])
            weights = average if step is None else step(cycle, weights, average)
        yield tasks, record, weights


def _options(cell: Cell) -> Options:
    """Return what to plan with. The baseline has fixed epochs, and keeps no limits."""
    settings = job.settings_of(cell) | {"average": _AVERAGES[cell.average]}
    if cell.baseline:
        settings |= {"cycle_time_s": _FOREVER_S, "staleness": None}
        settings |= {"solver": EqualBatches(), "max_epochs": cell.epochs}
    return Options(**settings)


def _answers(cell: Cell, cycle: int) -> dict[str, dict[str, Any]]:
    """Return what all learners answer before a cycle, by node."""
    answers = job.answers(cell, cycle)
    for words in answers.values() if cell.baseline else ():
        words.pop(wire.ENERGY_LIMIT_J, None)
    return answers


def _named(weights: Weights) -> Mapping[str, Any]:
    return {str(i): array for i, array in enumerate(weights)}


def facts(cell: Cell, record: CycleRecord) -> dict[str, Any]:
    """Return the row of a cycle in the results.

    Parameters
    ----------
    cell : Cell
        The run.
    record : CycleRecord
        Of the settled cycle.
    """
    limits = {x.name: x.energy_limit_j for x in job.learners_of(cell, record.cycle)}
    asked, time_s = record.asked, cell.cycle_time if cell.baseline else record.cycle_time_s
    over = [x for x in asked if x.time_s > time_s or x.energy_j > (limits[x.learner] or np.inf)]
    return {
        "bound": record.bound,
        "mean_epochs": sum(x.epochs for x in record.learners) / len(record.learners),
        "makespan_s": record.makespan_s,
        "energy_j": record.energy_j,
        "broken": len(over),
        "relaxed": _relaxed(job.problem_of(cell, record.cycle)),
        "used": len(asked),
        "sample_epochs": sum(x.epochs * x.samples for x in asked),
    }


def _relaxed(problem: AllocationProblem) -> float:
    """Return tau*, the relaxed synchronous optimum; 0 if the learners cannot carry the samples."""
    capacities = Capacities.of(problem)
    able, _ = screen(capacities)
    mine = capacities.take(able)
    if not len(able) or mine.at(1).sum() < problem.total_samples:
        return 0.0
    return relaxed_synchronous(mine, problem.total_samples)
