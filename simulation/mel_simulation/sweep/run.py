"""All cells of a sweep, side by side: one training is one Ray task.

A sweep needs no messages: the tasks of all learners are planned ahead, and a Ray task trains the learners of
a cell in turn. The data lie in Ray's object store once per machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flwr_mel._text import message
from mel_simulation.ray_session import Show, ray_session
from mel_simulation.scenario.data import Dataset
from mel_simulation.scenario.job import dataset_of, lend
from mel_simulation.sweep.cells import Cell
from mel_simulation.sweep.results import Results, Row
from mel_simulation.sweep.schedule import Schedule, plan_schedule
from mel_simulation.sweep.training import train_cell

_TICK_S = 0.5


class SweepError(RuntimeError):
    """A cell could not be computed; the message says which and why."""


def train_task(cell: Cell, data: Dataset, schedule: Schedule) -> dict[str, list[float]]:
    """Train a cell in a Ray worker."""
    lend(cell.config, data)
    return train_cell(cell, schedule)


def sweep(cells: Sequence[Cell], results: Results, show: Show, workers: int = 0, address: str = "") -> None:
    """Compute the cells that are missing; each is on disk as soon as it is finished.

    Parameters
    ----------
    cells : sequence of Cell
        All of the sweep.
    results : Results
        Where they go.
    show : callable
        Shows the progress.
    workers : int
        Trainings at a time; 0: one per CPU.
    address : str
        An existing Ray cluster; empty: Ray on this machine.
    """
    todo = [cell for cell in cells if cell.key not in results.rows]
    if not todo:
        return
    show("starting Ray", len(cells) - len(todo), len(cells))
    with ray_session(workers, address) as ray:
        _Board(ray, workers, results, todo[::-1]).work(show, len(cells))


class _Board:
    """The cells to plan, and those in training by the signature of their training."""

    def __init__(self, ray: Any, workers: int, results: Results, todo: list[Cell]) -> None:
        self.ray, self.results, self.todo = ray, results, todo
        self.workers = workers or int(ray.cluster_resources().get("CPU", 1))
        self.train = ray.remote(num_cpus=1)(train_task)
        data = {_data_key(cell): dataset_of(cell.config) for cell in todo}
        self.data = {key: ray.put(each) for key, each in data.items()}
        self.signatures: dict[Any, str] = {}
        self.waiting: dict[str, list[tuple[Cell, Row]]] = {}

    def work(self, show: Show, total: int) -> None:
        """Keep the workers busy until all cells are done; the next cell is planned while they train."""
        while self.todo or self.signatures:
            if self.todo and len(self.signatures) <= self.workers:
                self._begin(self.todo.pop())
            elif self.signatures:
                ready, _ = self.ray.wait(list(self.signatures), num_returns=1, timeout=_TICK_S)
                for reference in ready:
                    self._finish(reference)
            left = len(self.todo) + sum(map(len, self.waiting.values()))
            show("training", total - left, total)

    def _begin(self, cell: Cell) -> None:
        """Plan a cell, and train it unless the same training is known or under way."""
        schedule = plan_schedule(cell)
        outcome: Row = {"acts": [cycle.facts for cycle in schedule.cycles], "trouble": schedule.trouble}
        if schedule.trouble:
            self.results.add(cell, {**outcome, "signature": "", "accuracy": [], "loss": []})
            return
        outcome["signature"] = signature = schedule.signature(cell)
        if (curves := self.results.training(signature)) is not None:
            self.results.add(cell, {**outcome, **curves})
            return
        if signature not in self.waiting:
            reference = self.train.remote(cell, self.data[_data_key(cell)], schedule)
            self.signatures[reference] = signature
        self.waiting.setdefault(signature, []).append((cell, outcome))

    def _finish(self, reference: Any) -> None:
        waiting = self.waiting.pop(self.signatures.pop(reference))
        try:
            curves = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            why = message(getattr(error, "cause", error))[:300]
            raise SweepError(f"cell {waiting[0][0].key}: {why}") from None
        for cell, outcome in waiting:
            self.results.add(cell, {**outcome, **curves})


def _data_key(cell: Cell) -> tuple[str, str]:
    return cell.config.dataset, cell.config.data_dir
