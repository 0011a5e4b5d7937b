"""Markdown tables, pages of them, and blocks of a hand-written page that a command fills in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from flwr_mel._files import atomically

_BLOCK = re.compile(r"(<!-- generated: ([\w.-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_page(path: Path, title: str, figures: Sequence[Path], blocks: Mapping[str, str]) -> None:
    """Write a page that is generated as a whole: its figures, which lie below it, and its blocks."""
    parts = [f"# {title}", *(f"![{each.stem}]({each.relative_to(path.parent)})" for each in figures)]
    parts += [f"## {name}\n\n{text}" for name, text in blocks.items()]
    atomically(path, lambda file: file.write("\n\n".join(parts) + "\n"))


def fill(page: Path, blocks: Mapping[str, str]) -> None:
    """Replace what is between ``<!-- generated: NAME -->`` and ``<!-- end -->``.

    Parameters
    ----------
    page : Path
        A Markdown file; all else in it stays as it is.
    blocks : mapping
        By name. Those that the page does not have are left out; a block of the page that is not among them
        stays as it is.
    """
    text = page.read_text(encoding="utf-8")

    def new(match: re.Match[str]) -> str:
        begin, name, end = match.groups()
        return f"{begin}\n{blocks[name].strip()}\n\n{end}" if name in blocks else match.group()

    atomically(page, lambda file: file.write(_BLOCK.sub(new, text)))
