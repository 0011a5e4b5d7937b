"""How all figures look: print size, colour-blind safe, the same bytes every time."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib.style
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

#: Okabe and Ito's colours, without the yellow that vanishes on paper, and a grey.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#7F7F7F")
GREY = COLOURS[-1]
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")

_STYLE = {
    "font.size": 8,
    "axes.titlesize": 8,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "savefig.dpi": 150,
}


def style() -> AbstractContextManager[None]:
    """Apply our style to figures made and saved inside, whatever the user's matplotlib settings."""
    return matplotlib.style.context(_STYLE, after_reset=True)


def canvas(
    rows: int, columns: int, *, width: float = 7.2, height: float = 2.3, **shared: Any
) -> tuple[Figure, Any]:
    """Return a figure and its axes as a 2-d array; `height` is that of one row of panels, in inches."""
    figure = Figure(figsize=(width, height * rows + 0.8), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **shared)


def legend(figure: Figure, entries: Sequence[Artist] = (), title: str = "", columns: int = 6) -> None:
    """Put one legend above all panels: of these entries, or of all labels in the panels."""
    found: dict[str, Any] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    handles = list(entries) or [found[label] for label in sorted(found)]
    figure.legend(handles=handles, loc="outside upper left", ncols=columns, title=title, alignment="left")


def entry(label: str, **look: Any) -> Line2D:
    """Return a line for a legend."""
    return Line2D([], [], label=label, **look)


def footer(figure: Figure, *texts: str) -> None:
    """Write what the figure was made from below it, a paragraph per text."""
    lines = "\n".join(textwrap.fill(text, 120) for text in texts if text)
    figure.supxlabel(lines, fontsize=7, x=0.01, ha="left", multialignment="left")


def save(figure: Figure, out: Path, name: str) -> Path:
    """Write a PNG of 64 colours, a third of the bytes, without dates or versions."""
    out.mkdir(parents=True, exist_ok=True)
    path, drawn = out / f"{name}.png", BytesIO()
    figure.savefig(drawn)
    Image.open(drawn).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)
    return path
