"""README's scenario on Flower's engine: ``python -m mel_simulation.paper.on_engine RUN_DIRECTORY ...``.

Collects runs of `flwr-mel simulate --scheme rate --optimizer adam` into results/rate-engine.jsonl. `make
docs` puts them beside the cells of the sweep `rate`, which plans the same cycles ahead and trains without it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from flwr_mel._files import atomically
from mel_simulation.app.run_dir import RunDir
from mel_simulation.pages import markdown_table
from mel_simulation.paper.rows import running
from mel_simulation.sweep.results import Row

RESULTS = Path("results", "rate-engine.jsonl")


def collected(path: Path) -> Row:
    """Return what a run directory holds: what it cost until the end of each cycle, and the accuracy then."""
    run = RunDir(path)
    facts, records = run.facts(), run.records()
    period_s = facts["config"]["cycle-time"]  # limits are a mean power: E_k in so many seconds
    beyond = [
        row.time_s > record.cycle_time_s
        or row.energy_j > (row.energy_limit_j or np.inf) * record.cycle_time_s / period_s
        for record in records
        for row in record.learners
    ]
    return {
        "config": facts["config"] | {"data-dir": "", "run-dir": ""},
        "versions": facts["versions"],
        "time_s": [record.clock_s for record in records],
        "energy_j": [record.total_energy_j for record in records],
        "accuracy": [record.metrics["accuracy"] for record in records],
        "beyond": sum(beyond),
    }


def table(path: Path, sweep: Sequence[Row], goal: float = 0.955) -> str:
    """Return seconds and joules to an accuracy on the engine and in the sweep, by frugality and placement."""
    lines = []
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for row in sorted(rows, key=_place):
        (planned,) = [other for other in sweep if _place(other) == _place(row)]
        costs = [np.array(row["time_s"]), np.array(row["energy_j"])]
        ahead = [running(planned, "makespan_s"), running(planned, "energy_j")]
        both = [(costs, row["accuracy"]), (ahead, planned["accuracy"])]
        shown = [f"{x[_first(accuracy, goal)]:.1f}" for kind, accuracy in both for x in kind]
        n = min(len(row["accuracy"]), len(planned["accuracy"]))
        off = np.abs(np.array(row["accuracy"][:n]) - planned["accuracy"][:n]).max()
        costs_off = max(np.abs(x[:n] / y[:n] - 1).max() for x, y in zip(costs, ahead, strict=True))
        frugality, seed = _place(row)
        ends = [f"{100 * off:.2f}", f"{100 * costs_off:.2g}", str(row["beyond"])]
        lines.append([f"{frugality:g}", str(seed), *shown, *ends])
    head = ["f", "placement", "s, engine", "J, engine", "s, sweep", "J, sweep"]
    head += ["accuracy differs by at most, points", "costs differ by at most, %", "beyond a limit"]
    return markdown_table(head, lines)


def _place(row: Row) -> tuple[float, int]:
    """Return frugality and seed; the sweep's other schemes have no frugality."""
    scheme = row["config"]["scheme"]
    return (row["config"].get("frugality", 0.0) if scheme == "rate" else -1.0), row["config"]["seed"]


def _first(accuracy: Sequence[float], goal: float) -> int:
    """Return the index of the first cycle that reaches an accuracy."""
    return next(i for i, value in enumerate(accuracy) if value >= goal)


if __name__ == "__main__":
    _text = "".join(json.dumps(collected(Path(name))) + "\n" for name in sys.argv[1:])
    atomically(RESULTS, lambda file: file.write(_text))
