"""A bar for computations of many parts: from the first second on, and in a pipe as lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar


@contextmanager
def progress(out: Console, parts: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar from the start; in a pipe, a line for every phase and every finished part.

    Parameters
    ----------
    out : Console
        Where.
    parts : str
        What is counted, in the plural.

    Yields
    ------
    callable
        To be told the phase, how many parts are done, and how many there are.
    """
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), MofNCompleteColumn())
    start, before, said = time.monotonic(), -1, ("", -1)
    with Bar(*columns, TimeElapsedColumn(), TextColumn("{task.fields[left]}"), console=out) as bar:
        line = bar.add_task("loading", total=None, left="")

        def show(phase: str, done: int, total: int) -> None:
            nonlocal start, before, said
            if before < 0 or phase == "starting Ray":
                start, before = time.monotonic(), done
            seconds = (total - done) * (time.monotonic() - start) / (done - before) if done > before else 0.0
            left = f"about {seconds / 60:.0f} min left" if seconds else ""
            bar.update(line, completed=done, total=total, description=phase, left=left)
            if (phase, done) != said and not out.is_terminal:
                out.print(f"{done} of {total} {parts}: {phase} {left}".rstrip(), soft_wrap=True)
            said = (phase, done)

        yield show
