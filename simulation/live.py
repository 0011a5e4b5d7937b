"""The live view of a run: follows the records as they are written."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from flwr_mel.records import CycleRecord
from simulation.run_dir import RunDir

_COLUMNS = ("cycle", "accuracy", "epochs", "samples", "busy", "virtual time", "energy")
#: Cycles and remarks that the live table shows.
_ROWS, _REMARKS = 20, 3


class Tail:
    """Reads records as they are appended, each once: a long run of many learners is not read again and again.

    Parameters
    ----------
    path : Path
        A file of JSON lines that may not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0

    def fresh(self) -> list[CycleRecord]:
        """Return the records that have been finished since the last call."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._read)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._read += len(whole)
        return [CycleRecord.from_dict(json.loads(line)) for line in whole.splitlines() if line.strip()]


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


def follow(console: Console, run: RunDir, cycles: int, alive: Callable[[], bool], done: int = 0) -> None:
    """Show a run until it ends: a table that grows in a terminal, plain lines elsewhere.

    Parameters
    ----------
    console : Console
        Where to.
    run : RunDir
        What is followed.
    cycles : int
        How many are planned.
    alive : callable
        Whether the run still goes on.
    done : int
        Cycles that were finished before this run began.
    """
    (_terminal if console.is_terminal else _plain)(console, run, cycles, alive, done)


def _plain(console: Console, run: RunDir, cycles: int, alive: Callable[[], bool], done: int) -> None:
    tail, pace = Tail(run.path / "records.jsonl"), Pace(cycles, done)
    console.print(f"starting Flower's engine; results go to {run.path}", soft_wrap=True)
    while True:
        going = alive()
        for record in tail.fresh():
            if record.cycle <= done:
                continue
            pace.tick(record.cycle)
            cells = "  ".join(f"{k} {v}" for k, v in zip(_COLUMNS, _cells(record), strict=True))
            console.print(f"{cells}  {pace.left()}".rstrip(), soft_wrap=True)
            for remark in remarks(record):
                console.print(f"  {remark}", soft_wrap=True, markup=False)
        if not going:
            return
        time.sleep(0.25)


def _terminal(console: Console, run: RunDir, cycles: int, alive: Callable[[], bool], done: int) -> None:
    progress = Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        console=console,
    )
    bar = progress.add_task("starting Flower's engine", total=cycles, completed=done, left="")
    tail, pace = Tail(run.path / "records.jsonl"), Pace(cycles, done)
    records: list[CycleRecord] = []
    with Live(console=console, refresh_per_second=4) as live:
        while True:
            going = alive()
            for record in tail.fresh():
                records.append(record)
                if record.cycle > done:
                    pace.tick(record.cycle)
            description = "training" if pace.done > done else "starting Flower's engine"
            if not going or pace.done == cycles:
                description = "done" if pace.done == cycles else "ended"
            progress.update(bar, completed=pace.done, description=description, left=pace.left())
            live.update(Group(*_view(records), progress))
            if not going:
                return
            time.sleep(0.25)


def _view(records: list[CycleRecord]) -> list[RenderableType]:
    said = [f"cycle {r.cycle}: {text}" for r in records for text in remarks(r)]
    return [_table(records), *(Text(text, style="yellow") for text in said[-_REMARKS:])]


def remarks(record: CycleRecord) -> list[str]:
    """Return what people should know of a cycle: its notes, and whose work was lost."""
    lost = [f"{r.learner} {r.outcome}: {r.reason}" for r in record.failures]
    more = [f"and {len(lost) - 2} more learners"] if len(lost) > 2 else []
    return [*record.notes, *lost[:2], *more]


def _table(records: list[CycleRecord]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    best = max((r.metrics.get("accuracy", 0.0) for r in records), default=0.0)
    for record in records[-_ROWS:]:
        cells: list[str | Text] = list(_cells(record))
        if record.metrics.get("accuracy") == best:
            cells[1] = Text(str(cells[1]), style="bold green")
        table.add_row(*cells)
    return table


def _cells(record: CycleRecord) -> tuple[str, ...]:
    used = [r for r in record.learners if r.epochs]
    epochs = f"{min(r.epochs for r in used)} to {max(r.epochs for r in used)}" if used else "none"
    busy = sum(r.time_s for r in used) / (len(used) * record.cycle_time_s) if used else 0.0
    accuracy = record.metrics.get("accuracy")
    return (
        str(record.cycle),
        "-" if accuracy is None else _percent(accuracy),
        epochs,
        f"{record.total_samples:,}",
        f"{100 * busy:.0f} %",
        f"{record.clock_s:.1f} s",
        f"{record.total_energy_j:.0f} J",
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


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
