"""A run planned ahead: allocations do not depend on training, so all tasks of a run are known at once.

`MelStrategy` plans the same tasks cycle by cycle (a test compares the trained models). Planning ahead makes
room for a baseline that keeps no limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from flwr_mel._validate import IntArray
from flwr_mel.allocation import AllocationProblem
from flwr_mel.allocation.capacity import Capacities, relaxed_synchronous
from flwr_mel.allocation.screening import screen
from flwr_mel.cycle.plan import draw_seed
from flwr_mel.cycle.round_time import Pace
from flwr_mel.cycle.state import Task
from flwr_mel.solvers.equal import equal_batches
from mel_simulation.scenario.config import RATE
from mel_simulation.scenario.job import dataset_of, names_of, plan, problem_of
from mel_simulation.sweep.cells import Cell


@dataclass(frozen=True, slots=True, eq=False)
class PlannedCycle:
    """The tasks of one cycle, whose nodes are the numbers of the learners, and its row in the results."""

    number: int
    tasks: list[Task]
    facts: dict[str, Any]


def plan_cycles(cell: Cell) -> list[PlannedCycle]:
    """Plan all cycles of a cell, or raise `Infeasible`."""
    names, cycles, pace = names_of(cell), [], Pace()
    # The strategy has its learners in the order of their names; ties and shards depend on it.
    order = list(range(len(names))) if cell.baseline else np.argsort(names).tolist()
    for number in range(1, cell.cycles + 1):
        problem = problem_of(cell, number, order)
        objective, bound = "", 0.0
        if cell.baseline:
            samples = np.minimum(equal_batches(problem), problem.max_samples)
            epochs = np.full(len(problem), cell.epochs, dtype=np.int64)
        else:
            problem, solution, pace = plan(cell, number, problem, pace)
            epochs, samples, bound = solution.epochs, solution.samples, solution.bound
            objective = str(cell.rate() if cell.scheme == RATE else solution.objective)
        tasks = _tasks(cell, number, [(k, names[k]) for k in order], epochs, samples)
        time_s = problem.coefficients.time_s(epochs, samples)
        energy_j = problem.coefficients.energy_j(epochs, samples)
        facts = {
            "objective": objective,
            "bound": bound,
            "mean_epochs": int(epochs.sum()) / len(epochs),
            "makespan_s": float(time_s.max()),
            # As in the committed results: the two sums may differ in the last bit.
            "energy_j": float(energy_j.sum()) if cell.baseline else sum(energy_j.tolist()),
            "broken": int(((time_s > problem.deadline_s) | (energy_j > problem.energy_limit_j)).sum()),
            "relaxed": _relaxed(problem),
            "used": len(tasks),
            "sample_epochs": sum(t.epochs * t.samples for t in tasks),
        }
        cycles.append(PlannedCycle(number, tasks, facts))
    return cycles


def _tasks(
    cell: Cell, cycle: int, learners: list[tuple[int, str]], epochs: IntArray, samples: IntArray
) -> list[Task]:
    """Cut a fresh shuffle of the data into shards (PL), as the strategy does, and draw the seeds."""
    rows: list[IntArray] | list[None] = [None] * len(learners)
    if cell.mode == "pl":
        order = np.random.default_rng([cell.seed, cycle]).permutation(len(dataset_of(cell).train_y))
        rows = np.split(order, np.cumsum(samples))[:-1]
    works = zip(learners, epochs.tolist(), samples.tolist(), rows, strict=True)
    return [
        Task(str(k), name, cycle, tau, d, draw_seed(cell.seed, cycle, name), shard=shard)
        for (k, name), tau, d, shard in works
        if tau
    ]


def _relaxed(problem: AllocationProblem) -> float:
    """Return tau*, the relaxed synchronous optimum; 0 if the learners cannot carry the samples."""
    capacities = Capacities.of(problem)
    able, _ = screen(capacities)
    mine = capacities.take(able)
    if not len(able) or mine.at(1).sum() < problem.total_samples:
        return 0.0
    return relaxed_synchronous(mine, problem.total_samples)
