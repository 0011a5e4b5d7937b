"""Markdown tables, and blocks of a hand-written page that a command fills in."""

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
