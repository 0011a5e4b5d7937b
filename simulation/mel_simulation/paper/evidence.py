"""The sums of S at which accuracies were reached, for `flwr-mel recommend`.

``python -m mel_simulation.paper.evidence RESULTS...`` writes the two tables of `flwr_mel.aim` from sweeps on
MNIST: all cells of schemes that average by samples, whatever their objective, T and E.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

import flwr_mel.aim
from flwr_mel._files import atomically
from mel_simulation.paper.rows import cost_to, is_like, trained
from mel_simulation.sweep.results import Row, read_results

#: The tables, and which cells they are made of: mode and alpha.
TABLES = {"SHIPPED": ("pl", 0.0), "UNEVEN": ("fl", 0.5)}
ACCURACIES = (0.9, 0.92, 0.94, 0.95, 0.96, 0.965, 0.97)
#: Runs that must have reached an accuracy.
_ENOUGH = 15


def table(rows: Iterable[Row], mode: str, alpha: float) -> dict[float, tuple[int, ...]]:
    """Return by accuracy the 10th, 50th and 90th percentile of the sums of S of runs that reached it."""
    wanted = {"dataset": "mnist", "mode": mode, "alpha": alpha, "baseline": "", "average": "data"}
    mine = [row for row in trained(rows) if is_like(row, **wanted)]
    found = {}
    for accuracy in ACCURACIES:
        sums = [x for row in mine if np.isfinite(x := cost_to(row, accuracy, "progress"))]
        if len(sums) >= _ENOUGH:
            found[accuracy] = tuple(int(x) for x in np.round(np.quantile(sums, [0.1, 0.5, 0.9]), -2))
    return found


def update(paths: Iterable[Path], module: Path = Path(flwr_mel.aim.__file__)) -> None:
    """Write the tables into the module."""
    rows = {row["cell"]: row for path in paths for row in read_results(path)}
    text = module.read_text(encoding="utf-8")
    for name, (mode, alpha) in TABLES.items():
        found = table(rows.values(), mode, alpha)
        lines = "".join(f"    {key:g}: ({', '.join(map(str, found[key]))}),\n" for key in found)
        text, times = re.subn(rf"(?m)^({name}: .* = \{{\n)(?:    .*\n)*\}}", rf"\g<1>{lines}}}", text)
        if times != 1:
            raise ValueError(f"{module.name} has no table {name}")
    atomically(module, lambda file: file.write(text))


if __name__ == "__main__":
    update(map(Path, sys.argv[1:]))
