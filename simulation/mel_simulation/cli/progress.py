"""A bar for computations of many parts; in a pipe, lines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from mel_simulation.ray_session import Show


@contextmanager
def progress(out: Console, parts: str) -> Iterator[Show]:
    """Show a bar; in a pipe, a line for every phase and every finished part."""
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), MofNCompleteColumn())
    start, before, last = time.monotonic(), -1, ("", -1)
    with Bar(*columns, TimeElapsedColumn(), TextColumn("{task.fields[left]}"), console=out) as bar:
        line = bar.add_task("loading", total=None, left="")

        def show(phase: str, done: int, total: int) -> None:
            nonlocal start, before, last
            if before < 0 or phase == "starting Ray":
                start, before = time.monotonic(), done
            seconds = (total - done) * (time.monotonic() - start) / (done - before) if done > before else 0.0
            left = f"about {seconds / 60:.0f} min left" if seconds else ""
            bar.update(line, completed=done, total=total, description=phase, left=left)
            if (phase, done) != last and not out.is_terminal:
                out.print(f"{done} of {total} {parts}: {phase} {left}".rstrip(), soft_wrap=True)
            last = (phase, done)

        yield show
