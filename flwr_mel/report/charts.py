"""Line charts: a stretched SVG for the marks and HTML for the words, so that text keeps its size."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from flwr_mel._validate import FloatArray
from flwr_mel.report.axis import Axis
from flwr_mel.report.markup import Html, el, plain

#: Side of every chart's own coordinates.
SIDE = 1000
#: Pixels between two labels at the lines' ends.
_GAP = 16
_MOST_DOTS = 40


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """One curve.

    Parameters
    ----------
    label : str
        Written at its end.
    x, y : float arrays
        Points; the curve has a gap where y is NaN.
    tips : sequence of str
        What to say of each point.
    colour : int
        In the palette.
    style : str
        Of the stroke: "", "dash", "dots" or "long".
    band : tuple of two float arrays, optional
        A shaded range around the curve.
    end : str
        Written in place of the label at the curve's end, when there is only one curve.
    """

    label: str
    x: FloatArray
    y: FloatArray
    tips: Sequence[str] = ()
    colour: int = 0
    style: str = ""
    band: tuple[FloatArray, FloatArray] | None = None
    end: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """A horizontal line at a limit or a target."""

    y: float
    label: str


def ranged(values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return least, mean and most of every column; NaN where nothing is known.

    Parameters
    ----------
    values : float array, 2-d
        Rows are learners or runs, columns are cycles.
    """
    columns = [column[np.isfinite(column)] for column in values.T]
    low, middle, high = (
        np.array([float(f(c)) if len(c) else math.nan for c in columns]) for f in (np.min, np.mean, np.max)
    )
    return low, middle, high


def chart(
    title: object,
    what: str,
    lines: Sequence[Line],
    x: Axis,
    y: Axis,
    *,
    rules: Sequence[Rule] = (),
    note: object = "",
    height: int = 210,
    ends: bool = True,
) -> Html:
    """Draw curves.

    Parameters
    ----------
    title : object
        Above the chart.
    what : str
        One sentence for those who cannot see it.
    lines : sequence of Line
        The curves; one without any known point is left out.
    x, y : Axis
        The scales.
    rules : sequence of Rule
        Limits and targets.
    note : object
        Small print beside the title.
    height : int
        In pixels.
    ends : bool
        Write the labels at the curves' ends; without, a legend stands elsewhere.
    """
    shown = [line for line in lines if np.isfinite(line.y).any()]
    head = el("figcaption", el("b", title), el("span", note, class_="note") if note else None)
    if not shown:
        return el("figure", head, el("p", "Not on record.", class_="none"), class_="chart")
    svg = el(
        "svg",
        el("title", _bare(title)),
        el("desc", what),
        [_level("grid", y.at(value)) for value, _ in y.ticks],
        [_level("rule", y.at(rule.y)) for rule in rules],
        [_curve(line, x, y) for line in shown],
        viewBox=f"0 0 {SIDE} {SIDE}",
        preserveAspectRatio="none",
        role="img",
    )
    words = [
        [_word("yt", text, top=1 - y.at(value)) for value, text in y.ticks],
        [_word("xt", text, left=x.at(value)) for value, text in x.ticks],
        [_word(_side(rule, shown), rule.label, top=1 - y.at(rule.y)) for rule in rules],
        _ends(shown, y, height) if ends else [],
    ]
    plot = el(
        "div",
        svg,
        words,
        class_="plot",
        style=f"height:{height}px",
        data_tips=json.dumps(_tips(shown, x), ensure_ascii=False),
    )
    axis = el("div", x.label, class_="xl")
    return el("figure", head, plot, axis, class_="chart" if ends else "chart bare")


def _bare(title: object) -> str:
    """Return a title without its tags."""
    return html.unescape(re.sub("<[^>]*>", "", title)) if isinstance(title, Html) else str(title)


def _side(rule: Rule, lines: Sequence[Line]) -> str:
    """Write a rule's label on the side that the first curve does not end on."""
    last = float(lines[0].y[np.isfinite(lines[0].y)][-1])
    return "rl under" if last >= rule.y else "rl"


def _level(kind: str, share: float) -> Html:
    return el("path", class_=kind, d=f"M0 {SIDE * (1 - share):.1f}H{SIDE}")


def _word(kind: str, text: str, **place: float) -> Html:
    style = ";".join(f"{side}:{100 * share:.2f}%" for side, share in place.items())
    return el("span", text, class_=kind, style=style, aria_hidden="true")


def _curve(line: Line, x: Axis, y: Axis) -> Html:
    xs = [SIDE * x.at(v) for v in line.x.tolist()]
    ys = [SIDE * (1 - y.at(v)) for v in line.y.tolist()]
    known = [(a, b) for a, b in zip(xs, ys, strict=True) if math.isfinite(a) and math.isfinite(b)]
    parts = []
    if line.band is not None:
        parts.append(el("path", class_="band", d=_band(xs, line.band, y)))
    parts.append(el("path", class_=f"line {line.style}".strip(), d=_path(xs, ys)))
    if len(known) <= _MOST_DOTS and not line.style:
        parts.append(el("path", class_="dot", d="".join(f"M{a:.1f} {b:.1f}h0" for a, b in known)))
    parts.append(el("path", class_="last", d=f"M{known[-1][0]:.1f} {known[-1][1]:.1f}h0"))
    return el("g", parts, class_=f"k{line.colour}")


def _path(xs: Sequence[float], ys: Sequence[float]) -> str:
    parts, pen = [], "M"
    for a, b in zip(xs, ys, strict=True):
        if math.isfinite(a) and math.isfinite(b):
            parts.append(f"{pen}{a:.1f} {b:.1f}")
            pen = "L"
        else:
            pen = "M"
    return "".join(parts)


def _band(xs: Sequence[float], band: tuple[FloatArray, FloatArray], y: Axis) -> str:
    ok = [i for i in range(len(xs)) if math.isfinite(band[0][i]) and math.isfinite(band[1][i])]
    upper = [f"{xs[i]:.1f} {SIDE * (1 - y.at(float(band[1][i]))):.1f}" for i in ok]
    lower = [f"{xs[i]:.1f} {SIDE * (1 - y.at(float(band[0][i]))):.1f}" for i in reversed(ok)]
    return f"M{'L'.join(upper + lower)}Z" if ok else ""


def _ends(lines: Sequence[Line], y: Axis, height: int) -> list[Html]:
    """Write each curve's label at its end, moved apart where they would overlap."""
    last = [float(line.y[np.isfinite(line.y)][-1]) for line in lines]
    tops = spread([height * (1 - y.at(value)) for value in last], height)
    return [
        el(
            "span",
            el("i", class_=f"sw {line.style}".strip()),
            (line.end or line.label) if len(lines) == 1 else line.label,
            class_=f"end k{line.colour}",
            style=f"top:{top:.1f}px",
        )
        for line, top in zip(lines, tops, strict=True)
    ]


def spread(tops: Sequence[float], height: float) -> list[float]:
    """Move labels apart so that none overlap, as little as their order allows."""
    gap = min(_GAP, height / max(len(tops) - 1, 1))
    order = sorted(range(len(tops)), key=lambda i: tops[i])
    placed = list(tops)
    for before, i in pairwise(order):
        placed[i] = max(placed[i], placed[before] + gap)
    floor = float(height)
    for i in reversed(order):
        placed[i] = min(placed[i], floor)
        floor = placed[i] - gap
    return placed


def _tips(lines: Sequence[Line], x: Axis) -> list[tuple[float, str]]:
    """Collect what to say at each place along x."""
    said: dict[float, list[str]] = {}
    for line in lines:
        for place, tip in zip(line.x.tolist(), line.tips, strict=False):
            if tip and math.isfinite(place):
                said.setdefault(round(100 * x.at(place), 2), []).append(plain(tip))
    return [(place, "\n".join(said[place])) for place in sorted(said)]
