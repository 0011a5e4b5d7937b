"""A bar for computations of many parts; in a pipe, lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from mel_simulation.ray_session import Show


@contextmanager
def progress(out: Console, parts: str) -> Iterator[Show]:
    """Show a bar; in a pipe, a line for every phase and every finished part."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    last = ""
    with Progress(*columns, console=out) as bar:
        task = bar.add_task("loading", total=None)

        def show(phase: str, done: int, total: int) -> None:
            nonlocal last
            bar.update(task, completed=done, total=total, description=phase)
            line = f"{done} of {total} {parts}: {phase}"
            if line != last and not out.is_terminal:
                out.print(line, soft_wrap=True)
            last = line

        yield show
