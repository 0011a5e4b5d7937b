"""All cells of a sweep, side by side: each cell is one Ray task.

A sweep needs no messages: a Ray task plans each cycle of a cell and trains its learners in turn. The data lie
in Ray's object store once per machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import flwr_mel
from flwr_mel.allocation import Infeasible
from mel_simulation.app.run_dir import versions
from mel_simulation.ray_session import Show, side_by_side
from mel_simulation.scenario import job
from mel_simulation.scenario.network import evaluate
from mel_simulation.sweep.cells import Cell
from mel_simulation.sweep.results import Results, Row
from mel_simulation.sweep.rounds import facts, rounds


def run_cell(cell: Cell, data: Any) -> Row:
    """Compute a cell in a Ray worker, with the data that the command has read."""
    job.loaded.update(data)
    row: Row = {"cell": cell.key, "config": cell.as_dict(), "version": flwr_mel.__version__}
    row |= {"acts": [], "trouble": "", "accuracy": [], "loss": []}
    test = job.dataset_of(cell)
    try:
        for _, record, weights in rounds(cell):
            loss, accuracy = evaluate(weights, test.test_x, test.test_y)
            row["acts"].append(facts(cell, record))
            row["accuracy"].append(accuracy)
            row["loss"].append(loss)
    except Infeasible as infeasible:
        row["trouble"] = str(infeasible.diagnosis)
    return row


def sweep(cells: Sequence[Cell], results: Results, show: Show, workers: int = 0, address: str = "") -> None:
    """Compute the cells that are missing; each is on disk as soon as it is finished.

    Parameters
    ----------
    cells : sequence of Cell
        All of the sweep.
    results : Results
        Where they go.
    show, workers, address
        As for `side_by_side`.
    """

    def left() -> tuple[list[Cell], int, int]:
        todo = [cell for cell in cells if cell.key not in results.rows]
        return todo, len(cells) - len(todo), len(cells)

    for cell in cells:
        job.dataset_of(cell)
    side_by_side(run_cell, left, lambda _, row: results.add(row), show, workers, address, [job.loaded])


def collect(cells: Sequence[Cell], results: Results) -> Path:
    """Write the finished cells in their order, after a line about the sweep."""
    keys = [cell.key for cell in cells]
    ours = sorted({results.rows[key]["version"] for key in keys if key in results.rows})
    notices = {job.dataset_of(cell).notice for cell in cells} - {""}
    about = {
        "versions": {**versions(), "flwr-mel": ", ".join(ours)},
        "notice": " ".join(sorted(notices)),
        "cells": len(cells),
    }
    return results.rewrite(about, keys)
