"""Results of a sweep on disk: a file per training and per cell, so that a kill loses only the one at work."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flwr_mel._files import atomically
from mel_simulation.app.run_dir import versions
from mel_simulation.sweep.cells import Cell


class Results:
    """The directory of a sweep.

    Parameters
    ----------
    path : Path
        Made when first written to.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def has(self, cell: Cell) -> bool:
        """Whether a cell is finished."""
        return self._cell(cell).exists()

    def add(self, cell: Cell, outcome: dict[str, Any]) -> None:
        """Keep a finished cell."""
        line = {"cell": cell.key, "config": cell.as_dict(), **outcome}
        atomically(self._cell(cell), lambda f: json.dump(line, f, allow_nan=False))

    def training(self, signature: str) -> dict[str, list[float]] | None:
        """Return the curves of a training that was done before."""
        path = self.path / "trainings" / f"{signature}.json"
        if not path.exists():
            return None
        curves: dict[str, list[float]] = json.loads(path.read_text(encoding="utf-8"))
        return curves

    def add_training(self, signature: str, curve: dict[str, list[float]]) -> None:
        """Keep a training's curves."""
        path = self.path / "trainings" / f"{signature}.json"
        atomically(path, lambda f: json.dump(curve, f, allow_nan=False))

    def note_time(self, cell: Cell, seconds: float, sample_epochs: int) -> None:
        """Keep how long a training took; not part of the results, which must not depend on the machine."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "timing.jsonl").open("a", encoding="utf-8") as file:
            line = {"cell": cell.key, "seconds": seconds, "sample_epochs": sample_epochs}
            file.write(json.dumps(line) + "\n")

    def done(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the finished ones among some cells."""
        return [cell for cell in cells if self.has(cell)]

    def collect(self, cells: Sequence[Cell], notice: str) -> Path:
        """Write ``results.jsonl``: a line about the sweep, then one per finished cell in its order."""
        head = {"versions": versions(), "notice": notice, "cells": len(cells)}
        lines = [json.dumps({"about": head}, allow_nan=False)]
        lines += [self._cell(cell).read_text(encoding="utf-8") for cell in self.done(cells)]
        path = self.path / "results.jsonl"
        atomically(path, lambda f: f.write("\n".join(lines) + "\n"))
        return path

    def _cell(self, cell: Cell) -> Path:
        return self.path / "cells" / f"{cell.key}.json"


def read_results(path: Path) -> list[dict[str, Any]]:
    """Read the cells of a ``results.jsonl``.

    Parameters
    ----------
    path : Path
        The file, or a directory that holds it.
    """
    file = path / "results.jsonl" if path.is_dir() else path
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [row for row in rows if "about" not in row]
