"""What each learner was given, cycle by cycle: heat strips for few learners, bands per class for many."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np

from flwr_mel._validate import FloatArray
from flwr_mel.report.axis import Axis, cycles_axis, fit
from flwr_mel.report.charts import Line, chart, ranged
from flwr_mel.report.ledger import BoolArray, Ledger
from flwr_mel.report.markup import Html, el, plain
from flwr_mel.report.numerals import mean, plural, ranges, short, span

#: More learners than this are shown by class.
MOST_ROWS = 40
#: More cycles than this are put together in fewer cells.
_MOST_CELLS = 90
_FAINTEST = 0.12


def class_key(ledger: Ledger) -> Html:
    """Write the classes with their colours."""
    chips = [
        el(
            "span",
            el("i", class_="chip"),
            el("b", group.name),
            f" {len(group.rows):,}",
            class_=f"k{group.colour}",
        )
        for group in ledger.classes
    ]
    return el("p", chips, class_="key")


def strips(title: Html, words: str, values: FloatArray, ledger: Ledger, cycles: Sequence[int]) -> Html:
    """Draw one row per learner and one cell per cycle; a stronger colour is more.

    Parameters
    ----------
    title : Html
        Above the drawing.
    words : str
        What is counted, in the plural.
    values : float array, shape (learners, cycles)
        NaN: nothing was given.
    ledger : Ledger
        The learners.
    cycles : sequence of int
        Their numbers.
    """
    edges = _edges(len(cycles))
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    ramp = el("span", short(low), el("i", class_="ramp"), short(high), class_="scale")
    groups = []
    for group in ledger.classes:
        rows = [
            _row(ledger.learners[k], words, values[k], ledger.failed[k], cycles, edges, (low, high))
            for k in group.rows
        ]
        groups.append(el("div", rows, class_=f"group k{group.colour}"))
    foot = el(
        "div", el("span", f"cycle {cycles[0]:,}"), el("span", f"{cycles[-1]:,}") if len(cycles) > 1 else None
    )
    head = el("figcaption", el("b", title), ramp)
    return el("figure", head, groups, el("div", foot, class_="sfoot"), class_="strips")


def cycles_per_cell(n: int) -> int:
    """Return how many of n cycles go into one cell."""
    return math.ceil(n / _MOST_CELLS)


def _edges(n: int) -> list[tuple[int, int]]:
    """Cut n cycles into cells of equal length."""
    width = cycles_per_cell(n)
    return [(start, min(start + width, n)) for start in range(0, n, width)]


def _row(
    name: str,
    words: str,
    values: FloatArray,
    failed: BoolArray,
    cycles: Sequence[int],
    edges: Sequence[tuple[int, int]],
    limits: tuple[float, float],
) -> Html:
    cells, tips = [], []
    for i, (start, stop) in enumerate(edges):
        value, lost = mean(values[start:stop]), bool(failed[start:stop].any())
        if not math.isnan(value):
            cells.append(
                el(
                    "rect",
                    x=f"{i + 0.04:g}",
                    width="0.92",
                    y="0",
                    height="10",
                    fill_opacity=_shade(value, limits),
                )
            )
        else:
            cells.append(el("path", class_="off", d=f"M{i + 0.3:g} 5h.4"))
        if lost:
            cells.append(el("path", class_="lost", d=f"M{i + 0.2:g} 1l.6 8m0 -8l-.6 8"))
        when = ranges([cycles[start]] if stop - start == 1 else range(cycles[start], cycles[stop - 1] + 1))
        said = f"{short(value)} {words}" if not math.isnan(value) else "no work"
        tips.append(
            (
                round(100 * (i + 0.5) / len(edges), 2),
                plain(f"{name}, cycle {when}: {said}{', not used' if lost else ''}"),
            )
        )
    what = f"{span(values)} {words} per cycle; no work in {plural(int(np.isnan(values).sum()), 'cycle')}"
    svg = el(
        "svg",
        el("title", name),
        el("desc", what),
        cells,
        viewBox=f"0 0 {len(edges)} 10",
        preserveAspectRatio="none",
        role="img",
    )
    strip = el("div", svg, class_="strip", data_tips=json.dumps(tips, ensure_ascii=False))
    return el(
        "div", el("span", name, class_="who"), strip, el("span", span(values), class_="val"), class_="srow"
    )


def _shade(value: float, limits: tuple[float, float]) -> str:
    low, high = limits
    share = (value - low) / (high - low) if high > low else 1.0
    return f"{_FAINTEST + 0.1 + (0.9 - _FAINTEST) * share:.2f}"


def bands(title: Html, words: str, values: FloatArray, ledger: Ledger, cycles: Sequence[int]) -> Html:
    """Draw one small chart per class: the mean, and the range from the least to the most.

    Parameters
    ----------
    title, words, values, ledger, cycles
        As of `strips`.
    """
    at = np.array(cycles, dtype=np.float64)
    axis = fit(words, values, zero=True, ticks=4)
    figures = [_band(title, words, values[list(g.rows)], g.name, g.colour, at, axis) for g in ledger.classes]
    return el("div", figures, class_="grid four")


def _band(
    title: Html, words: str, values: FloatArray, name: str, colour: int, cycles: FloatArray, axis: Axis
) -> Html:
    low, middle, high = ranged(values)
    tips = [
        f"{name}, cycle {c:,.0f}: {short(a)} to {short(z)}, mean {short(m)} {words}"
        for c, a, m, z in zip(cycles.tolist(), low, middle, high, strict=True)
    ]
    line = Line(name, cycles, middle, tips, colour, band=(low, high), end=short(mean(middle)))
    learners = plural(len(values), "learner")
    what = f"{words} of {learners} of class {name}: {span(values)}, mean {short(mean(values))}."
    head = el("span", el("i", class_=f"chip k{colour}"), name)
    return chart(head, what, [line], cycles_axis(cycles), axis, note=title, height=120)
