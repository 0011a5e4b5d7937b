"""How all figures look and how they are written: print size, colour-blind safe, the same bytes every time."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

#: Okabe and Ito's colours, without the yellow that vanishes on paper.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#7F7F7F"
COLOURS = (BLACK, BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, GREY)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
#: Widths of one and two columns, inches.
COLUMN, PAGE = 3.5, 7.16

_STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "savefig.dpi": 200,
    "figure.constrained_layout.use": True,
}


@contextmanager
def style() -> Iterator[None]:
    """Apply our style to figures made and saved inside, whatever the user's matplotlib settings."""
    with mpl.rc_context():
        mpl.rcdefaults()
        for key, value in _STYLE.items():
            mpl.rcParams[key] = value  # type: ignore[index]
        yield


def canvas(
    rows: int, columns: int, *, width: float = 0.0, height: float = 2.3, **shared: Any
) -> tuple[Figure, Any]:
    """Return a figure and its axes as a 2-d array; `height` is that of one row of panels, in inches."""
    width = width or (PAGE if columns > 1 else 1.3 * COLUMN)
    figure = Figure(figsize=(width, height * rows + 1.1))
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **shared)


def save(figure: Figure, out: Path, name: str) -> Path:
    """Write a PNG of 64 colours, a third of the bytes, without dates or versions."""
    out.mkdir(parents=True, exist_ok=True)
    path, drawn = out / f"{name}.png", BytesIO()
    figure.savefig(drawn, format="png")
    Image.open(drawn).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)
    return path


def percent_axis(axes: Axes, values: Sequence[float]) -> None:
    """Scale the y axis of accuracies by the logarithm of the error: 90 % and 97 % are both readable."""
    low, high = min(values), min(max(values), 0.9995)
    ticks = (0.3, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.975, 0.98, 0.99)
    shown = [tick for tick in ticks if low - 0.02 <= tick <= high + 0.002]
    axes.set_yscale("function", functions=(_to_error, _from_error))
    axes.set(ylim=(1 - (1 - low) * 1.06, 1 - (1 - high) * 0.92))
    axes.set_yticks(shown, [f"{100 * tick:g}" for tick in shown])


def _to_error(accuracy: Any) -> Any:
    return -np.log10(np.maximum(1 - np.asarray(accuracy), 1e-6))


def _from_error(position: Any) -> Any:
    return 1 - 10.0 ** -np.asarray(position)


def legend(figure: Figure, entries: Sequence[Any], title: str, entry_width: float = 1.4) -> None:
    """Put the title of the figure and one legend for all panels above them."""
    figure.legend(
        handles=list(entries),
        loc="outside upper left",
        ncols=max(1, min(int(figure.get_figwidth() / entry_width), len(entries))),
        handlelength=2.4,
        columnspacing=1.1,
        title=textwrap.fill(title, int(figure.get_figwidth() / 0.1), break_on_hyphens=False),
        title_fontproperties={"size": 10, "weight": "bold"},
        alignment="left",
    )


def entry(label: str, **look: Any) -> Line2D:
    """Return a line for a legend."""
    return Line2D([], [], label=label, **look)


def footer(figure: Figure, *texts: str) -> None:
    """Write what the figure was made from below it, a paragraph per text."""
    room = int(figure.get_figwidth() / 0.0585)
    lines = "\n".join(textwrap.fill(text, room, break_on_hyphens=False) for text in texts if text)
    figure.supxlabel(lines, fontsize=7, color="#444444", x=0.01, ha="left", multialignment="left")
