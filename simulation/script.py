"""A run planned ahead: allocations do not depend on training, so a whole run's tasks are known at once.

`MelStrategy` would plan the same tasks cycle by cycle (a test compares them). Planning ahead lets a sweep
see which cells are the same training, and makes room for baselines that keep no limits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flwr_mel._validate import IntArray
from flwr_mel.allocation import AllocationProblem, Infeasible
from flwr_mel.allocation.capacity import Capacities, relaxed_synchronous
from flwr_mel.allocation.screening import screen
from flwr_mel.learners.fleet import Fleet
from flwr_mel.orchestrator import OnInfeasible, Orchestrator, Settings
from flwr_mel.orchestrator.planning import cut_shards, draw_seeds
from flwr_mel.orchestrator.state import Task
from flwr_mel.solvers.equal import equal_batches
from simulation.cells import Baseline, Cell, digest
from simulation.fleet import VirtualFleet
from simulation.rehearsal import settings_of, unspoken
from simulation.task import batch_size, dataset_of, local_indices, min_samples, total_samples, workload_of


@dataclass(frozen=True, slots=True, eq=False)
class Act:
    """One cycle of a script.

    Parameters
    ----------
    tasks : tuple of Task
        Whose updates are used; `Task.learner` names the learner.
    mean_epochs, bound : float
        Objective and certificate (bound = 0 for baselines).
    makespan_s, energy_j : float
        By the cost model.
    broken : int
        Learners beyond their deadline or energy limit (baselines only).
    relaxed : float
        tau*, the relaxed synchronous optimum of the cycle.
    """

    tasks: tuple[Task, ...]
    mean_epochs: float
    bound: float
    makespan_s: float
    energy_j: float
    broken: int
    relaxed: float


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """All cycles of a cell; `trouble` says why there is none."""

    acts: tuple[Act, ...]
    settings: Settings
    names: tuple[str, ...]
    trouble: str = ""

    def signature(self, cell: Cell) -> str:
        """Name the training: cells with the same tasks, data and SGD have the same signature."""
        config, data = cell.config, dataset_of(cell.config)
        tasks = [[(t.learner, t.epochs, t.samples, t.seed) for t in act.tasks] for act in self.acts]
        sgd = (batch_size(config), config.learning_rate, str(cell.average))
        proximal = cell.proximal if cell.baseline is Baseline.PROX else 0.0
        where = (config.mode, config.dataset, data.embedded, len(data.train_y), config.alpha, config.seed)
        return digest([tasks, sgd, proximal, where])


def write_script(cell: Cell, learners: int) -> Script:
    """Plan all cycles of a cell.

    Parameters
    ----------
    cell : Cell
        What to plan.
    learners : int
        K.
    """
    settings = Settings(**settings_of(cell.config), on_infeasible=OnInfeasible.RELAX)
    fleet = VirtualFleet(learners, cell.config)
    names = tuple(d.name or f"device-{k + 1}" for k, d in enumerate(fleet.devices(1)))
    plan = _plan_baseline if cell.baseline else _plan_scheme
    with unspoken():
        acts, trouble = plan(cell, settings, fleet)
    return Script(tuple(acts), settings, names, trouble)


def _plan_scheme(cell: Cell, settings: Settings, fleet: VirtualFleet) -> tuple[list[Act], str]:
    orchestrator, acts = Orchestrator(settings), []
    strict = Orchestrator(replace(settings, on_infeasible=OnInfeasible.ERROR))
    held = _held(cell, fleet.learners)
    nodes = [str(k) for k in range(fleet.learners)]
    for cycle in range(1, cell.config.cycles + 1):
        for brain in (orchestrator, strict) if cycle == 1 else (orchestrator,):
            for k in range(fleet.learners):
                brain.hear(nodes[k], fleet.words(k, cycle, held[k]))
        if cycle == 1:
            try:
                strict.plan(cycle, nodes)
            except Infeasible as infeasible:
                return [], str(infeasible.diagnosis)
        plan = orchestrator.plan(cycle, nodes)
        record = orchestrator.record
        orchestrator.settle({t.node: t.samples for t in plan.tasks}, {}, {})
        if record is None:
            break
        tau = _relaxed(_problem(cell, settings, fleet, cycle, held))
        acts.append(
            Act(plan.tasks, record.mean_epochs, record.bound, record.makespan_s, record.energy_j, 0, tau)
        )
    return acts, ""


def _plan_baseline(cell: Cell, settings: Settings, fleet: VirtualFleet) -> tuple[list[Act], str]:
    held, acts = _held(cell, fleet.learners), []
    names = [d.name for d in fleet.devices(1)]
    for cycle in range(1, cell.config.cycles + 1):
        problem = _problem(cell, settings, fleet, cycle, held)
        samples = np.minimum(equal_batches(problem), problem.max_samples)
        rng = np.random.default_rng([cell.config.seed, cycle, 99])
        epochs = baseline_epochs(cell, problem, samples, rng)
        time_s = problem.coefficients.time_s(epochs, samples)
        energy_j = problem.coefficients.energy_j(epochs, samples)
        over = (time_s > problem.cycle_time_s) | (energy_j > problem.energy_limit_j)
        used = np.flatnonzero((epochs > 0) & ((cell.baseline is Baseline.WAIT) | ~over))
        # Dropped learners are waited for until the deadline; they spend what they may.
        waits = cell.baseline is Baseline.WAIT
        makespan = float(time_s.max()) if waits else min(float(time_s.max()), problem.cycle_time_s)
        spent = energy_j if waits else np.minimum(energy_j, problem.energy_limit_j)
        seeds = draw_seeds(settings.seed, cycle, fleet.learners)
        cut = cut_shards(settings, cycle, samples)
        shards: list[IntArray | None] = [None] * fleet.learners if cut is None else list(cut)
        tasks = tuple(
            Task(str(k), names[k], cycle, int(epochs[k]), int(samples[k]), seeds[k], shards[k]) for k in used
        )
        mean = float(epochs[used].sum()) / fleet.learners
        energy = float(spent.sum())
        acts.append(Act(tasks, mean, 0.0, makespan, energy, int(over.sum()), _relaxed(problem)))
    return acts, ""


def baseline_epochs(
    cell: Cell, problem: AllocationProblem, samples: IntArray, rng: np.random.Generator
) -> IntArray:
    """Return the epochs a baseline gives to everybody.

    Parameters
    ----------
    cell : Cell
        Which baseline, how many epochs.
    problem : AllocationProblem
        The limits.
    samples : int array
        Equal batches.
    rng : numpy.random.Generator
        For random epochs.
    """
    fixed = np.full(len(problem), cell.epochs, dtype=np.int64)
    if cell.baseline in (Baseline.WAIT, Baseline.DROP):
        return fixed
    most = np.zeros(len(problem), dtype=np.int64)
    for size in np.unique(samples):
        who = np.flatnonzero(samples == size)
        most[who] = replace(Capacities.of(problem).take(who), least=int(size)).most_epochs
    if cell.baseline is Baseline.PROX:
        return np.minimum(fixed, most)
    return np.where(most > 0, rng.integers(1, np.maximum(np.minimum(most, fixed), 1) + 1), 0)


def _problem(
    cell: Cell, settings: Settings, fleet: VirtualFleet, cycle: int, held: list[int | None]
) -> AllocationProblem:
    learners = Fleet([replace(d, max_samples=n) for d, n in zip(fleet.devices(cycle), held, strict=True)])
    return AllocationProblem(
        learners.coefficients(workload_of(cell.config)),
        cell.config.cycle_time,
        learners.energy_limit_j,
        total_samples=total_samples(cell.config),
        staleness=settings.staleness,
        min_samples=min_samples(cell.config),
        max_samples=learners.max_samples,
    )


def _relaxed(problem: AllocationProblem) -> float:
    """Return tau* of those who can take part, 0 if they cannot carry the samples."""
    capacities = Capacities.of(problem)
    able, _ = screen(capacities)
    mine = capacities.take(able)
    if not len(able) or mine.at(1).sum() < problem.total_samples:
        return 0.0
    return relaxed_synchronous(mine, problem.total_samples)


def _held(cell: Cell, learners: int) -> list[int | None]:
    if cell.config.mode == "pl":
        return [None] * learners
    return [len(local_indices(cell.config, k, learners)) for k in range(learners)]


def facts(act: Act) -> dict[str, Any]:
    """Return an act's numbers for a result line."""
    samples = sum(t.samples for t in act.tasks)
    return {
        "mean_epochs": act.mean_epochs,
        "bound": act.bound,
        "makespan_s": act.makespan_s,
        "energy_j": act.energy_j,
        "broken": act.broken,
        "relaxed": act.relaxed,
        "used": len(act.tasks),
        "sample_epochs": sum(t.epochs * t.samples for t in act.tasks),
        "progress": sum(t.epochs * t.samples**2 for t in act.tasks) / max(samples, 1),
    }
