"""The report on one run, section by section."""

from __future__ import annotations

import math

import numpy as np

from flwr_mel.report.axis import cycles_axis, fit
from flwr_mel.report.charts import Line, Rule, chart
from flwr_mel.report.cycles import cycle_charts
from flwr_mel.report.headline import headline, target
from flwr_mel.report.ledger import Ledger, column, first_reached, metric, rising
from flwr_mel.report.ledger import ledger as sort_records
from flwr_mel.report.limits import idle_sentence, limits_table
from flwr_mel.report.markup import Html, el
from flwr_mel.report.numerals import SECONDS, percent, plural, short, unit
from flwr_mel.report.run import Run
from flwr_mel.report.strips import MOST_ROWS, bands, class_key, cycles_per_cell, strips
from flwr_mel.report.tables import absence_table, cycle_table, learner_table, settings_table

LEVELS = (0.90, 0.94, 0.95)


def section(title: object, *parts: object) -> Html:
    """Make a section with a heading."""
    return el("section", el("h2", title), parts)


def folded(title: str, *parts: object) -> Html:
    """Make a section that opens on a click."""
    return el("details", el("summary", title), parts)


def single(run: Run) -> list[Html]:
    """Return the sections of one run's report.

    Parameters
    ----------
    run : Run
        At least one record.
    """
    who = sort_records(run)
    return [
        headline(run, who),
        section("Learning", _learning(run)),
        section("Work given", _work(run, who)),
        section("Limits and idle time", _limits(who)),
        section("Left out and lost", absence_table(run)),
        section("Cycle by cycle", cycle_charts(run)),
        section("Tables", _tables(run, who)),
    ]


def _work(run: Run, who: Ledger) -> list[Html]:
    if not who.learners:
        return [el("p", "No learner was there in any cycle.", class_="lead")]
    many = len(who.learners) > MOST_ROWS
    draw = bands if many else strips
    cycles = [record.cycle for record in run.records]
    figures = [
        draw(Html("Epochs &tau;<sub>k</sub>"), "epochs", who.epochs, who, cycles),
        draw(Html("Samples d<sub>k</sub>"), "samples", who.samples, who, cycles),
    ]
    hint = el("p", _work_hint(many, len(cycles)), class_="lead")
    return [class_key(who), hint, el("div", figures, class_=None if many else "grid two")]


def _limits(who: Ledger) -> list[Html]:
    if not np.isfinite(who.epochs).any():
        return [idle_sentence(who)]
    return [idle_sentence(who), limits_table(who), _limits_hint(len(who.learners) > MOST_ROWS)]


def _work_hint(many: bool, cycles: int) -> str:
    if many:
        return "The line is the mean of the class, the band runs from the least to the most."
    per = cycles_per_cell(cycles)
    cell = "one cell per cycle" if per == 1 else f"one cell per {per:,} cycles with their mean"
    return (
        f"One row per learner, {cell}; the stronger the colour, the more. A short dash: no work; a cross: "
        "work that was asked for and not used."
    )


def _limits_hint(many: bool) -> Html:
    whom = "the class's learners and all cycles" if many else "all cycles with work"
    return el(
        "p",
        f"Bar: mean over {whom}; thin line: least to most; upright mark: the limit; hatched: idle within the "
        "cycle time. Percentages are rounded down. All by the cost model.",
        class_="note",
    )


def _learning(run: Run) -> Html:
    accuracy = metric(run, "accuracy")
    cycles, clock = column(run, "cycle"), rising(run, "clock_s")
    if not np.isfinite(accuracy).any():
        return el("p", "No accuracy is on record.", class_="lead")
    wanted = target(run)
    rules = [Rule(wanted, f"target {percent(wanted, 0)}")] if not math.isnan(wanted) else []
    level = fit("accuracy", np.append(accuracy, wanted), share=True, most=1.0)
    divisor, sign = unit(float(clock.max()), SECONDS)
    tips = [
        f"cycle {c:,.0f}, {short(t / divisor)} {sign}: {percent(a)}"
        for c, t, a in zip(cycles.tolist(), clock.tolist(), accuracy.tolist(), strict=True)
    ]
    last = percent(accuracy[np.isfinite(accuracy)][-1], 1)
    times = fit(f"virtual time, {sign}", np.append(clock / divisor, 0.0), tight=True)
    low, high = percent(np.nanmin(accuracy)), percent(np.nanmax(accuracy))
    what = f"{plural(len(cycles), 'cycle')}, accuracy from {low} to {high}."
    by_cycle = Line("accuracy", cycles, accuracy, tips, end=last)
    by_time = Line("accuracy", clock / divisor, accuracy, tips, end=last)
    return el(
        "div",
        chart(
            "Accuracy against cycles",
            what,
            [by_cycle],
            cycles_axis(cycles),
            level,
            rules=rules,
            note=_levels(run),
            height=260,
        ),
        chart("Accuracy against virtual time", what, [by_time], times, level, rules=rules, height=260),
        class_="grid two",
    )


def _levels(run: Run) -> str:
    found = [(level, first_reached(run, level)) for level in LEVELS]
    parts = [f"{percent(level, 0)} in cycle {run.records[n].cycle:,}" for level, n in found if n is not None]
    return ", ".join(parts)


def _tables(run: Run, who: Ledger) -> list[Html]:
    parts = [
        folded(f"Learners ({len(who.learners):,})", learner_table(run, who)) if who.learners else None,
        folded(f"Cycles ({len(run.records):,})", cycle_table(run)),
        folded("Configuration", settings_table(run.config)) if run.config else None,
        folded("Versions", settings_table(run.versions)) if run.versions else None,
        folded("Summary", settings_table(run.summary)) if run.summary else None,
    ]
    missing = None if run.config else el("p", "No configuration is on record (config.json).", class_="note")
    return [part for part in (*parts, missing) if part is not None]
