"""How all figures look and how they are written: print size, colour-blind safe, the same bytes every time."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from PIL import Image

from mel_simulation.paper.rows import Row, median

#: Okabe and Ito's colours, without the yellow that vanishes on paper.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#7F7F7F"
#: Colour and marker of a staleness cap c = 0..5, and of anything else that is counted.
COLOURS = (BLACK, BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, GREY)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1)), (0, (3, 1)), (0, (1, 1)), (0, (7, 2)))
#: Widths of one and two columns, inches.
COLUMN, PAGE = 3.5, 7.16
_COLOURS_IN_FILES = 64

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
    """Give figures made and saved inside our style, whatever the user's matplotlib settings."""
    with mpl.rc_context():
        mpl.rcdefaults()
        for key, value in _STYLE.items():
            mpl.rcParams[key] = value  # type: ignore[index]
        yield


def canvas(
    rows: int, columns: int, *, width: float = 0.0, height: float = 2.3, **shared: Any
) -> tuple[Figure, Any]:
    """Return a figure and its axes as a 2-d array.

    Parameters
    ----------
    rows, columns : int
        Of panels.
    width, height : float
        Inches: of the figure (0: two columns of print, less for a single panel), of a row.
    **shared
        For `Figure.subplots`.
    """
    width = width or (PAGE if columns > 1 else 1.3 * COLUMN)
    figure = Figure(figsize=(width, height * rows + 1.1))
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **shared)


def save(figure: Figure, out: Path, name: str) -> Path:
    """Write a PNG of few colours, without dates or versions.

    Parameters
    ----------
    figure : Figure
        What to write.
    out : Path
        The directory; made if missing.
    name : str
        Of the files, without suffix.
    """
    out.mkdir(parents=True, exist_ok=True)
    path, drawn = out / f"{name}.png", BytesIO()
    figure.savefig(drawn, format="png")
    # Lines and letters need few colours: a third of the bytes.
    few = Image.open(drawn).convert("RGB").quantize(_COLOURS_IN_FILES, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    return path


def percent_axis(axes: Axes, values: Sequence[float], axis: str = "y") -> None:
    """Scale an accuracy axis by the logarithm of the error, so that 90 % and 97 % are both readable.

    Parameters
    ----------
    axes : Axes
        The panel.
    values : sequence of float
        All accuracies (0 to 1) that must be seen.
    axis : str
        "x" or "y".
    """
    low, high = min(values), min(max(values), 0.9995)
    error = np.log10([1 - low, 1 - high])
    pad = 0.06 * max(error[0] - error[1], 0.05)
    limits = (max(0.0, 1 - 10 ** (error[0] + pad)), 1 - 10 ** (error[1] - pad))
    ticks = _percent_ticks(*limits)
    words = [f"{100 * t:g}" for t in ticks]
    if axis == "y":
        axes.set_yscale("function", functions=(_to_error, _from_error))
        axes.set(ylim=limits)
        axes.set_yticks(ticks, words)
    else:
        axes.set_xscale("function", functions=(_to_error, _from_error))
        axes.set(xlim=limits)
        axes.set_xticks(ticks, words)


def _to_error(accuracy: Any) -> Any:
    return -np.log10(np.maximum(1 - np.asarray(accuracy), 1e-6))


def _from_error(position: Any) -> Any:
    return 1 - 10.0 ** -np.asarray(position)


def _percent_ticks(low: float, high: float) -> list[float]:
    """Return at most seven round accuracies that are evenly spaced on the axis."""
    ladders = (
        (0, 50, 80, 90, 95, 98, 99, 99.5),
        (0, 30, 50, 60, 70, 80, 85, 90, 93, 95, 97, 98, 99, 99.5),
        (0, 20, 40, 60, 70, 80, 85, 90, 92, 94, 95, 96, 97, 98, 98.5, 99, 99.5),
        [*range(0, 90, 5), *range(90, 98), *np.arange(98, 99.9, 0.25)],
        [*range(0, 80, 2), *range(80, 95), *np.arange(95, 98, 0.5), *np.arange(98, 99.9, 0.25)],
        [*range(80), *np.arange(80, 96, 0.5), *np.arange(96, 99.9, 0.25)],
        [*np.arange(80, 99.9, 0.1)],
    )
    found = [[float(round(t / 100, 4)) for t in ladder if low <= t / 100 <= high] for ladder in ladders]
    return max((ticks for ticks in found if len(ticks) <= 7), key=len)


def legend(figure: Figure, entries: Sequence[Line2D | Any], finding: str, entry_width: float = 1.4) -> None:
    """Put one legend for all panels above them, under words that say what was found.

    Parameters
    ----------
    figure : Figure
        Where.
    entries : sequence of artists
        With labels; none where panels need no legend.
    finding : str
        What was found.
    entry_width : float
        Inches that an entry takes.
    """
    figure.legend(
        handles=list(entries),
        loc="outside upper center",
        ncols=max(1, min(int(figure.get_figwidth() / entry_width), len(entries))),
        handlelength=2.4,
        columnspacing=1.1,
        title=_wrapped(figure, finding) or None,
        title_fontproperties={"size": 9},
    )


def entry(label: str, **look: Any) -> Line2D:
    """Return a line for a legend."""
    return Line2D([], [], label=label, **look)


def entries_of(caps: Sequence[int], energies: Sequence[float]) -> list[Line2D]:
    """Return legend entries of scatter plots: a colour per c, a marker per E."""
    colours = [entry(f"c = {c}", color=COLOURS[c % len(COLOURS)], lw=3) for c in caps]
    marks = zip(energies, MARKERS, strict=False)
    return colours + [entry(f"E = {e:g} J", color=GREY, marker=m, ls="", mfc="none") for e, m in marks]


def point(c: int, energy: int) -> dict[str, Any]:
    """Return the look of a point in a scatter plot: c, and which energy."""
    return {"color": COLOURS[c], "marker": MARKERS[energy], "ls": "", "mfc": "none", "alpha": 0.85}


def against_cycles(panels: Any, values: Sequence[float]) -> None:
    """Give panels of accuracy over cycles their axes.

    Parameters
    ----------
    panels : array of Axes
        In lines.
    values : sequence of float
        All accuracies. Below 70 % they are not shown: the first cycle of a poor scheme would take half of the
        height.
    """
    for line in panels:
        line[0].set_ylabel("test accuracy (%)")
    for axes in panels.flat:
        percent_axis(axes, [max(min(values), 0.7), max(values)])
    for axes in panels[-1]:
        axes.set_xlabel("global cycle")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def headline(figure: Figure, text: str) -> None:
    """Say above everything what the figure is about, in words that need no other page.

    The figure grows by a strip for them: the layout would put title and legend into the same place.

    Parameters
    ----------
    figure : Figure
        With its legend, if it has one.
    text : str
        One sentence.
    """
    words = textwrap.fill(text, int(figure.get_figwidth() / 0.1), break_on_hyphens=False)
    figure.draw_without_rendering()
    boxes = [box.get_window_extent().height / figure.dpi for box in figure.legends]
    width, height = figure.get_size_inches()
    taller = height + 0.1 + 0.19 * len(words.splitlines())
    figure.set_size_inches(width, taller)
    engine, top = figure.get_layout_engine(), height / taller
    for box in figure.legends:
        box.set_bbox_to_anchor((0, 0, 1, top), figure.transFigure)
    if isinstance(engine, ConstrainedLayoutEngine):
        engine.set(rect=(0, 0, 1, top - sum(boxes) / taller))
    place: dict[str, Any] = {"ha": "left", "va": "top", "fontsize": 11, "fontweight": "bold"}
    figure.text(0.01, 1 - 0.07 / taller, words, **place).set_in_layout(False)


def _wrapped(figure: Figure, text: str) -> str:
    return textwrap.fill(text, int(figure.get_figwidth() / 0.088), break_on_hyphens=False)


def footer(figure: Figure, *texts: str) -> None:
    """Write what the figure was made from below it, a paragraph per text."""
    room = int(figure.get_figwidth() / 0.0585)
    lines = "\n".join(textwrap.fill(text, room, break_on_hyphens=False) for text in texts)
    figure.supxlabel(lines, fontsize=7, color="#444444", x=0.01, ha="left", multialignment="left")


def scheme_look(kind: str, c: int) -> dict[str, Any]:
    """Colour and marker tell c; HA is solid and filled, HU dashed and open."""
    look: dict[str, Any] = {"color": COLOURS[c % len(COLOURS)], "marker": MARKERS[c % len(MARKERS)]}
    return {**look, "ls": "-"} if kind == "HA" else {**look, "ls": (0, (3, 2)), "mfc": "white", "lw": 0.9}


def scheme_name(kind: str, c: int) -> str:
    """Return a scheme's name in the paper."""
    return f"{kind}-{'Asyn' if c else 'Sync'} c={c}"


def note(axes: Axes, text: str, corner: str = "lower right") -> None:
    """Write small words into a corner of a panel."""
    x, y = (0.98 if "right" in corner else 0.02), (0.03 if "lower" in corner else 0.97)
    side, edge = ("right" if x > 0.5 else "left"), ("bottom" if y < 0.5 else "top")
    box = {"fc": "white", "ec": "none", "alpha": 0.8, "pad": 1}
    axes.text(x, y, text, transform=axes.transAxes, ha=side, va=edge, fontsize=6.5, bbox=box)


def dots(
    axes: Axes,
    groups: dict[str, list[Row]],
    value: Callable[[Row], float],
    colours: dict[str, str],
    least_span: float = 2.0,
) -> None:
    """Draw a line per group from top to bottom: dots are seeds, a bar their median, "never" at the right."""
    numbers = {name: np.array([value(row) for row in rows]) for name, rows in groups.items()}
    finite = np.concatenate([v[np.isfinite(v)] for v in numbers.values()])
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    low = min(low, high - least_span)
    span = high - low
    never = high + 0.25 * span
    for place, (name, v) in enumerate(numbers.items()):
        shown = np.where(np.isfinite(v), v, never)
        nudge = np.linspace(-0.16, 0.16, len(v)) if len(v) > 1 else np.zeros(1)
        fill = [colours[name] if f else "white" for f in np.isfinite(v)]
        axes.scatter(shown, place + nudge, s=18, c=fill, edgecolors=colours[name], linewidths=0.9, zorder=3)
        middle = median(list(v))
        if np.isfinite(middle):
            axes.plot([middle] * 2, [place - 0.32, place + 0.32], color=colours[name], lw=2)
    right = high
    if any(not np.isfinite(v).all() for v in numbers.values()):
        right = never
        axes.axvline(high + 0.12 * span, color=GREY, lw=0.6, ls=":")
        axes.text(never, -0.55, "never", ha="center", va="bottom", fontsize=7, color="#444444")
    axes.set_yticks(range(len(groups)), list(groups))
    axes.set_ylim(len(groups) - 0.5, -0.6)
    axes.set_xlim(low - 0.1 * span, right + 0.1 * span)
    axes.grid(visible=False, axis="y")
