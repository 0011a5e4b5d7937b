"""How all figures look: print size, colour-blind safe, the same bytes every time."""

from __future__ import annotations

from contextlib import AbstractContextManager
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib.style
from matplotlib.figure import Figure
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


def legend(figure: Figure) -> None:
    """Put one legend of all labels, sorted, above all panels."""
    found: dict[str, Any] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    found = dict(sorted(found.items()))
    figure.legend(found.values(), found.keys(), loc="outside upper left", ncols=6)


def save(figure: Figure, out: Path, name: str) -> Path:
    """Write a PNG of 64 colours, a third of the bytes, without dates or versions."""
    out.mkdir(parents=True, exist_ok=True)
    path, drawn = out / f"{name}.png", BytesIO()
    figure.savefig(drawn)
    Image.open(drawn).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)
    return path
