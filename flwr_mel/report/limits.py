"""One cycle as it passes for each learner, time and energy use against the limits, and who idled."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import numpy as np

from flwr_mel._validate import FloatArray
from flwr_mel.report.ledger import Ledger
from flwr_mel.report.markup import Html, el, plain
from flwr_mel.report.numerals import DASH, JOULES, SECONDS, finite, mean, measure, plural, reading, used
from flwr_mel.report.run import Run
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


def _whom(ledger: Ledger) -> Iterator[tuple[str, int, list[int]]]:
    """Return name, colour and rows of every learner, or of every class when there are many."""
    if len(ledger.learners) <= MOST_ROWS:
        for k, group in enumerate(ledger.class_of):
            yield ledger.learners[k], group.colour, [k]
        return
    for group in ledger.classes:
        yield f"{group.name} \u00d7 {len(group.rows):,}", group.colour, list(group.rows)


def _use(ledger: Ledger, name: str, colour: int, k: list[int]) -> Use:
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
    rows = [_use(ledger, *whom) for whom in _whom(ledger)]
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


#: What a learner does in a cycle, in this order, and how it is drawn.
_PHASES = (("receives", "recv"), ("computes", "fill"), ("sends", "send"), ("waits", "rest"))


def gantt(run: Run, ledger: Ledger) -> list[Html]:
    """Draw the last cycle with work: when each learner receives, computes, sends and waits.

    Parameters
    ----------
    run : Run
        The run.
    ledger : Ledger
        Its learners; when there are many, the means of each class are drawn.
    """
    worked = np.flatnonzero(np.isfinite(ledger.epochs).any(axis=0))
    if not len(worked):
        return [el("p", "No learner had work in any cycle.", class_="lead")]
    n = int(worked[-1])
    record, parts = run.records[n], _phases(ledger, n)
    limit = float(np.nan_to_num(finite(record.cycle_time_s)))
    scale = limit, max(limit, float(np.nanmax(ledger.time_s[:, n]))) or 1.0
    rows = [
        el(
            "div",
            [_passing(name, c, [mean(p[k]) for p in parts], scale) for name, c, k in group],
            class_="group",
        )
        for _, group in groupby(_whom(ledger), key=itemgetter(1))
    ]
    known = np.isfinite(parts[0]).any()
    shown = _PHASES if known else (("works", "fill"), _PHASES[3])
    key = [el("span", el("i", class_=f"phase {kind}"), word) for word, kind in shown]
    until, last = measure(limit, SECONDS), measure(record.makespan_s, SECONDS)
    text = f"Cycle {record.cycle:,} by the cost model; the last report comes after {last} of T = {until}."
    if record.waited_s is not None:
        text += f" By the server's clock it came after {measure(record.waited_s, SECONDS)}."
    if not known:
        text += " How the learners' time splits is not on record."
    foot = el("div", el("span", "0"), el("span", measure(scale[1], SECONDS)), class_="gfoot")
    return [
        el("p", text, class_="lead"),
        el("p", key, class_="key phases"),
        el("div", rows, foot, class_="gantt"),
    ]


def _phases(ledger: Ledger, n: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return seconds of receiving, computing and sending in a cycle; receiving is NaN if nobody knows."""
    receive, send, busy = ledger.receive_s[:, n], ledger.send_s[:, n], ledger.time_s[:, n]
    compute = np.maximum(busy - np.nan_to_num(receive) - np.nan_to_num(send), 0.0)
    return receive, compute, send


def _passing(name: str, colour: int, seconds: Sequence[float], scale: tuple[float, float]) -> Html:
    """Draw one learner's cycle; the scale is T and where the drawing ends."""
    limit, end = scale
    ends = np.cumsum(np.nan_to_num(np.array([0.0, *seconds])))
    said = [
        f"{word} {measure(s, SECONDS, 3)}" for (word, _), s in zip(_PHASES, seconds, strict=False) if s > 0
    ]
    marks = [
        _piece(kind, float(a), float(b), end)
        for (_, kind), a, b in zip(_PHASES, ends, ends[1:], strict=False)
        if b > a
    ]
    if ends[-1] < limit:
        marks.append(_piece("rest", float(ends[-1]), limit, end))
    marks.append(_piece("stop", limit, limit, end))
    text = f"{name}: {', '.join(said) or 'no work'}"
    drawn = el(
        "span", marks, class_="bar", role="img", aria_label=text, data_tips=json.dumps([(50, plain(text))])
    )
    amount = reading(float(ends[-1]) if said else math.nan, SECONDS)
    return el(
        "div",
        el("span", name, class_="who"),
        drawn,
        el("span", amount, class_="val"),
        class_=f"grow k{colour}",
    )


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
