"""Results of a sweep on disk: a file per training and per cell, so that a kill loses only the one at work."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flwr_mel._files import atomically
from flwr_mel._validate import complain
from mel_simulation.app.run_dir import versions
from mel_simulation.sweep.cells import Cell

_CURVES = ("accuracy", "loss", "rare_accuracy")


class Results:
    """The directory of a sweep.

    Parameters
    ----------
    path : Path
        Made when first written to.
    known : sequence of Path
        Files of results, or their directories, whose cells need not be computed again; the directory's own
        ``results.jsonl`` is one of them. What was computed here comes first, then the first file that has it.
    """

    def __init__(self, path: Path, known: Sequence[Path] = ()) -> None:
        self.path = path
        own = [path] if (path / "results.jsonl").exists() else []
        #: Finished cells as they stand in those files, and trainings by their signatures.
        self._lines: dict[str, str] = {}
        self._curves: dict[str, dict[str, list[float]]] = {}
        for line in (line for file in (*own, *known) for line in _lines(file)):
            row = json.loads(line)
            if "about" not in row and self._lines.setdefault(row["cell"], line) is line:
                self._curves.setdefault(row["signature"], {key: row[key] for key in _CURVES if key in row})

    def has(self, cell: Cell) -> bool:
        """Whether a cell is finished."""
        return self._cell(cell).exists() or cell.key in self._lines

    def add(self, cell: Cell, outcome: dict[str, Any]) -> None:
        """Keep a finished cell."""
        line = {"cell": cell.key, "config": cell.as_dict(), **outcome}
        atomically(self._cell(cell), lambda f: json.dump(line, f, allow_nan=False))

    def training(self, signature: str) -> dict[str, list[float]] | None:
        """Return the curves of a training that was done before."""
        path = self.path / "trainings" / f"{signature}.json"
        if not path.exists():
            return self._curves.get(signature)
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
        lines += [self._line(cell) for cell in self.done(cells)]
        path = self.path / "results.jsonl"
        atomically(path, lambda f: f.write("\n".join(lines) + "\n"))
        return path

    def _line(self, cell: Cell) -> str:
        path = self._cell(cell)
        return path.read_text(encoding="utf-8") if path.exists() else self._lines[cell.key]

    def _cell(self, cell: Cell) -> Path:
        return self.path / "cells" / f"{cell.key}.json"


def read_results(path: Path) -> list[dict[str, Any]]:
    """Read the cells of a ``results.jsonl``.

    Parameters
    ----------
    path : Path
        The file, or a directory that holds it.
    """
    rows = [json.loads(line) for line in _lines(path)]
    return [row for row in rows if "about" not in row]


def seeds_by_position(row: dict[str, Any]) -> bool:
    """Whether version 0.1 computed a row: learners drew their seeds by position then, now by name.

    Allocations are the same; the order of the samples in SGD is not, which moves accuracies by tenths of a
    point. The rows of today say what each cycle was allocated for.

    Parameters
    ----------
    row : dict
        A line of the results.
    """
    return bool(row["acts"]) and "objective" not in row["acts"][0]


def _lines(path: Path) -> list[str]:
    file = path / "results.jsonl" if path.is_dir() else path
    if not file.is_file():
        raise complain("results", "a results.jsonl, or a directory that holds one", str(path))
    return [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
