"""A run while it goes on, and its result."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from flwr_mel.records import CycleRecord, Outcome
from mel_simulation.app.run_dir import RunDir
from mel_simulation.engine.launch import Running
from mel_simulation.engine.run_app import DONE

_PERIOD_S = 0.3


class Pace:
    """Tells how long the remaining cycles will take, by those since the first.

    Parameters
    ----------
    cycles, done : int
        Planned, and finished before this run began.
    """

    def __init__(self, cycles: int, done: int) -> None:
        self.cycles = cycles
        self.done = self._first = done
        self._since = self._last = 0.0

    def tick(self, done: int) -> None:
        """Take note of a finished cycle."""
        self._last = time.monotonic()
        if not self._since:
            # The first cycle includes the start of the engine and tells nothing.
            self._first, self._since = done, self._last
        self.done = done

    def left(self) -> str:
        """Say it in words; empty while nothing is known."""
        seen, ahead = self.done - self._first, self.cycles - self.done
        if seen < 1 or ahead < 1:
            return ""
        per_cycle = (self._last - self._since) / seen
        seconds = max(ahead * per_cycle - (time.monotonic() - self._last), 0.0)
        return f"about {seconds:.0f} s left"


def follow(console: Console, run: RunDir, cycles: int, engine: Running, done: int = 0) -> None:
    """Show a run until it ends: a line per cycle, and in a terminal a bar below them.

    Parameters
    ----------
    console : Console
        Where to.
    run : RunDir
        What is followed.
    cycles : int
        How many are planned.
    engine : Running
        Says whether the run still goes on, and what it does before the first cycle.
    done : int
        Cycles that were finished before this run began.
    """
    console.print(f"results go to {run.path}", soft_wrap=True, markup=False)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        bar, pace, shown_as = shown.add_task("starting", total=cycles, completed=done), Pace(cycles, done), ""
        while True:
            # In this order: what is written before the end is still shown.
            going, phase = engine.alive(), engine.phase
            if phase not in (shown_as, DONE) and not console.is_terminal:
                console.print(f"{phase} ...", markup=False)
            shown_as = phase
            for record in run.records()[pace.done :]:
                console.print(_line(record, cycles), soft_wrap=True, markup=False)
                pace.tick(record.cycle)
            shown.update(bar, completed=pace.done, description=pace.left() or phase)
            if not going:
                return
            time.sleep(_PERIOD_S)


def _line(record: CycleRecord, cycles: int) -> str:
    """Say what happened in a cycle."""
    used = sum(row.outcome is Outcome.USED for row in record.learners)
    parts = [f"{used} of {len(record.learners)} learners used", f"mean epochs {record.mean_epochs:.3g}"]
    if "accuracy" in record.metrics:
        parts.insert(0, f"accuracy {100 * record.metrics['accuracy']:.2f} %")
    parts.append(f"last report {record.makespan_s:.4g} of {record.cycle_time_s:.4g} s")
    parts.append(f"clock {record.clock_s:.4g} s, energy {record.total_energy_j:.4g} J")
    return f"cycle {record.cycle} of {cycles}: {', '.join([*parts, *record.notes])}"


def summary(console: Console, run: RunDir, seconds: float) -> None:
    """Print the final table of a run.

    Parameters
    ----------
    console : Console
        Where to.
    run : RunDir
        A finished run.
    seconds : float
        Wall time it took.
    """
    records = run.records()
    if not records:
        return
    last = records[-1]
    table = Table(title="Result", title_justify="left", show_header=False, box=None)
    accuracies = [r.metrics["accuracy"] for r in records if "accuracy" in r.metrics]
    rows = {
        "cycles": str(last.cycle) + (f" ({last.stopped})" if last.stopped else ""),
        "accuracy": f"{100 * accuracies[-1]:.2f} %, best {100 * max(accuracies):.2f} %"
        if accuracies
        else "-",
        "mean epochs": f"{sum(r.mean_epochs for r in records) / len(records):.2f} per cycle",
        "virtual time": f"{last.clock_s:.1f} s",
        "energy": f"{last.total_energy_j:,.0f} J",
        "failures": str(sum(len(r.failures) for r in records)),
        "wall time": f"{seconds:.0f} s",
    }
    for key, value in rows.items():
        table.add_row(key, value)
    console.print(table)
    # Not in the table, which would cut it off.
    console.print(f" report        {run.path / 'report.html'}", soft_wrap=True, markup=False)
