"""The sums of S at which accuracies were reached, for `flwr-mel recommend`.

``python -m mel_simulation.paper.evidence RESULTS...`` writes the two tables of `flwr_mel.aim` from sweeps on
MNIST: all cells of schemes that average by samples, whatever their objective, T and E.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

import flwr_mel.aim
from flwr_mel._files import atomically
from mel_simulation.paper.promises import spent
from mel_simulation.paper.rows import Row, trained
from mel_simulation.sweep.results import read_results

#: The tables of `flwr_mel.aim`, and which cells they are made of: mode and alpha.
TABLES = {"SHIPPED": ("pl", 0.0), "UNEVEN": ("fl", 0.5)}
ACCURACIES = (0.9, 0.92, 0.94, 0.95, 0.96, 0.965, 0.97)
#: Runs that must have reached an accuracy, or nothing is said of it.
_ENOUGH = 15


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="+", type=Path, help="results.jsonl files of sweeps on MNIST")
    parser.add_argument("--out", type=Path, default=Path(flwr_mel.aim.__file__), help="the module")
    options = parser.parse_args(arguments)
    rows = {row["cell"]: row for path in options.results for row in read_results(path)}
    text = options.out.read_text(encoding="utf-8")
    for name, (mode, alpha) in TABLES.items():
        found = table(rows.values(), mode, alpha)
        lines = "".join(
            f"    {accuracy:g}: ({', '.join(map(str, found[accuracy]))}),\n" for accuracy in found
        )
        text, times = re.subn(rf"(?m)^({name}: .* = \{{\n)(?:    .*\n)*\}}", rf"\g<1>{lines}}}", text)
        if times != 1:
            raise ValueError(f"{options.out.name} has no table {name}")
    atomically(options.out, lambda file: file.write(text))


def table(rows: Iterable[Row], mode: str, alpha: float) -> dict[float, tuple[int, ...]]:
    """Return by accuracy the tenth, middle and ninetieth percent of the sums of S of runs that reached it.

    Parameters
    ----------
    rows : iterable of dict
        Cells.
    mode, alpha : str, float
        Which of them.
    """
    mine = [row for row in trained(rows) if _counts(row, mode, alpha)]
    found = {}
    for accuracy in ACCURACIES:
        runs = [spent(row, accuracy, "progress") for row in mine]
        sums = [run.cost for run in runs if run.reached]
        if len(sums) >= _ENOUGH:
            found[accuracy] = tuple(int(x) for x in np.round(np.quantile(sums, [0.1, 0.5, 0.9]), -2))
    return found


def _counts(row: Row, mode: str, alpha: float) -> bool:
    config = row["config"]
    where = config["dataset"], config["mode"], config["alpha"]
    return where == ("mnist", mode, alpha) and not config["baseline"] and config["average"] == "data"


if __name__ == "__main__":
    main()
