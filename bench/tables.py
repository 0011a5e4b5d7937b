"""Results of the benchmarks: measured by one module each, shown together by `bench.page`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from mel_simulation.pages import markdown_table as table

import flwr_mel

__all__ = ["RESULTS", "arguments", "load", "save", "table"]

RESULTS = Path(__file__).parent / "results"


def arguments(about: str | None) -> argparse.ArgumentParser:
    """Return the options that all benchmarks have."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-write", action="store_true", help="print only")
    return parser


def save(name: str, results: dict[str, Any]) -> None:
    """Write the results of a benchmark into its file, with our version."""
    text = json.dumps({"version": flwr_mel.__version__, **results}, indent=1)
    (RESULTS / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


def load(name: str) -> dict[str, Any]:
    """Read the results of a benchmark."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found
