"""Write docs/SETTINGS.md, and README's table and figure of the examples: ``python docs/generate.py``."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

from mel_simulation.pages import fill, markdown_table

from flwr_mel.cycle.options import Estimation, Robust, Rounds, Shards
from flwr_mel.records import JsonlWriter, Stopping
from flwr_mel.serverapp import MelStrategy
from flwr_mel.solvers import Rate

PAGE = Path(__file__).with_name("SETTINGS.md")
ROOT = Path(__file__).parents[1]
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


def gallery(results: dict[str, Any]) -> str:
    """Return figure and table of the examples: round times, and the time to the original's accuracy."""
    if not results:
        return ""
    head = ["project", "original round", "round with flwr_mel", "speedup"]
    head += ["speedup to the same accuracy", "speedup with equal clients"]
    rows = []
    for name, found in results.items():
        unequal, equal = found["unequal"], found["equal"]
        before, after = unequal["plain_round_s"], unequal["wrapped_round_s"]
        sooner = unequal["plain_s"] / unequal["wrapped_s"] if unequal["wrapped_s"] else None
        same = equal["plain_round_s"] / equal["wrapped_round_s"]
        rows.append(
            [
                f"[{name}](examples/{name})",
                f"{before:.1f} s",
                f"{after:.1f} s",
                f"**{before / after:.1f} x**",
                "not reached" if sooner is None else f"{sooner:.1f} x",
                f"{same:.2f} x",
            ]
        )
    return "![Round times of the examples](docs/figures/gallery.png)\n\n" + markdown_table(head, rows)


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw the round times of the examples."""
    from mel_simulation.paper.style import canvas, save, style  # noqa: PLC0415

    kinds = (("plain_round_s", "original", "#999999"), ("wrapped_round_s", "with flwr_mel", "#0072B2"))
    names = list(results)
    with style():
        figure, ((axes,),) = canvas(1, 1, width=7.0, height=2.2)
        for place, (kind, label, colour) in enumerate(kinds):
            seconds = [results[name]["unequal"][kind] for name in names]
            rows = [k + 0.4 * place for k in range(len(names))]
            axes.barh(rows, seconds, height=0.36, label=label, color=colour)
        axes.set_yticks([k + 0.2 for k in range(len(names))], names)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("seconds per round; the clients need 1, 2, 5 and 10 times as long")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
        save(figure, path.parent, path.stem)


def measured() -> dict[str, Any]:
    """Return what `python -m bench.gallery` measured, by project."""
    results = json.loads((ROOT / "bench" / "results" / "gallery.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = results.get("projects", {})
    return found


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    found = measured()
    fill(ROOT / "README.md", {"gallery": gallery(found)})
    if found:
        draw(found, ROOT / "docs" / "figures" / "gallery.png")
