"""Write docs/SETTINGS.md from docstrings and signatures: ``python docs/settings.py``."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from flwr_mel.cycle.options import Estimation, Robust, Rounds, Shards
from flwr_mel.records import JsonlWriter, Stopping
from flwr_mel.serverapp import MelStrategy
from flwr_mel.solvers.rate import Rate

PAGE = Path(__file__).with_name("SETTINGS.md")
HEAD = """# Settings

All keywords of `MelStrategy`, the same in both APIs, and the objects that some of them take. This page is
generated from the docstrings by `make docs`. The [guide](GUIDE.md) explains when to use them.
"""
OBJECTS = (Rounds, Robust, Estimation, Shards, Rate, Stopping, JsonlWriter)


def parameters(thing: type) -> dict[str, str]:
    """Return the descriptions of a numpydoc "Parameters" section by name."""
    text = inspect.cleandoc(thing.__doc__ or "").partition("Parameters\n----------\n")[2]
    found: dict[str, str] = {}
    for block in re.split(r"\n(?=\S)", text):
        names, _, body = block.partition("\n")
        if ":" in names:
            words = " ".join(body.split())
            found |= {name.strip(): words for name in names.partition(":")[0].split(",")}
    return found


def table(thing: type) -> str:
    """Return the keywords of a class with default and meaning."""
    signature = inspect.signature(thing.__init__).parameters
    meanings, rows = parameters(thing), ["| keyword | default | meaning |", "|---|---|---|"]
    for name, parameter in signature.items():
        if name in meanings:
            default = "" if parameter.default is parameter.empty else f"`{_short(parameter.default)}`"
            rows.append(f"| `{name}` | {default} | {meanings[name]} |")
    return "\n".join(rows)


def _short(value: object) -> str:
    """Show a default without its own defaults."""
    return f"{type(value).__name__}()" if hasattr(value, "__dataclass_fields__") else str(value)


def page() -> str:
    """Return the page."""
    parts = [HEAD, "## MelStrategy\n\n`MelStrategy(strategy, *, ...)`\n\n" + table(MelStrategy)]
    for thing in OBJECTS:
        first = inspect.cleandoc(thing.__doc__ or "").partition("\n")[0]
        parts.append(f"## {thing.__name__}\n\n{first}\n\n{table(thing)}")
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
