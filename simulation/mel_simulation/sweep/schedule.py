"""A run planned ahead: allocations do not depend on training, so all tasks of a run are known at once.

`MelStrategy` plans the same tasks cycle by cycle (a test compares the trained models). Planning ahead lets a
sweep see which cells are the same training, and makes room for a baseline that keeps no limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flwr_mel._validate import IntArray
from flwr_mel.allocation import AllocationProblem, Infeasible, Solution, Status, allocate
from flwr_mel.allocation.capacity import Capacities, relaxed_synchronous
from flwr_mel.allocation.screening import screen
from flwr_mel.cycle.plan import draw_seed
from flwr_mel.cycle.round_time import Pace, best_in_pace
from flwr_mel.solvers.equal import equal_batches
from flwr_mel.solvers.rate import BestRound
from mel_simulation.scenario.config import RATE, RunConfig
from mel_simulation.scenario.fleet import names as names_of
from mel_simulation.scenario.job import batch_size, dataset_of, problem_of
from mel_simulation.sweep.cells import Cell, digest

#: Signatures of committed results have the proximal term of former baselines.
_NO_PROXIMAL = 0.0


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


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """All cycles of a cell; `trouble` says why there is none."""

    cycles: tuple[PlannedCycle, ...]
    names: Sequence[str]
    trouble: str = ""

    def signature(self, cell: Cell) -> str:
        """Name the training: cells with the same tasks, data and SGD have the same signature."""
        config, data = cell.config, dataset_of(cell.config)
        tasks = [
            [(self.names[t.learner], t.epochs, t.samples, t.seed) for t in cycle.tasks]
            for cycle in self.cycles
        ]
        sgd: tuple[Any, ...] = (batch_size(config), config.learning_rate, cell.average)
        sgd += (config.eta,) if config.optimizer == "adam" else ()
        where = (config.mode, config.dataset, data.embedded, len(data.train_y), config.alpha, config.seed)
        return digest([tasks, sgd, _NO_PROXIMAL, where])


def plan_schedule(cell: Cell) -> Schedule:
    """Plan all cycles of a cell."""
    names, cycles = names_of(cell.config), []
    # The strategy has its learners in the order of their names; ties and shards depend on it.
    order = list(range(len(names))) if cell.baseline else list(np.argsort(names))
    pace = Pace()
    for number in range(1, cell.config.cycles + 1):
        problem = problem_of(cell.config, number, order)
        try:
            if cell.baseline:
                epochs, samples, facts = _fixed_epochs(cell, problem)
            elif cell.config.scheme == RATE:
                found, pace = _best_round(cell.config, problem, pace)
                problem, epochs, samples = found.problem, found.solution.epochs, found.solution.samples
                facts = _facts(found.solution, str(cell.config.rate()))
            else:
                plan = _scheme(cell.config, number, problem)
                epochs, samples, facts = plan.epochs, plan.samples, _facts(plan, str(plan.objective))
        except Infeasible as infeasible:
            return Schedule((), names, str(infeasible.diagnosis))
        tasks = _tasks(cell.config, number, [(k, names[k]) for k in order], epochs, samples)
        facts |= {
            "relaxed": _relaxed(problem),
            "used": len(tasks),
            "sample_epochs": sum(t.epochs * t.samples for t in tasks),
        }
        cycles.append(PlannedCycle(number, tasks, facts))
    return Schedule(tuple(cycles), names)


def _scheme(config: RunConfig, cycle: int, problem: AllocationProblem) -> Solution:
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


def _facts(plan: Solution, objective: str) -> dict[str, Any]:
    """Return the numbers of a plan for a result line."""
    return {
        "objective": objective,
        "bound": plan.bound,
        "mean_epochs": plan.mean_epochs,
        "makespan_s": float(plan.time_s.max()),
        "energy_j": sum(plan.energy_j.tolist()),
        "broken": 0,
    }


def _fixed_epochs(cell: Cell, problem: AllocationProblem) -> tuple[IntArray, IntArray, dict[str, Any]]:
    """Give all learners the same work, and count those that it takes beyond a limit."""
    samples = np.minimum(equal_batches(problem), problem.max_samples)
    epochs = np.full(len(problem), cell.epochs, dtype=np.int64)
    time_s = problem.coefficients.time_s(epochs, samples)
    energy_j = problem.coefficients.energy_j(epochs, samples)
    over = (time_s > problem.deadline_s) | (energy_j > problem.energy_limit_j)
    facts = {
        "objective": "",
        "bound": 0.0,
        "mean_epochs": float(cell.epochs),
        "makespan_s": float(time_s.max()),
        "energy_j": float(energy_j.sum()),
        "broken": int(over.sum()),
    }
    return epochs, samples, facts


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
