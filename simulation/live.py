"""The live view of a run: follows the records as they are written."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from flwr_mel.records import CycleRecord
from simulation.run_dir import RunDir

_COLUMNS = ("cycle", "accuracy", "epochs", "samples", "busy", "virtual time", "energy")


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
    start, shown = time.monotonic(), done
    console.print(f"starting Flower's engine; results go to {run.path}", soft_wrap=True)
    while True:
        going = alive()
        for record in run.records()[shown:]:
            shown += 1
            left = (cycles - shown) * (time.monotonic() - start) / max(shown - done, 1)
            cells = "  ".join(f"{k} {v}" for k, v in zip(_COLUMNS, _cells(record), strict=True))
            console.print(f"{cells}  about {left:.0f} s left" if left else cells, soft_wrap=True)
        if not going:
            return
        time.sleep(0.5)


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
    start = time.monotonic()
    with Live(console=console, refresh_per_second=4) as live:
        while True:
            going = alive()
            records = run.records()
            fresh = len(records) - done
            left = (cycles - len(records)) * (time.monotonic() - start) / fresh if fresh > 0 else None
            description = "training" if fresh > 0 else "starting Flower's engine"
            text = f"about {left:.0f} s left" if left is not None and going else ""
            progress.update(bar, completed=len(records), description=description, left=text)
            live.update(Group(_table(records), progress))
            if not going:
                return
            time.sleep(0.25)


def _table(records: list[CycleRecord]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    best = max((r.metrics.get("accuracy", 0.0) for r in records), default=0.0)
    for record in records[-20:]:
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
        "energy": f"{last.total_energy_j:.0f} J",
        "failures": str(sum(len(r.failures) for r in records)),
        "wall time": f"{seconds:.0f} s",
        "report": str(run.path / "report.html"),
    }
    for key, value in rows.items():
        table.add_row(key, value)
    console.print(table)
