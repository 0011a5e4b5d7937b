"""The tables of a report: learners, cycles, who was left out, the configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flwr_mel.allocation.objectives import Objective, in_words
from flwr_mel.records import Outcome
from flwr_mel.report.ledger import Ledger, metric, named, rising, time_spent
from flwr_mel.report.markup import Html, el
from flwr_mel.report.numerals import (
    BITRATE,
    DASH,
    HERTZ,
    JOULES,
    SECONDS,
    finite,
    fixed,
    mean,
    measure,
    percent,
    plural,
    ranges,
    reading,
    span,
)
from flwr_mel.report.run import Run

_MOST_REASONS = 15
_MOST_NAMES = 6


def table(
    heads: Sequence[object],
    rows: Sequence[Sequence[object]],
    *,
    words: Sequence[int] = (0,),
    cards: bool = False,
) -> Html:
    """Make a table in a box of its own that scrolls.

    Parameters
    ----------
    heads : sequence
        Column heads.
    rows : sequence of sequences
        Cells; the first of each row is its head.
    words : sequence of int
        Columns that hold words; the others hold numbers and are set to the right.
    cards : bool
        On a phone make a card of each row, so that nothing is out of sight.
    """

    def cell(i: int, content: object) -> Html:
        kind, label = (None if i in words else "n"), (str(heads[i]) if cards else None)
        if not i:
            return el("th", content, scope="row", class_=kind)
        return el("td", content, class_=kind, data_label=label)

    head = [el("th", h, scope="col", class_=None if i in words else "n") for i, h in enumerate(heads)]
    body = [el("tr", [cell(i, c) for i, c in enumerate(row)]) for row in rows]
    inner = el("table", el("thead", el("tr", head)), el("tbody", body))
    if cards:
        return el("div", inner, class_="cards")
    return el("div", inner, class_="scroll", tabindex="0", role="region", aria_label="table")


def learner_table(run: Run, ledger: Ledger) -> Html:
    """Make one row per learner."""
    sheets = {str(sheet.get("name")): sheet for sheet in run.fleet}
    heads = [
        "learner", "class", "clock", "link", "worked", Html("&tau;<sub>k</sub>"),
        Html("mean &tau;<sub>k</sub>"),
        Html("d<sub>k</sub>"), Html("mean d<sub>k</sub>"), "of the model", "busy", "idle", "energy",
        Html("E<sub>k</sub>"), "limit",
    ]  # fmt: skip
    counted = bool(np.nansum(ledger.share) > 0)  # older records do not say
    rows = []
    for k, (name, group) in enumerate(zip(ledger.learners, ledger.class_of, strict=True)):
        sheet = sheets.get(name, {})
        there = int(np.isfinite(ledger.idle_s[k]).sum())
        used = int((np.isfinite(ledger.epochs[k]) & ~ledger.failed[k]).sum())
        rows.append([
            el("span", el("i", class_="chip"), name, class_=f"k{group.colour}"),
            group.name,
            measure(sheet.get("cpu_hz"), HERTZ, 3),
            measure(sheet.get("rate_bps"), BITRATE, 3),
            f"{used:,}/{there:,}",
            span(ledger.epochs[k]),
            fixed(mean(ledger.epochs[k]), 2),
            span(ledger.samples[k], 6),
            fixed(mean(ledger.samples[k]), 0),
            f"{100 * mean(ledger.share[k]):.3g} %" if counted else DASH,
            reading(mean(ledger.time_s[k]), SECONDS),
            reading(mean(ledger.idle_s[k]), SECONDS),
            reading(mean(ledger.energy_j[k]), JOULES),
            reading(mean(ledger.energy_limit_j[k]), JOULES),
            ledger.limited_by[k] or DASH,
        ])  # fmt: skip
    return table(heads, rows, words=(0, 1, 14))


def cycle_table(run: Run) -> Html:
    """Make one row per cycle."""
    goal = in_words(run.records[-1].objective)
    other = run.records[-1].objective != Objective.EPOCHS
    heads = [
        "cycle", "accuracy", "loss", goal, "bound", "gap", *(["mean epochs"] if other else []), "samples",
        *(["planned"] if run.real else []), "last report", time_spent(run)[0], "energy", "energy so far",
        "used", "left out", "busy", "lost", "status",
    ]  # fmt: skip
    accuracy, loss = metric(run, "accuracy"), metric(run, "loss")
    clock, joules = time_spent(run)[1], rising(run, "total_energy_j")
    rows = []
    for n, record in enumerate(run.records):
        outcomes = [row.outcome for row in record.learners]
        out = outcomes.count(Outcome.LEFT_OUT)
        busy = outcomes.count(Outcome.BUSY)
        used = outcomes.count(Outcome.USED)
        rows.append([
            f"{record.cycle:,}",
            percent(accuracy[n]),
            fixed(loss[n], 4),
            fixed(record.value, 2),
            fixed(record.bound, 2),
            percent(record.gap),
            *([fixed(record.mean_epochs, 2)] if other else []),
            fixed(record.total_samples, 0),
            reading(record.makespan_s, SECONDS),
            *([reading(record.waited_s, SECONDS)] if run.real else []),
            reading(clock[n], SECONDS),
            reading(record.energy_j, JOULES),
            reading(joules[n], JOULES),
            f"{used:,}",
            f"{out:,}",
            f"{busy:,}",
            f"{len(outcomes) - used - out - busy:,}",
            record.status,
        ])  # fmt: skip
    return table(heads, rows, words=(0, len(heads) - 1))


def absence_table(run: Run) -> Html:
    """Say who was left out or whose work was lost, when and why."""
    found: dict[tuple[str, str], dict[str, list[int]]] = {}
    for record in run.records:
        for name, row in named(record):
            if row.outcome not in (Outcome.USED, Outcome.BUSY):
                key = (str(row.outcome), str(row.reason or "no reason on record"))
                found.setdefault(key, {}).setdefault(name, []).append(record.cycle)
    if not found:
        return el("p", "Nobody was left out, and nobody's work was lost.", class_="lead good")
    rows = []
    most = sorted(found.items(), key=lambda item: -sum(map(len, item[1].values())))
    for (outcome, reason), who in most[:_MOST_REASONS]:
        cycles = sorted({cycle for times in who.values() for cycle in times})
        rows.append(
            [outcome, reason, f"{sum(map(len, who.values())):,}", some(list(who)), _clip(ranges(cycles))]
        )
    more = len(most) - _MOST_REASONS
    rest = el("p", f"And {plural(more, 'more kind')}.", class_="note") if more > 0 else None
    heads = ("what", "why", "times", "who", "cycles")
    return el("div", table(heads, rows, words=(0, 1, 3, 4)), rest, class_="absent")


def some(names: Sequence[str]) -> str:
    """Return the names, or the first few and how many more."""
    shown = ", ".join(names[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES:,} more"


def _clip(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 1].rstrip(', ')} \u2026"


def settings_table(values: Mapping[str, Any]) -> Html:
    """Make a table of names and values."""
    rows = [(key, written(value)) for key, value in values.items()]
    return el("div", table(("name", "value"), rows, words=(0, 1)), class_="pairs")


def written(value: object) -> str:
    """Write a value of the configuration as a user would."""
    if isinstance(value, str):
        return value or '""'
    if isinstance(value, float):
        return f"{finite(value):g}"
    return json.dumps(value)
