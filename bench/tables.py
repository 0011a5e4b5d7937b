"""The page of the benchmarks: every benchmark writes its own section."""

from __future__ import annotations

from pathlib import Path

from mel_simulation.paper import pages
from mel_simulation.paper.pages import markdown_table as table

__all__ = ["PAGE", "table", "write_section"]

PAGE = Path(__file__).parent.parent / "docs" / "BENCHMARKS.md"
_HEAD = "# Benchmarks\n\nEvery section is generated; every number is measured.\n"


def write_section(path: Path, name: str, text: str) -> None:
    """Put a section into the page, which is begun if there is none.

    Parameters
    ----------
    path : Path
        The page.
    name : str
        Of the section.
    text : str
        Markdown, with its own heading.
    """
    pages.write_section(path, name, text, _HEAD)
