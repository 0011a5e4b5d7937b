"""Results of a sweep: one JSON line per cell, appended when it is finished."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import flwr_mel
from flwr_mel._files import atomically
from flwr_mel._validate import complain
from mel_simulation.app.run_dir import versions
from mel_simulation.sweep.cells import Cell

Row = dict[str, Any]


class Results:
    """The file ``results.jsonl`` of a sweep.

    Parameters
    ----------
    directory : Path
        Made when first written to.
    known : sequence of Path
        Other files of results, or their directories, whose cells need not be computed again.
    """

    def __init__(self, directory: Path, known: Sequence[Path] = ()) -> None:
        self.path = directory / "results.jsonl"
        own = [self.path] if self.path.exists() else []
        self.rows: dict[str, Row] = {}
        for row in (row for file in (*own, *known) for row in read_results(file)):
            self.rows.setdefault(row["cell"], row)

    def add(self, cell: Cell, outcome: Row) -> None:
        """Append a finished cell, with the version that computed it."""
        known = {"cell": cell.key, "config": cell.as_dict(), "version": flwr_mel.__version__}
        self.rows[cell.key] = {**known, **outcome}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(self.rows[cell.key], allow_nan=False) + "\n")

    def training(self, signature: str) -> Row | None:
        """Return the curves of a training that another cell has done."""
        same = (row for row in self.rows.values() if row["signature"] == signature)
        row = next(same, None)
        return None if row is None else {key: row[key] for key in ("accuracy", "loss")}

    def collect(self, cells: Sequence[Cell], notice: str) -> Path:
        """Rewrite the file: a line about the sweep, then the finished cells in their order."""
        rows = [self.rows[cell.key] for cell in cells if cell.key in self.rows]
        ours = ", ".join(sorted({row["version"] for row in rows}))
        about = {"versions": {**versions(), "flwr-mel": ours}, "notice": notice, "cells": len(cells)}
        text = "".join(json.dumps(row, allow_nan=False) + "\n" for row in [{"about": about}, *rows])
        atomically(self.path, lambda f: f.write(text))
        return self.path


def read_results(path: Path) -> list[Row]:
    """Read the cells of a ``results.jsonl``, or of the directory that holds it.

    Rows without a version are older than this entry: all of their file were computed by the version in its
    first line.
    """
    about, rows = read_rows(path, "results.jsonl", "cell")
    version = about["versions"]["flwr-mel"] if about else "unknown"
    return [{**row, "version": row.get("version", version)} for row in rows]


def read_rows(path: Path, name: str, key: str) -> tuple[Row, list[Row]]:
    """Read a file of results: what its first line says about them, and the rows.

    Parameters
    ----------
    path : Path
        The file, or the directory that holds it.
    name : str
        Of the file in a directory.
    key : str
        Every row has it.
    """
    file = path / name if path.is_dir() else path
    try:
        lines = file.read_text(encoding="utf-8").split("\n")[:-1]  # a kill may have cut off the last one
        rows = [json.loads(line) for line in lines if line.strip()]
        about: Row = next((row["about"] for row in rows if "about" in row), {})
        found = [row for row in rows if "about" not in row and row[key]]
    except (OSError, ValueError, TypeError, LookupError):
        rule = f"a file like {name}, or a directory that holds one"
        raise complain("results", rule, str(path)) from None
    return about, found


def read_about(path: Path) -> Row:
    """Read the first line of a ``results.jsonl``: versions, the notice about the data, planned cells."""
    with path.open(encoding="utf-8") as file:
        about: Row = json.loads(file.readline())["about"]
    return about
