"""A run planned ahead: allocations do not depend on training, so a whole run's tasks are known at once.

`MelStrategy` would plan the same tasks cycle by cycle (a test compares them). Planning ahead lets a sweep
see which cells are the same training, and makes room for baselines that keep no limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flwr_mel._validate import IntArray
from flwr_mel.allocation import AllocationProblem, Infeasible
from flwr_mel.allocation.capacity import Capacities, relaxed_synchronous
from flwr_mel.allocation.screening import screen
from flwr_mel.orchestrator import OnInfeasible, Orchestrator, Returned, Settings, Stragglers, averaging
from flwr_mel.orchestrator.planning import cut_shards, draw_seed
from flwr_mel.orchestrator.state import Task
from flwr_mel.solvers.equal import equal_batches
from flwr_mel.tools.fleetfile import Fleet
from mel_simulation.scenario.dry_run import settings_of, unspoken
from mel_simulation.scenario.fleet import VirtualFleet
from mel_simulation.scenario.job import (
    batch_size,
    dataset_of,
    local_indices,
    min_samples,
    total_samples,
    workload_of,
)
from mel_simulation.sweep.cells import Baseline, Cell, digest


@dataclass(frozen=True, slots=True, eq=False)
class PlannedCycle:
    """One cycle of a schedule.

    Parameters
    ----------
    tasks : tuple of Task
        Whose updates are used; `Task.learner` names the learner.
    mean_epochs : float
        Of all learners.
    bound : float
        Certificate of the scheme's objective (0 for baselines, which have none).
    makespan_s, energy_j : float
        By the cost model.
    broken : int
        Learners beyond their deadline or energy limit (baselines only).
    relaxed : float
        tau*, the relaxed synchronous optimum of the cycle.
    objective : str
        What the cycle was allocated for; empty for baselines.
    moved : tuple of Task
        Earlier cycles' whose updates are used in this one, moved onto its model.
    given : tuple of Task
        All that begin in this cycle, whenever they are used.
    number : int
        Of the cycle, from 1; 0: that of its tasks.
    rest_epochs : float
        With rare labels: the mean of those who do not hold them and begin a task in this cycle.
    again : tuple of (Task, int)
        Whose updates came in earlier cycles and count again in this one, and how many cycles they took.
    """

    tasks: tuple[Task, ...]
    mean_epochs: float
    bound: float
    makespan_s: float
    energy_j: float
    broken: int
    relaxed: float
    objective: str = ""
    moved: tuple[Task, ...] = ()
    given: tuple[Task, ...] = ()
    number: int = 0
    rest_epochs: float = 0.0
    again: tuple[tuple[Task, int], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """All cycles of a cell; `trouble` says why there is none; `held` has what each learner holds, in FL."""

    cycles: tuple[PlannedCycle, ...]
    names: tuple[str, ...]
    trouble: str = ""
    held: tuple[int | None, ...] = ()

    def signature(self, cell: Cell) -> str:
        """Name the training: cells with the same tasks, data and SGD have the same signature."""
        config, data = cell.config, dataset_of(cell.config)
        tasks = [[(t.learner, t.epochs, t.samples, t.seed) for t in cycle.tasks] for cycle in self.cycles]
        sgd = (batch_size(config), config.learning_rate, str(cell.average))
        proximal = cell.proximal if cell.baseline is Baseline.PROX else 0.0
        where = (config.mode, config.dataset, data.embedded, len(data.train_y), config.alpha, config.seed)
        moved = [[(t.learner, t.cycle) for t in cycle.moved] for cycle in self.cycles]
        later: list[Any] = [moved, config.rare_labels] if any(moved) or config.rare_labels else []
        if any(moved) and cell.lasting:
            later.append([[(t.learner, t.cycle, m) for t, m in cycle.again] for cycle in self.cycles])
        return digest([tasks, sgd, proximal, where, *later])


def plan_schedule(cell: Cell, learners: int) -> Schedule:
    """Plan all cycles of a cell.

    Parameters
    ----------
    cell : Cell
        What to plan.
    learners : int
        K.
    """
    settings = Settings(**settings_of(cell.config), on_infeasible=OnInfeasible.RELAX)
    if cell.lasting:  # of the averages the only one that changes who counts when
        settings = replace(settings, average=averaging.Average.NOVA_HELD)
    fleet = VirtualFleet(learners, cell.config)
    names = _names(fleet)
    plan = _plan_baseline if cell.baseline else _plan_scheme
    with unspoken():
        cycles, trouble = plan(cell, settings, fleet)
    return Schedule(tuple(cycles), names, trouble, tuple(_held(cell, learners)))


def _names(fleet: VirtualFleet) -> tuple[str, ...]:
    return tuple(d.name or f"device-{k + 1}" for k, d in enumerate(fleet.devices(1)))


def _plan_scheme(cell: Cell, settings: Settings, fleet: VirtualFleet) -> tuple[list[PlannedCycle], str]:
    orchestrator, cycles = Orchestrator(settings), []
    given: dict[tuple[str, int], Task] = {}
    strict = Orchestrator(replace(settings, on_infeasible=OnInfeasible.ERROR))
    held = _held(cell, fleet.learners)
    nodes = [str(k) for k in range(fleet.learners)]
    for cycle in range(1, cell.config.cycles + 1):
        for brain in (orchestrator, strict) if cycle == 1 else (orchestrator,):
            brain.hear_all({node: fleet.words(k, cycle, held[k]) for k, node in enumerate(nodes)})
        if cycle == 1:
            try:
                strict.plan(cycle, nodes)
            except Infeasible as infeasible:
                return [], str(infeasible.diagnosis)
        plan = orchestrator.plan(cycle, nodes)
        given |= {(t.learner, cycle): t for t in plan.tasks}
        used, moved = _settle(orchestrator, plan.tasks, given)
        record = orchestrator.record
        if record is None:
            break
        tau = _relaxed(_problem(cell, settings, fleet, cycle, held))
        costs = record.makespan_s, record.energy_j
        cycles.append(
            PlannedCycle(
                used,
                record.mean_epochs,
                record.bound,
                *costs,
                0,
                tau,
                record.objective,
                moved,
                plan.tasks,
                cycle,
                _rest_epochs(cell, plan.tasks, fleet.learners),
                tuple((given[x.learner, x.cycle], x.cycles) for x in record.echoes),
            )
        )
    return cycles, ""


def _rest_epochs(cell: Cell, tasks: Sequence[Task], learners: int) -> float:
    last = learners - max(learners // 4, 1)
    epochs = [t.epochs for t in tasks if cell.config.rare_labels and int(t.node) < last]
    return float(np.mean(epochs)) if epochs else 0.0


def _settle(
    brain: Orchestrator, tasks: Sequence[Task], given: Mapping[tuple[str, int], Task]
) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """Let come back what is over on the virtual clock; return this cycle's tasks and earlier ones of it."""
    spans = brain.settings.stragglers is Stragglers.SPAN
    due = set(brain.due())
    used = tuple(t for t in tasks if t.node in due or not spans)
    cycle = tasks[0].cycle if tasks else None
    flights = [x for x in brain.state.flights.values() if x.node in due and x.cycle != cycle]
    moved = tuple(given[x.learner, x.cycle] for x in sorted(flights, key=lambda x: (x.cycle, x.learner)))
    brain.arrive({t.node: {} for t in moved}, {})
    brain.settle(
        Returned(
            {t.node: t.samples for t in used},
            {},
            {},
            moved={t.node: t.samples for t in moved},
            open={t.node for t in tasks} - {t.node for t in used},
        )
    )
    return used, moved


def _plan_baseline(cell: Cell, settings: Settings, fleet: VirtualFleet) -> tuple[list[PlannedCycle], str]:
    held, cycles = _held(cell, fleet.learners), []
    names = _names(fleet)
    for cycle in range(1, cell.config.cycles + 1):
        problem = _problem(cell, settings, fleet, cycle, held)
        samples = np.minimum(equal_batches(problem), problem.max_samples)
        rng = np.random.default_rng([cell.config.seed, cycle, 99])
        epochs = baseline_epochs(cell, problem, samples, rng)
        time_s = problem.coefficients.time_s(epochs, samples)
        energy_j = problem.coefficients.energy_j(epochs, samples)
        over = (time_s > problem.deadline_s) | (energy_j > problem.energy_limit_j)
        used = np.flatnonzero((epochs > 0) & ((cell.baseline is Baseline.WAIT) | ~over))
        # Dropped learners are waited for until the deadline; they spend what they may.
        waits = cell.baseline is Baseline.WAIT
        makespan = float(time_s.max()) if waits else min(float(time_s.max()), problem.cycle_time_s)
        spent = energy_j if waits else np.minimum(energy_j, problem.energy_limit_j)
        seeds = [draw_seed(settings.seed, cycle, name) for name in names]
        cut = cut_shards(settings, cycle, samples)
        shards: list[IntArray | None] = [None] * fleet.learners if cut is None else list(cut)
        tasks = tuple(
            Task(str(k), names[k], cycle, int(epochs[k]), int(samples[k]), seeds[k], shards[k]) for k in used
        )
        mean = float(epochs[used].sum()) / fleet.learners
        energy = float(spent.sum())
        cycles.append(PlannedCycle(tasks, mean, 0.0, makespan, energy, int(over.sum()), _relaxed(problem)))
    return cycles, ""


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
        staleness=settings.staleness or 0,
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


def facts(cycle: PlannedCycle) -> dict[str, Any]:
    """Return a cycle's numbers for a result line."""
    tasks = (*cycle.tasks, *cycle.moved)
    samples = sum(t.samples for t in tasks)
    more: dict[str, Any] = {"moved": len(cycle.moved)} if cycle.moved else {}
    more |= {"again": len(cycle.again)} if cycle.again else {}
    more |= {"rest_epochs": cycle.rest_epochs} if cycle.rest_epochs else {}
    return {
        "mean_epochs": cycle.mean_epochs,
        "objective": cycle.objective,
        "bound": cycle.bound,
        "makespan_s": cycle.makespan_s,
        "energy_j": cycle.energy_j,
        "broken": cycle.broken,
        "relaxed": cycle.relaxed,
        "used": len(tasks),
        "sample_epochs": sum(t.epochs * t.samples for t in tasks),
        "progress": sum(t.epochs * t.samples**2 for t in tasks) / max(samples, 1),
        **more,
    }
