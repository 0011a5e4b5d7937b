"""A run planned ahead: allocations do not depend on training, so all tasks of a run are known at once.

`MelStrategy` plans the same tasks cycle by cycle (a test compares the trained models). Planning ahead makes
room for a baseline that keeps no limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flwr_mel._validate import IntArray
from flwr_mel.allocation import AllocationProblem, Solution, Status, allocate
from flwr_mel.allocation.capacity import Capacities, relaxed_synchronous
from flwr_mel.allocation.screening import screen
from flwr_mel.cycle.plan import draw_seed
from flwr_mel.cycle.round_time import Pace, best_in_pace
from flwr_mel.solvers.equal import equal_batches
from flwr_mel.solvers.rate import BestRound
from mel_simulation.scenario.config import RATE, RunConfig
from mel_simulation.scenario.fleet import names as names_of
from mel_simulation.scenario.job import dataset_of, problem_of
from mel_simulation.sweep.cells import Cell


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """One learner's task: tau_k, d_k, the seed of its SGD, and in PL the rows that it gets."""

    learner: int
    epochs: int
    samples: int
    seed: int
    rows: IntArray | None


@dataclass(frozen=True, slots=True, eq=False)
class PlannedCycle:
    """The tasks of one cycle, and its numbers for the results."""

    number: int
    tasks: tuple[Work, ...]
    facts: dict[str, Any]


def plan_cycles(cell: Cell) -> list[PlannedCycle]:
    """Plan all cycles of a cell, or raise `Infeasible`."""
    names, cycles, pace = names_of(cell.config), [], Pace()
    # The strategy has its learners in the order of their names; ties and shards depend on it.
    order = list(range(len(names))) if cell.baseline else list(np.argsort(names))
    for number in range(1, cell.config.cycles + 1):
        problem = problem_of(cell.config, number, order)
        objective, bound = "", 0.0
        if cell.baseline:
            samples = np.minimum(equal_batches(problem), problem.max_samples)
            epochs = np.full(len(problem), cell.epochs, dtype=np.int64)
        else:
            if cell.config.scheme == RATE:
                found, pace = _best_round(cell.config, problem, pace)
                problem, plan, objective = found.problem, found.solution, str(cell.config.rate())
            else:
                plan = _allocated(cell.config, number, problem)
                objective = str(plan.objective)
            epochs, samples, bound = plan.epochs, plan.samples, plan.bound
        tasks = _tasks(cell.config, number, [(k, names[k]) for k in order], epochs, samples)
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


def _allocated(config: RunConfig, cycle: int, problem: AllocationProblem) -> Solution:
    """Allocate; after the first cycle, samples that do not fit are left out."""
    solver = config.scheme_object().solver
    plan = allocate(problem, solver, throw=cycle == 1)
    if plan.status is Status.INFEASIBLE and plan.diagnosis is not None and plan.diagnosis.carried:
        plan = allocate(problem.replace(total_samples=plan.diagnosis.carried), solver)
    return plan


def _best_round(config: RunConfig, problem: AllocationProblem, pace: Pace) -> tuple[BestRound, Pace]:
    """Choose T and samples as `MelStrategy(cycle_time_s="best")` does."""
    costs, held = problem.coefficients, problem.max_samples
    if config.mode == "pl":
        held = np.minimum(held, len(dataset_of(config).train_y) // len(problem))
    return best_in_pace(pace, costs, costs, problem.energy_limit_j, held, problem.min_samples, config.rate())


def _tasks(
    config: RunConfig,
    cycle: int,
    learners: Sequence[tuple[int, str]],
    epochs: IntArray,
    samples: IntArray,
) -> tuple[Work, ...]:
    """Cut a fresh shuffle of the data into shards (PL), as the strategy does, and draw the seeds."""
    rows: list[IntArray] | list[None] = [None] * len(learners)
    if config.mode == "pl":
        order = np.random.default_rng([config.seed, cycle]).permutation(len(dataset_of(config).train_y))
        rows = np.split(order, np.cumsum(samples))[:-1]
    return tuple(
        Work(learner, int(epochs[i]), int(samples[i]), draw_seed(config.seed, cycle, name), rows[i])
        for i, (learner, name) in enumerate(learners)
        if epochs[i]
    )


def _relaxed(problem: AllocationProblem) -> float:
    """Return tau*, the relaxed synchronous optimum; 0 if the learners cannot carry the samples."""
    capacities = Capacities.of(problem)
    able, _ = screen(capacities)
    mine = capacities.take(able)
    if not len(able) or mine.at(1).sum() < problem.total_samples:
        return 0.0
    return relaxed_synchronous(mine, problem.total_samples)
