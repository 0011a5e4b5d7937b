"""What tables of all commands are made of: titles, bars, names and values in columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

_EIGHTHS = " ▏▎▍▌▋▊▉"


def title(out: Console, text: str, detail: str) -> None:
    """Print the first lines."""
    out.print(Text(text, style="bold"))
    out.print(Text(detail, style="dim"))
    out.print()


def bar(share: float, width: int, *, ascii_only: bool = False) -> str:
    """Draw a share of 1 as a bar; anything used shows, and only a full share fills it.

    Parameters
    ----------
    share : float
        Between 0 and 1.
    width : int
        Cells.
    ascii_only : bool
        For terminals without block characters.
    """
    cells = 1 if ascii_only else 8
    steps = min(int(share * width * cells), width * cells)
    if share > 0:
        steps = max(steps, 1)
    full, rest = divmod(steps, cells)
    if ascii_only:
        return "#" * full + "." * (width - full)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(
        width, "░" if full + bool(rest) < width else " "
    )


def some(names: Sequence[str], most: int = 6) -> str:
    """Return the names, or the first few and how many more."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


def facts(out: Console, pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and values in two columns."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for key, value in pairs:
        table.add_row(key, Text(value))
    out.print(table)
