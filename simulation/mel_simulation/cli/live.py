"""A run while it goes on: the last cycle as a table in a terminal, a line per cycle elsewhere."""

from __future__ import annotations

import subprocess
import time
from contextlib import nullcontext
from math import nan
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
    live: Any = Live(console=out, auto_refresh=False) if out.is_terminal else nullcontext()
    over = False
    with live:
        while not over:
            time.sleep(_PERIOD_S)
            # In this order: what is written before the end is still shown.
            over = process.poll() is not None or run.summary.exists()
            for record in run.records()[done:]:
                done = record.cycle
                if out.is_terminal:
                    live.update(view(record, cycles), refresh=True)
                else:
                    out.print(line(record, cycles), soft_wrap=True)


def line(record: CycleRecord, cycles: int) -> str:
    """Return a cycle in one line."""
    epochs = [row.epochs for row in record.learners if row.epochs]
    work = f"{min(epochs)} to {max(epochs)} epochs" if epochs else "no work"
    return (
        f"cycle {record.cycle} of {cycles}: accuracy {_accuracy(record):.2f} %, {len(epochs)} of "
        f"{len(record.learners)} learners, {work}, {record.clock_s:.1f} s virtual, "
        f"{record.total_energy_j:,.0f} J"
    )


def view(record: CycleRecord, cycles: int) -> Table:
    """Return the tasks of a cycle as a table."""
    table = Table(title=line(record, cycles), title_justify="left", box=None)
    for name in ("learner", "epochs", "samples", "time, s", "energy, J", "limit, J", "outcome"):
        table.add_column(name, justify="left" if name in ("learner", "outcome") else "right")
    for row in record.learners:
        limit = "" if row.energy_limit_j is None else f"{row.energy_limit_j:.1f}"
        costs = (f"{row.time_s:.2f}", f"{row.energy_j:.2f}", limit)
        outcome = f"{row.outcome}: {row.reason}" if row.reason else str(row.outcome)
        table.add_row(row.learner, str(row.epochs), str(row.samples), *costs, outcome)
    return table


def conclude(out: Console, run: RunDir, seconds: float) -> None:
    """Say what a finished run has reached."""
    records = run.records()
    best = max(map(_accuracy, records), default=nan)
    why = f"; {records[-1].stopped}" if records and records[-1].stopped else ""
    out.print(f"best accuracy {best:.2f} %, {seconds:.0f} s of wall time{why}", soft_wrap=True, markup=False)
    out.print(f"report: {run.path / 'report.html'}", soft_wrap=True, markup=False)


def _accuracy(record: CycleRecord) -> float:
    return 100 * record.metrics.get("accuracy", nan)
