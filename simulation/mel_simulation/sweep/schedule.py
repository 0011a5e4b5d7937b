"""A run planned ahead: allocations do not depend on training, so all tasks of a run are known at once.

`MelStrategy` plans the same tasks cycle by cycle (a test compares the trained models). Planning ahead lets a
sweep see which cells are the same training, and makes room for baselines that keep no limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flwr_mel._validate import IntArray
from flwr_mel.allocation import AllocationProblem, Infeasible, Solution, Status, allocate
from flwr_mel.allocation.capacity import Capacities, relaxed_synchronous
from flwr_mel.allocation.screening import screen
from flwr_mel.cycle.plan import draw_seed
from flwr_mel.cycle.round_time import Pace, best_in_pace
from flwr_mel.solvers.equal import equal_batches
from mel_simulation.scenario.config import RATE, RunConfig
from mel_simulation.scenario.fleet import names as names_of
from mel_simulation.scenario.job import batch_size, dataset_of, problem_of
from mel_simulation.sweep.cells import PROXIMAL, Baseline, Cell, digest


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
        sgd: tuple[Any, ...] = (batch_size(config), config.learning_rate, str(cell.average))
        sgd += (config.eta,) if config.optimizer == "adam" else ()
        proximal = PROXIMAL if cell.baseline is Baseline.PROX else 0.0
        where = (config.mode, config.dataset, data.embedded, len(data.train_y), config.alpha, config.seed)
        return digest([tasks, sgd, proximal, where])


def plan_schedule(cell: Cell) -> Schedule:
    """Plan all cycles of a cell."""
    names, cycles = names_of(cell.config), []
    # The strategy has its learners in the order of their names; ties and shards depend on it.
    order = list(range(len(names))) if cell.baseline else list(np.argsort(names))
    pace = Pace()
    for number in range(1, cell.config.cycles + 1):
        problem = problem_of(cell.config, number, order)
        try:
            if cell.config.scheme == RATE and not cell.baseline:
                problem, epochs, samples, used, facts, pace = _rate(cell, problem, pace)
            else:
                plan = _baseline if cell.baseline else _scheme
                epochs, samples, used, facts = plan(cell, number, problem)
        except Infeasible as infeasible:
            return Schedule((), names, str(infeasible.diagnosis))
        tasks = _tasks(cell.config, number, [(k, names[k]) for k in order], epochs, samples, used)
        cycles.append(PlannedCycle(number, tasks, _facts(problem, tasks, facts)))
    return Schedule(tuple(cycles), names)


def _tasks(
    config: RunConfig,
    cycle: int,
    learners: Sequence[tuple[int, str]],
    epochs: IntArray,
    samples: IntArray,
    used: IntArray,
) -> tuple[Work, ...]:
    """Cut a fresh shuffle of the data into shards (PL), as the strategy does, and draw the seeds."""
    rows: list[IntArray] | list[None] = [None] * len(learners)
    if config.mode == "pl":
        order = np.random.default_rng([config.seed, cycle]).permutation(len(dataset_of(config).train_y))
        rows = np.split(order, np.cumsum(samples))[:-1]
    tasks = []
    for i in used:
        learner, name = learners[i]
        seed = draw_seed(config.seed, cycle, name)
        tasks.append(Work(learner, int(epochs[i]), int(samples[i]), seed, rows[i]))
    return tuple(tasks)


def _scheme(
    cell: Cell, cycle: int, problem: AllocationProblem
) -> tuple[IntArray, IntArray, IntArray, dict[str, Any]]:
    """Allocate; after the first cycle, samples that do not fit are left out."""
    solver = cell.config.scheme_object().solver
    plan = allocate(problem, solver, throw=cycle == 1)
    if plan.status is Status.INFEASIBLE and plan.diagnosis is not None and plan.diagnosis.carried:
        plan = allocate(problem.replace(total_samples=plan.diagnosis.carried), solver)
    return plan.epochs, plan.samples, np.flatnonzero(plan.epochs), _plan_facts(plan, str(plan.objective))


def _rate(
    cell: Cell, problem: AllocationProblem, pace: Pace
) -> tuple[AllocationProblem, IntArray, IntArray, IntArray, dict[str, Any], Pace]:
    """Choose T and samples as `MelStrategy(cycle_time_s="best")` does."""
    costs, limits, rate = problem.coefficients, problem.energy_limit_j, cell.config.rate()
    shared = len(dataset_of(cell.config).train_y) // len(problem)
    held = np.minimum(problem.max_samples, shared if cell.config.mode == "pl" else problem.max_samples)
    found, pace = best_in_pace(pace, costs, costs, limits, held, problem.min_samples, rate)
    plan = found.solution
    facts = _plan_facts(plan, str(rate))
    return found.problem, plan.epochs, plan.samples, np.flatnonzero(plan.epochs), facts, pace


def _plan_facts(plan: Solution, objective: str) -> dict[str, Any]:
    return {
        "objective": objective,
        "bound": plan.bound,
        "mean_epochs": plan.mean_epochs,
        "makespan_s": float(plan.time_s.max()),
        "energy_j": sum(plan.energy_j.tolist()),
        "broken": 0,
    }


def _baseline(
    cell: Cell, cycle: int, problem: AllocationProblem
) -> tuple[IntArray, IntArray, IntArray, dict[str, Any]]:
    """Give all learners equal batches; learners beyond a limit are used only by the one that waits."""
    samples = np.minimum(equal_batches(problem), problem.max_samples)
    epochs = baseline_epochs(cell, problem, samples, np.random.default_rng([cell.config.seed, cycle, 99]))
    time_s = problem.coefficients.time_s(epochs, samples)
    energy_j = problem.coefficients.energy_j(epochs, samples)
    over = (time_s > problem.deadline_s) | (energy_j > problem.energy_limit_j)
    waits = cell.baseline is Baseline.WAIT
    used = np.flatnonzero((epochs > 0) & (waits | ~over))
    # A round waits until the deadline for learners that it drops; they spend up to their limit.
    makespan = float(time_s.max()) if waits else min(float(time_s.max()), problem.cycle_time_s)
    spent = energy_j if waits else np.minimum(energy_j, problem.energy_limit_j)
    facts = {"objective": "", "bound": 0.0, "mean_epochs": float(epochs[used].sum()) / len(epochs)}
    facts |= {"makespan_s": makespan, "energy_j": float(spent.sum()), "broken": int(over.sum())}
    return epochs, samples, used, facts


def baseline_epochs(
    cell: Cell, problem: AllocationProblem, samples: IntArray, rng: np.random.Generator
) -> IntArray:
    """Return the epochs of a baseline: fixed, as many as fit, or a random number of those that fit."""
    fixed = np.full(len(problem), cell.epochs, dtype=np.int64)
    if cell.baseline in (Baseline.WAIT, Baseline.DROP):
        return fixed
    most = np.zeros(len(problem), dtype=np.int64)
    for size in np.unique(samples):
        same = np.flatnonzero(samples == size)
        most[same] = replace(Capacities.of(problem).take(same), least=int(size)).most_epochs
    if cell.baseline is Baseline.PROX:
        return np.minimum(fixed, most)
    return np.where(most > 0, rng.integers(1, np.maximum(np.minimum(most, fixed), 1) + 1), 0)


def _facts(problem: AllocationProblem, tasks: tuple[Work, ...], facts: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of a cycle for a result line."""
    samples = sum(t.samples for t in tasks)
    return {
        **facts,
        "relaxed": _relaxed(problem),
        "used": len(tasks),
        "sample_epochs": sum(t.epochs * t.samples for t in tasks),
        "progress": sum(t.epochs * t.samples**2 for t in tasks) / max(samples, 1),
    }


def _relaxed(problem: AllocationProblem) -> float:
    """Return tau*, the relaxed synchronous optimum; 0 if the learners cannot carry the samples."""
    capacities = Capacities.of(problem)
    able, _ = screen(capacities)
    mine = capacities.take(able)
    if not len(able) or mine.at(1).sum() < problem.total_samples:
        return 0.0
    return relaxed_synchronous(mine, problem.total_samples)
