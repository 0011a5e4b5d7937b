"""The page of the benchmarks: every benchmark writes its own section, and its numbers beside it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mel_simulation.pages import markdown_table as table

import flwr_mel

__all__ = ["PAGE", "RESULTS", "arguments", "publish", "table", "write_section"]

PAGE = Path(__file__).parent.parent / "docs" / "BENCHMARKS.md"
RESULTS = Path(__file__).parent / "results"
_HEAD = "# Benchmarks\n\nEvery section is generated; every number is measured.\n"


def arguments(about: str | None) -> argparse.ArgumentParser:
    """Return the options that all benchmarks have."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-write", action="store_true", help="print only")
    return parser


def publish(
    command: str, results: dict[str, Any], section: Callable[[dict[str, Any]], str], *, write: bool = True
) -> None:
    """Print a section; write it into the page, and the results into a file, both with our version.

    Parameters
    ----------
    command : str
        Name of the benchmark and the options that belong to it.
    results : dict
        Its numbers.
    section : callable
        Makes Markdown of them, with a heading.
    write : bool
        Whether to write anything.
    """
    name, results = command.split(maxsplit=1)[0], {"version": flwr_mel.__version__, **results}
    text = f"{section(results).strip()}\n\nMade by `python -m bench.{command}`, version {results['version']}."
    print(text)
    if write:
        (RESULTS / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        write_section(PAGE, name, text)


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
