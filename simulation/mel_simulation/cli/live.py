"""A run while it goes on, as `flwr-mel watch` shows it, and its result."""

from __future__ import annotations

import time

from rich.console import Console
from rich.table import Table

from flwr_mel.cli.watch.lines import Lines
from flwr_mel.cli.watch.place import Place
from flwr_mel.cli.watch.screen import Screen
from flwr_mel.records.follow import Entry, History
from mel_simulation.app.run_dir import RunDir
from mel_simulation.engine.launch import Running
from mel_simulation.engine.run_app import DONE

_PERIOD_S = 0.1


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
    """Show a run until it ends: a view of the last cycle in a terminal, plain lines elsewhere.

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
    if not console.is_terminal:
        lines = Lines(as_json=False, verbose=False)
        lines.say(f"results go to {run.path}")
        _show(lines, run, cycles, engine, done)
        return
    with Screen(console, str(run.path), "", live=True, leave="Ctrl-C stops the run") as screen:
        _show(screen, run, cycles, engine, done)


def _show(show: Lines | Screen, run: RunDir, cycles: int, engine: Running, done: int) -> None:
    place, history, pace, said = Place(run.path), History(), Pace(cycles, done), ""
    while True:
        # In this order: what is written before the end is still shown.
        going, phase = engine.alive(), engine.phase
        if phase not in (said, DONE):
            show.say(f"{phase} ...")
            said = phase
        for event in place.poll():
            if not isinstance(event, Entry):
                continue
            history.add(event.record)
            if event.record.cycle > done:
                show.cycle(event, cycles)
                pace.tick(event.record.cycle)
        if isinstance(show, Screen) and pace.left():
            show.say(pace.left())
        show.look(history, cycles, "", place.age_s)
        if not going:
            return
        time.sleep(_PERIOD_S)


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
