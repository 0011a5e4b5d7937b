"""README's scenario on Flower's engine: ``python -m mel_simulation.paper.on_engine RUN_DIRECTORY ...``.

Collects runs of `flwr-mel simulate --scheme rate --optimizer adam` into results/rate-engine.jsonl. `make
docs` puts them beside the cells of the sweep `rate`, which plans the same cycles without Flower's engine.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from flwr_mel._files import atomically
from mel_simulation.app.run_dir import RunDir
from mel_simulation.pages import markdown_table
from mel_simulation.paper.rows import cost_to, cycles_to
from mel_simulation.scenario.config import RATE
from mel_simulation.sweep.results import Row

RESULTS = Path("results", "rate-engine.jsonl")


def collected(path: Path) -> Row:
    """Return what a run directory holds: what it cost until the end of each cycle, and the accuracy then."""
    run = RunDir(path)
    facts, records = run.facts(), run.records()
    return {
        "config": facts["config"] | {"data-dir": "", "run-dir": ""},
        "versions": facts["versions"],
        "time_s": [record.clock_s for record in records],
        "energy_j": [record.total_energy_j for record in records],
        "accuracy": [record.metrics["accuracy"] for record in records],
    }


def table(path: Path, sweep: Sequence[Row], percent: float = 95.5) -> str:
    """Return seconds and joules to an accuracy on the engine and in the sweep, by frugality and placement."""
    planned = {_place(row): row for row in sweep if row["config"]["scheme"] == RATE}
    lines = []
    for row in sorted(map(json.loads, path.read_text(encoding="utf-8").splitlines()), key=_place):
        other, last = planned[_place(row)], int(cycles_to(row, percent)) - 1
        ours = [row["time_s"][last], row["energy_j"][last]]
        theirs = [cost_to(other, percent, cost) for cost in ("makespan_s", "energy_j")]
        off = max(abs(a - b) for a, b in zip(row["accuracy"], other["accuracy"], strict=False))
        frugality, seed = _place(row)
        costs = [f"{cost:.1f}" for cost in (*ours, *theirs)]
        lines.append([f"{frugality:g}", str(seed), *costs, f"{100 * off:.2f}"])
    head = ["f", "placement", "s, engine", "J, engine", "s, sweep", "J, sweep"]
    return markdown_table([*head, "accuracy differs by at most, points"], lines)


def _place(row: Row) -> tuple[float, int]:
    """Return frugality and seed."""
    return row["config"].get("frugality", 0.0), row["config"]["seed"]


if __name__ == "__main__":
    _text = "".join(json.dumps(collected(Path(name))) + "\n" for name in sys.argv[1:])
    atomically(RESULTS, lambda file: file.write(_text))
