"""Curves, drawn by matplotlib as SVG whose colours and font are the page's."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from flwr_mel._validate import FloatArray
from flwr_mel.tools.report.markup import Html, el, short

COLOURS = 7
_WIDTH, _HEIGHT = 372, 248
#: What is drawn in these colours follows the page's light or dark variables.
_PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b57d00", "#2f8fc6", "#4d545b")
_INK, _SOFT, _GRID = "#15191d", "#545c64", "#e9ecea"
_VARIABLES = {colour: f"var(--c{i})" for i, colour in enumerate(_PALETTE)}
_VARIABLES |= {_INK: "var(--ink)", _SOFT: "var(--soft)", _GRID: "var(--grid)"}
_DASHED = (0, (5, 4))


class Line(NamedTuple):
    """A curve with gaps where y is NaN; `band` is a range around it."""

    x: FloatArray
    y: FloatArray
    colour: int = 0
    band: tuple[FloatArray, FloatArray] | None = None


def chart(title: str, lines: Sequence[Line], label: str = "round", *, share: bool = False) -> Html:
    """Draw curves; text keeps the size of the page's.

    Parameters
    ----------
    title, label : str
        Above the chart and below its x axis.
    lines : sequence of Line
        One without any known point is left out.
    share : bool
        Write percentages; otherwise the y axis begins at zero.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    shown = [line for line in lines if np.isfinite(line.y).any()]
    if not shown:
        return el("figure", el("figcaption", el("b", title)), el("p", "Not on record.", class_="note"))
    figure, axes = _axes(label, share)
    for line in shown:
        _draw(axes, line)
    if not share:
        axes.set_ylim(bottom=min(axes.get_ylim()[0], 0.0))
    if label != "round":
        axes.set_xlim(left=0)
    return el("figure", el("figcaption", el("b", title)), _svg(figure, title))


def _axes(label: str, share: bool) -> tuple[Any, Any]:
    """Return a figure and its axes: no frame, level grid lines, few round ticks."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - optional
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    figure = Figure(figsize=(_WIDTH / 72, _HEIGHT / 72), frameon=False)
    left, right, bottom, top = 46, 14, 42, 10
    box = (left / _WIDTH, bottom / _HEIGHT, 1 - (left + right) / _WIDTH, 1 - (top + bottom) / _HEIGHT)
    axes = figure.add_axes(box, frameon=False)
    axes.tick_params(length=0, labelsize=12, labelcolor=_SOFT, pad=6)
    axes.grid(axis="y", color=_GRID, linewidth=1)
    axes.set_axisbelow(True)
    axes.margins(x=0.01, y=0.05)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=label == "round", steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(lambda value, _: short(value))
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.4g}%" if share else short(value))
    axes.set_xlabel(label, color=_SOFT, fontsize=12, labelpad=3)
    return figure, axes


def _draw(axes: Any, line: Line) -> None:
    colour, known = _PALETTE[line.colour % COLOURS], np.isfinite(line.y)
    if line.band is not None:
        axes.fill_between(line.x, *line.band, alpha=0.2, linewidth=0, color=colour)
    look = {"color": colour, "clip_on": False, "linestyle": _DASHED if line.colour >= COLOURS else "-"}
    axes.plot(line.x, line.y, linewidth=2, marker="o", markersize=4, **look)
    axes.plot(line.x[known][-1:], line.y[known][-1:], marker="o", markersize=7, **look)


def _svg(figure: Any, title: str) -> Html:
    """Return the figure as an element that belongs to the page: its colours, ids of its own."""
    from matplotlib import rc_context  # noqa: PLC0415 - optional

    file = io.StringIO()
    # Ids are made from the title, which no other chart of the page has; those of groups are fixed and go.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        figure.savefig(file, format="svg")
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", file.getvalue(), flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub('#[0-9a-f]{6}(?=[;"])', lambda found: _VARIABLES.get(found[0], found[0]), text)
    inner = text[text.index(">", text.index("<svg")) + 1 :].strip()
    return Html(f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{el("title", title)}{inner}')
