"""The page of the benchmarks: every benchmark writes its own section."""

from __future__ import annotations

from pathlib import Path

from mel_simulation.pages import markdown_table as table

__all__ = ["PAGE", "table", "write_section"]

PAGE = Path(__file__).parent.parent / "docs" / "BENCHMARKS.md"
_HEAD = "# Benchmarks\n\nEvery section is generated; every number is measured.\n"


def write_section(path: Path, name: str, text: str, head: str = _HEAD) -> None:
    """Put a section into a page, in place of its former version or at the end.

    Parameters
    ----------
    path : Path
        The page; it is begun with `head` if there is none.
    name : str
        Of the section; the text is between ``<!-- name:begin -->`` and ``<!-- name:end -->``.
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
    path.write_text(page, encoding="utf-8")
