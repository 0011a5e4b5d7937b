"""Time and energy use against the limits, and who idled."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from flwr_mel._validate import FloatArray
from flwr_mel.report.ledger import Ledger
from flwr_mel.report.markup import Html, el
from flwr_mel.report.numerals import DASH, JOULES, SECONDS, mean, measure, plural, reading, used
from flwr_mel.report.strips import MOST_ROWS

#: Where the scale ends at the latest, in shares of the limit.
_SCALE_END = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """How much of the limits one learner, or one class, uses."""

    name: str
    colour: int
    time_s: FloatArray
    time_share: FloatArray
    energy_j: FloatArray
    energy_share: FloatArray
    idle_s: FloatArray
    limited_by: str


def uses(ledger: Ledger) -> Iterator[Use]:
    """Return one row per learner, or per class when there are many."""
    if len(ledger.learners) <= MOST_ROWS:
        for k, group in enumerate(ledger.class_of):
            yield _use(ledger, ledger.learners[k], group.colour, [k])
        return
    for group in ledger.classes:
        yield _use(ledger, f"{group.name} \u00d7 {len(group.rows):,}", group.colour, group.rows)


def _use(ledger: Ledger, name: str, colour: int, rows: Sequence[int]) -> Use:
    k = list(rows)
    named = sorted({ledger.limited_by[i] for i in k} - {""})
    return Use(
        name,
        colour,
        ledger.time_s[k],
        ledger.time_share[k],
        ledger.energy_j[k],
        ledger.energy_share[k],
        ledger.idle_s[k],
        ", ".join(named) or DASH,
    )


def limits_table(ledger: Ledger) -> Html:
    """Draw the use of T and of E_k as bars against a mark at the limit.

    Parameters
    ----------
    ledger : Ledger
        The learners.
    """
    rows = list(uses(ledger))
    end = min(
        _SCALE_END, max([1.0, *(_top(u.time_share) for u in rows), *(_top(u.energy_share) for u in rows)])
    )
    end *= 1.06
    heads = (
        "learner",
        Html("time, share of <i>T</i>"),
        Html("energy, share of <i>E<sub>k</sub></i>"),
        "idle",
        "limit",
    )
    body = [_row(use, end) for use in rows]
    return el(
        "table",
        el("thead", el("tr", [el("th", head, scope="col") for head in heads])),
        el("tbody", body),
        class_="limits",
    )


def _top(shares: FloatArray) -> float:
    known = shares[np.isfinite(shares)]
    return float(known.max()) if len(known) else 0.0


def _row(use: Use, end: float) -> Html:
    worked = np.isfinite(use.time_s).any()
    time = _bar(use.time_share, end, reading(mean(use.time_s), SECONDS), idle=True)
    energy = _bar(use.energy_share, end, reading(mean(use.energy_j), JOULES), idle=False)
    return el(
        "tr",
        el("th", el("i", class_="chip"), use.name, scope="row"),
        el("td", time, class_="use", data_label="time"),
        el("td", energy, class_="use", data_label="energy"),
        el("td", reading(mean(use.idle_s), SECONDS), class_="n", data_label="idle"),
        el("td", use.limited_by if worked else "no work", class_="by", data_label="limit"),
        class_=f"k{use.colour}",
    )


def _bar(shares: FloatArray, end: float, amount: str, *, idle: bool) -> Html:
    """Draw a bar to the mean share, a thin range from least to most, and the limit's mark."""
    known = shares[np.isfinite(shares)]
    marks: list[Html] = []
    if len(known):
        middle, low, high = float(known.mean()), float(known.min()), float(known.max())
        if idle and middle < 1:
            marks.append(_piece("rest", middle, 1.0, end))
        marks.append(_piece("fill", 0.0, middle, end))
        marks.append(_piece("range", low, high, end))
    marks.append(_piece("stop", 1.0, 1.0, end))
    share = mean(shares)
    over = " over" if len(known) and float(known.max()) > 1 + 1e-9 else ""
    said = used(share) if not math.isnan(share) else ("no limit" if amount != DASH else "")
    number = el("span", el("b", said), f" {amount}", class_=f"amount{over}")
    return el("span", el("span", marks, class_="bar", aria_hidden="true"), number, class_="pair")


def _piece(kind: str, start: float, stop: float, end: float) -> Html:
    left, width = 100 * min(start, end) / end, 100 * (min(stop, end) - min(start, end)) / end
    return el("i", class_=kind, style=f"left:{left:.2f}%;width:{width:.2f}%")


def idle_sentence(ledger: Ledger) -> Html:
    """Say how much of the cycle time was not used, and by whom."""
    if not np.isfinite(ledger.idle_s).any():
        return el("p", "No learner was there.", class_="lead")
    if not np.isfinite(ledger.time_s).any():
        return el("p", "No learner had work in any cycle.", class_="lead")
    rows = sorted(
        ((mean(ledger.idle_s[k]), name) for k, name in enumerate(ledger.learners)),
        key=lambda row: -row[0] if math.isfinite(row[0]) else math.inf,
    )
    most = ", ".join(f"{name} ({measure(idle, SECONDS, 3)})" for idle, name in rows[:3] if idle > 0)
    busy = mean(ledger.time_share)
    text = [
        "Learners with work were busy for ",
        el("b", used(busy)),
        " of the cycle time on average. Over all learners, idle time was ",
        el("b", reading(mean(ledger.idle_s), SECONDS)),
        f" per cycle; longest: {most}." if most else " per cycle.",
    ]
    binding = _binding(ledger)
    return el("p", text, f" {binding}" if binding else "", class_="lead")


def _binding(ledger: Ledger) -> str:
    """Say which limit is the nearest for how many learners."""
    names = [name for name in ledger.limited_by if name]
    kinds = sorted(set(names), key=lambda kind: -names.count(kind))
    parts = [f"{kind} for {plural(names.count(kind), 'learner')}" for kind in kinds]
    return f"What kept them from more: {', '.join(parts)}." if parts else ""
