"""All cells of a sweep, side by side: one distinct training is one Ray task.

A sweep needs no messages: what every learner does is planned ahead, and a task trains the learners of a cell
in turn. The data lie in Ray's object store once per machine.
"""

from __future__ import annotations

import heapq
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from flwr_mel._processes import orderly, undisturbed
from mel_simulation.engine.ray_start import start_ray
from mel_simulation.scenario.data import Dataset
from mel_simulation.scenario.job import dataset_of, lend
from mel_simulation.sweep.cells import Cell
from mel_simulation.sweep.results import Results
from mel_simulation.sweep.schedule import Schedule, facts, plan_schedule
from mel_simulation.sweep.training import Curve, train_cell

#: Cells that are planned ahead per worker, so that the longest trainings can go first.
_AHEAD = 4
_TICK_S = 0.5


class SweepError(RuntimeError):
    """A cell could not be computed; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a sweep is.

    Parameters
    ----------
    phase : str
        What is going on.
    done, cells : int
        Cells that are on disk, and all.
    """

    phase: str
    done: int
    cells: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What is known of a cell before it is trained."""

    outcome: dict[str, Any]
    signature: str
    sample_epochs: int


@contextmanager
def ray_workers(cells: Sequence[Cell], workers: int = 0, address: str = "") -> Iterator[Workers]:
    """Start Ray, or join a cluster, with workers that have all they need; stop what was started.

    Parameters
    ----------
    cells : sequence of Cell
        Whose data the workers get.
    workers : int
        Cells at a time. 0: one per CPU.
    address : str
        An existing Ray cluster; empty: Ray on this machine.
    """
    ray: Any = None
    scratch = tempfile.mkdtemp(prefix="mel-")
    try:
        ray = start_ray(workers, address, scratch)
        count = workers or int(ray.cluster_resources().get("CPU", 1))
        data = {_data_key(cell): dataset_of(cell.config) for cell in cells}
        pool = Workers(ray, count, {key: ray.put(each) for key, each in data.items()})
        pool.warm(cells[0])
        yield pool
    finally:
        with undisturbed():
            if ray is not None:
                ray.shutdown()
            shutil.rmtree(scratch, ignore_errors=True)


@dataclass(slots=True)
class Workers:
    """Ray's side of a sweep.

    Parameters
    ----------
    ray : module
        Connected.
    count : int
        Trainings at a time.
    data : dict
        References to the datasets by name and directory.
    """

    ray: Any
    count: int
    data: dict[tuple[str, str], Any]
    _plan: Any = field(init=False)
    _train: Any = field(init=False)
    _ready: Any = field(init=False)

    def __post_init__(self) -> None:
        self._plan = self.ray.remote(num_cpus=1, num_returns=2)(plan_task)
        self._train = self.ray.remote(num_cpus=1)(train_task)
        self._ready = self.ray.remote(num_cpus=1)(lend)

    def warm(self, cell: Cell) -> None:
        """Return when the workers have imported everything and see the data."""
        data = self.data[_data_key(cell)]
        self.ray.get([self._ready.remote(cell.config, data) for _ in range(self.count)])

    def plan(self, cell: Cell) -> tuple[Any, Any]:
        """Begin to plan a cell; return references to its `Plan` and its schedule."""
        plan, schedule = self._plan.remote(cell, self.data[_data_key(cell)])
        return plan, schedule

    def train(self, cell: Cell, schedule: Any) -> Any:
        """Begin to train a cell; return a reference to its `Curve`."""
        return self._train.remote(cell, self.data[_data_key(cell)], schedule)

    def wait(self, references: Sequence[Any]) -> list[Any]:
        """Return those that are ready, after a moment at the latest."""
        ready, _ = self.ray.wait(list(references), num_returns=1, timeout=_TICK_S)
        return list(ready)

    def result(self, cell: Cell, reference: Any) -> Any:
        """Return what a task found; a failure names the cell."""
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            raise SweepError(f"cell {cell.key}: {error.cause}") from None
        except self.ray.exceptions.RayError as error:
            raise SweepError(f"cell {cell.key}: {' '.join(str(error).split())[:300]}") from None


def _data_key(cell: Cell) -> tuple[str, str]:
    return cell.config.dataset, cell.config.data_dir


def plan_task(cell: Cell, data: Dataset) -> tuple[Plan, Schedule]:
    """Plan a cell, in a worker."""
    lend(cell.config, data)
    schedule = plan_schedule(cell, cell.config.learners)
    outcome: dict[str, Any] = {
        "acts": [facts(cycle) for cycle in schedule.cycles],
        "trouble": schedule.trouble,
    }
    work = sum(fact["sample_epochs"] for fact in outcome["acts"])
    return Plan(outcome, "" if schedule.trouble else schedule.signature(cell), work), schedule


def train_task(cell: Cell, data: Dataset, schedule: Schedule) -> Curve:
    """Train a cell, in a worker."""
    lend(cell.config, data)
    return train_cell(cell, schedule)


def run_cells(
    cells: Sequence[Cell], results: Results, workers: Workers, show: Callable[[Progress], None]
) -> None:
    """Compute the cells that are not there yet; each is on disk as soon as it is known.

    Parameters
    ----------
    cells : sequence of Cell
        All of the sweep.
    results : Results
        Where they go.
    workers : Workers
        Who computes.
    show : callable
        Told how far it is, at least every half second.
    """
    board = _Board(results, workers, deque(cell for cell in cells if not results.has(cell)))
    while board.busy:
        board.begin()
        board.take(workers.wait(board.references))
        left = len(board.todo) + len(board.open)
        show(Progress(board.phase, len(cells) - left, len(cells)))


@dataclass(slots=True)
class _Board:
    """Which cells are to be planned, being planned, planned, being trained."""

    results: Results
    workers: Workers
    todo: deque[Cell]
    planning: dict[Any, tuple[Cell, Any]] = field(default_factory=dict)
    planned: list[tuple[int, str, Cell, Any, Plan]] = field(default_factory=list)
    training: dict[Any, tuple[Cell, Plan]] = field(default_factory=dict)
    #: Cells that wait for a training, by its signature: the first of them is the one that is trained.
    waiting: dict[str, list[tuple[Cell, Plan]]] = field(default_factory=dict)

    @property
    def busy(self) -> bool:
        return bool(self.todo or self.planning or self.waiting)

    @property
    def open(self) -> list[Cell]:
        """Cells that are begun and not finished."""
        begun = [cell for cell, _ in self.planning.values()]
        return begun + [cell for some in self.waiting.values() for cell, _ in some]

    @property
    def phase(self) -> str:
        return "training" if self.training else "planning"

    @property
    def references(self) -> list[Any]:
        return [*self.planning, *self.training]

    def begin(self) -> None:
        """Keep the workers busy: plan a few cells ahead, train the longest first."""
        ahead = _AHEAD * self.workers.count
        while self.todo and len(self.planning) + len(self.planned) < ahead:
            cell = self.todo.popleft()
            plan, schedule = self.workers.plan(cell)
            self.planning[plan] = (cell, schedule)
        while self.planned and len(self.training) < self.workers.count:
            _, _, cell, schedule, plan = heapq.heappop(self.planned)
            self.training[self.workers.train(cell, schedule)] = (cell, plan)

    def take(self, ready: Sequence[Any]) -> None:
        """Go on with what is ready."""
        for reference in ready:
            if reference in self.planning:
                cell, schedule = self.planning.pop(reference)
                self._take_plan(cell, schedule, self.workers.result(cell, reference))
            else:
                cell, plan = self.training.pop(reference)
                self._take_curve(cell, plan, self.workers.result(cell, reference))

    def _take_plan(self, cell: Cell, schedule: Any, plan: Plan) -> None:
        if not plan.signature:
            self.results.add(cell, {**plan.outcome, "signature": "", "accuracy": [], "loss": []})
        elif (curve := self.results.training(plan.signature)) is not None:
            self.results.add(cell, {**plan.outcome, "signature": plan.signature, **curve})
        elif plan.signature in self.waiting:
            self.waiting[plan.signature].append((cell, plan))
        else:
            self.waiting[plan.signature] = [(cell, plan)]
            heapq.heappush(self.planned, (-plan.sample_epochs, plan.signature, cell, schedule, plan))

    def _take_curve(self, cell: Cell, plan: Plan, curve: Curve) -> None:
        self.results.note_time(cell, curve.seconds, plan.sample_epochs)
        self.results.add_training(plan.signature, curve.as_dict())
        for same, mine in self.waiting.pop(plan.signature):
            self.results.add(same, {**mine.outcome, "signature": plan.signature, **curve.as_dict()})


def sweep(
    cells: Sequence[Cell],
    results: Results,
    show: Callable[[Progress], None],
    workers: int = 0,
    address: str = "",
) -> None:
    """Compute what is missing of a sweep; SIGTERM ends it as Ctrl-C does.

    Parameters
    ----------
    cells, results, show
        As for `run_cells`.
    workers, address
        As for `ray_workers`.
    """
    done = len(results.done(cells))
    if done == len(cells):
        return
    show(Progress("starting Ray", done, len(cells)))
    # Ray takes SIGTERM for itself when it starts: once more, inside.
    with orderly(), ray_workers(cells, workers, address) as pool, orderly():
        run_cells(cells, results, pool, show)
