"""A run while it goes on: the last cycle as a table in a terminal, a line per cycle elsewhere."""

from __future__ import annotations

import subprocess
import time
from contextlib import nullcontext
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from flwr_mel.records import CycleRecord
from mel_simulation.app.run_dir import RunDir

_PERIOD_S = 0.2


def follow(out: Console, run: RunDir, cycles: int, process: subprocess.Popen[bytes], done: int = 0) -> None:
    """Show a run until its process ends or its summary is there.

    Parameters
    ----------
    out : Console
        Where to.
    run : RunDir
        Its records are followed.
    cycles : int
        How many are planned.
    process : subprocess.Popen
        The engine.
    done : int
        Cycles that were finished before.
    """
    out.print(f"results: {run.path}", soft_wrap=True, markup=False)
    out.print("starting Flower's engine ...")
    times = [time.monotonic()]
    live: Any = Live(console=out, auto_refresh=False) if out.is_terminal else nullcontext()
    with live:
        while True:
            # In this order: what is written before the end is still shown.
            over = process.poll() is not None or (run.path / "summary.json").exists()
            for record in run.records()[done:]:
                done = record.cycle
                times.append(time.monotonic())
                if out.is_terminal:
                    live.update(view(record, cycles, _left(times, cycles - done)), refresh=True)
                else:
                    out.print(line(record, cycles), soft_wrap=True)
            if over:
                return
            time.sleep(_PERIOD_S)


def _left(times: list[float], ahead: int) -> str:
    """Return how long the rest will take; the first cycle includes the start and is left out."""
    if len(times) < 3 or not ahead:
        return ""
    return f"about {ahead * (times[-1] - times[1]) / (len(times) - 2):.0f} s left"


def line(record: CycleRecord, cycles: int) -> str:
    """Return a cycle in one line."""
    epochs = [row.epochs for row in record.learners if row.epochs]
    work = f"{min(epochs)} to {max(epochs)} epochs" if epochs else "no work"
    return (
        f"cycle {record.cycle} of {cycles}: accuracy {_accuracy(record)}, {len(epochs)} of "
        f"{len(record.learners)} learners, {work}, {record.clock_s:.1f} s virtual, "
        f"{record.total_energy_j:,.0f} J"
    )


def view(record: CycleRecord, cycles: int, left: str = "") -> Table:
    """Return the tasks of a cycle as a table."""
    table = Table(title=line(record, cycles), caption=left, title_justify="left", box=None)
    for name in ("learner", "epochs", "samples", "time, s", "energy, J", "limit, J", "outcome"):
        table.add_column(name, justify="left" if name in ("learner", "outcome") else "right")
    for row in record.learners:
        limit = "" if row.energy_limit_j is None else f"{row.energy_limit_j:.1f}"
        outcome = f"{row.outcome}{f': {row.reason}' if row.reason else ''}"
        costs = (f"{row.time_s:.2f}", f"{row.energy_j:.2f}", limit)
        table.add_row(row.learner, str(row.epochs), str(row.samples), *costs, outcome)
    return table


def summary(out: Console, run: RunDir, seconds: float) -> None:
    """Print the result of a finished run."""
    records = run.records()
    if not records:
        return
    last = records[-1]
    best = max(record.metrics.get("accuracy", 0.0) for record in records)
    rows = {
        "cycles": str(last.cycle) + (f" ({last.stopped})" if last.stopped else ""),
        "accuracy": f"{_accuracy(last)}, best {100 * best:.2f} %",
        "mean epochs": f"{sum(r.mean_epochs for r in records) / len(records):.2f} per cycle",
        "virtual time": f"{last.clock_s:.1f} s",
        "energy": f"{last.total_energy_j:,.0f} J",
        "wall time": f"{seconds:.0f} s",
        "report": str(run.path / "report.html"),
    }
    for key, value in rows.items():
        out.print(f"{key:14}{value}", soft_wrap=True, markup=False)


def _accuracy(record: CycleRecord) -> str:
    value = record.metrics.get("accuracy")
    return "-" if value is None else f"{100 * value:.2f} %"
