"""Files of results: one JSON line per finished task, appended at once, after a line about all of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from flwr_mel._files import atomically
from flwr_mel._validate import complain

Row = dict[str, Any]


class Results:
    """The file of results in a directory.

    Parameters
    ----------
    path : Path
        Of the directory, which is made when it is first written to.
    known : sequence of Path
        Other files of results, or their directories, whose tasks need not be computed again.
    """

    name, key = "results.jsonl", "cell"

    def __init__(self, path: Path, known: Sequence[Path] = ()) -> None:
        self.path, self.file = path, path / self.name
        self.rows: dict[str, Row] = {}
        for file in (*([self.file] if self.file.exists() else []), *known):
            for row in self.read(file)[1]:
                self.rows.setdefault(row[self.key], row)

    @classmethod
    def read(cls, path: Path) -> tuple[Row, list[Row]]:
        """Read a file, or the one in a directory: its first line, about all results, and the rows."""
        file = path / cls.name if path.is_dir() else path
        try:
            lines = file.read_text(encoding="utf-8").split("\n")[:-1]  # a kill may have cut off the last one
            found = [json.loads(line) for line in lines if line.strip()]
            about: Row = next((row["about"] for row in found if "about" in row), {})
            rows = [row for row in found if "about" not in row and row[cls.key]]
        except (OSError, ValueError, TypeError, LookupError):
            rule = f"a file like {cls.name}, or a directory that holds one"
            raise complain("results", rule, str(path)) from None
        return about, rows

    def add(self, row: Row) -> None:
        """Append a finished task."""
        self.rows[row[self.key]] = row
        self.path.mkdir(parents=True, exist_ok=True)
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, allow_nan=False) + "\n")

    def rewrite(self, about: Row, keys: Iterable[str]) -> Path:
        """Write a line about all results, then the finished tasks in the order of their keys."""
        rows = [{"about": about}, *(self.rows[key] for key in keys if key in self.rows)]
        text = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
        atomically(self.file, lambda f: f.write(text))
        return self.file


def read_results(path: Path) -> list[Row]:
    """Read the cells of a sweep."""
    return Results.read(path)[1]


def read_about(path: Path) -> Row:
    """Read the first line of a sweep's file: versions, the notice about the data, planned cells."""
    return Results.read(path)[0]
