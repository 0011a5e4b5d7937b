"""Markdown tables, and sections of a page that a command writes anew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table.

    Parameters
    ----------
    head : sequence of str
        Column names.
    rows : iterable of sequence of str
        Cells.
    """
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_section(path: Path, name: str, text: str, head: str = "") -> None:
    """Put a section into a page, in place of its former version or at the end.

    Parameters
    ----------
    path : Path
        The page; it is begun if there is none.
    name : str
        Of the section; the text stands between ``<!-- name:begin -->`` and ``<!-- name:end -->``.
    text : str
        Markdown, with its own heading.
    head : str
        How a new page begins.
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    page = path.read_text(encoding="utf-8") if path.exists() else head
    section = f"{begin}\n{text.strip()}\n{end}"
    before, found, rest = page.partition(begin)
    if not found:
        page = f"{page.rstrip()}\n\n{section}\n"
    else:
        _, closed, after = rest.partition(end)
        if not closed:
            raise ValueError(f"{path.name}: {begin} has no {end}")
        page = f"{before}{section}{after}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
