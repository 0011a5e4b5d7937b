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
from flwr_mel.tools.trial.fleets import BUILT_IN

PAGE = Path(__file__).with_name("SETTINGS.md")
ROOT = Path(__file__).parents[1]
#: The fleet without energy.
UNCOUNTED = "1-2-5-10"
#: From which gain in time the table is bold.
GAIN = 1.05
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
    """Return figure and table of the examples: the gain in time, and in energy, on each fleet."""
    if not results:
        return ""
    fleets = [fleet for fleet in BUILT_IN if any(fleet in found for found in results.values())]
    counted = [fleet for fleet in fleets if fleet != UNCOUNTED]
    head = ["project", *(f"time, {fleet}" for fleet in fleets), *(f"energy, {fleet}" for fleet in counted)]
    rows = []
    for name, found in results.items():
        cells = [_gain(found, fleet, "seconds") for fleet in fleets]
        cells += [_gain(found, fleet, "joules") for fleet in counted]
        rows.append([f"[{name}](examples/{name})", *cells])
    return "![Time to the same accuracy](docs/figures/gallery.png)\n\n" + markdown_table(head, rows)


def _gain(found: dict[str, Any], fleet: str, key: str) -> str:
    """Return by what the planned run needs less; a dash if it is not computed, or not known."""
    gained = gain(found[fleet]["runs"], key) if fleet in found else None
    if gained is None:
        return "-"
    return f"**{gained:.1f} x**" if key == "seconds" and gained >= GAIN else f"{gained:.1f} x"


def gain(runs: dict[str, Any] | None, key: str) -> float | None:
    """Return by what a run needs less than the project as it is; None if either is unknown."""
    if runs is None:
        return None
    before, after = runs["as it is"][key], runs["planned"][key]
    return before / after if before and after else None


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw the times to the same accuracy, of those as they are."""
    from mel_simulation.paper.style import canvas, save, style  # noqa: PLC0415

    colours, names = ("#009E73", "#0072B2", "#E69F00"), list(results)
    with style():
        figure, ((axes,),) = canvas(1, 1, width=7.0, height=2.4)
        for place, (fleet, colour) in enumerate(zip(BUILT_IN, colours, strict=True)):
            gains = [gain(results[name].get(fleet, {}).get("runs"), "seconds") for name in names]
            shares = [1 / gained if gained else 0.0 for gained in gains]
            rows = [k + 0.27 * place for k in range(len(names))]
            axes.barh(rows, [100 * share for share in shares], height=0.24, label=fleet, color=colour)
        axes.axvline(100, color="#999999", linewidth=1)
        axes.set_yticks([k + 0.27 for k in range(len(names))], names)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("time to the same accuracy, % of the original project's")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False)
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
