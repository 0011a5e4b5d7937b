"""The report on one run, section by section."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from flwr_mel._validate import FloatArray
from flwr_mel.allocation.objectives import Objective
from flwr_mel.records import CycleRecord
from flwr_mel.report.axis import Axis, cycles_axis, fit
from flwr_mel.report.charts import Line, Rule, chart
from flwr_mel.report.headline import goal_of, headline, target
from flwr_mel.report.ledger import Ledger, column, first_reached, metric, rising, time_spent
from flwr_mel.report.ledger import ledger as sort_records
from flwr_mel.report.limits import gantt, idle_sentence, limits_table
from flwr_mel.report.markup import Html, el
from flwr_mel.report.numerals import (
    DASH,
    JOULES,
    SECONDS,
    finite,
    measure,
    percent,
    plural,
    short,
    span,
    unit,
)
from flwr_mel.report.real import by_the_clock
from flwr_mel.report.run import Run
from flwr_mel.report.strips import MOST_ROWS, bands, class_key, cycles_per_cell, strips
from flwr_mel.report.tables import absence_table, cycle_table, learner_table, settings_table, table

#: Accuracies whose cost is told, apart from a run's own target.
_LEVELS = (0.90, 0.94, 0.95)
_SMALL = 150
_MOST_METRICS = 8


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
        section("One cycle", gantt(run, who)),
        *([section("By the server's clock", by_the_clock(run))] if run.real else []),
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


def _learning(run: Run) -> list[Html]:
    accuracy = metric(run, "accuracy")
    if not np.isfinite(accuracy).any():
        return [el("p", "No accuracy is on record.", class_="lead")]
    cycles = column(run, "cycle")
    wanted = target(run)
    rules = [Rule(wanted, f"target {percent(wanted, 0)}")] if not math.isnan(wanted) else []
    level = fit("accuracy", np.append(accuracy, wanted), share=True, most=1.0)
    low, high = percent(np.nanmin(accuracy)), percent(np.nanmax(accuracy))
    what = f"{plural(len(cycles), 'cycle')}, accuracy from {low} to {high}."
    last = percent(accuracy[np.isfinite(accuracy)][-1], 1)

    def draw(name: str, values: FloatArray, x: Axis, sign: str = "") -> Html:
        said = [f", {short(v)} {sign}" if sign else "" for v in values.tolist()]
        tips = [
            f"cycle {c:,.0f}{at}: {percent(a)}"
            for c, at, a in zip(cycles.tolist(), said, accuracy, strict=True)
        ]
        line = Line("accuracy", values, accuracy, tips, end=last)
        return chart(f"Accuracy against {name}", what, [line], x, level, rules=rules, height=230)

    figures = [draw("cycles", cycles, cycles_axis(cycles))]
    spent = ((*time_spent(run), SECONDS), ("energy", rising(run, "total_energy_j"), JOULES))
    for name, values, units in spent:
        divisor, sign = unit(float(values.max()), units)
        axis = fit(f"{name}, {sign}", np.append(values / divisor, 0.0), tight=True)
        figures.append(draw(name, values / divisor, axis, sign))
    return [el("div", figures, class_="grid three"), *_costs(run)]


def levels(runs: Sequence[Run]) -> list[float]:
    """Return the accuracies whose cost is told: those that some run reached, and the runs' targets."""
    wanted = {*_LEVELS, *(target(run) for run in runs)}
    targets = {target(run) for run in runs}
    reached = [x for x in wanted if any(first_reached(run, x) is not None for run in runs)]
    return sorted({*reached, *(x for x in targets if not math.isnan(x))})


def _costs(run: Run) -> list[Html]:
    """Say after how many cycles, seconds and joules an accuracy was reached."""
    rows: list[list[object]] = []
    for level in levels([run]):
        n = first_reached(run, level)
        name = f"{percent(level, 0)}, the target" if level == target(run) else percent(level, 0)
        costs = [DASH, DASH, DASH]
        if n is not None:
            clock, joules = time_spent(run)[1][n], rising(run, "total_energy_j")[n]
            costs = [f"{run.records[n].cycle:,}", measure(clock, SECONDS), measure(joules, JOULES)]
        rows.append([name, *costs])
    heads = ("to reach", "cycles", time_spent(run)[0], "energy")
    return [el("div", table(heads, rows), class_="costs")] if rows else []


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


def _counted(record: CycleRecord) -> int:
    """Return how many learners have an update in a cycle's average, however old."""
    again = {x.learner for x in record.echoes}
    return sum(
        finite(row.weight) + finite(row.moved_weight) > 0 or row.learner in again for row in record.learners
    )


def cycle_charts(run: Run) -> Html:
    """Draw epochs, time, energy, learners and every metric but the accuracy.

    Parameters
    ----------
    run : Run
        The run.
    """
    joules = column(run, "energy_j")
    divisor, sign = unit(float(np.nanmax(joules, initial=0.0)), JOULES)
    used = np.array([float(_counted(r)) for r in run.records])
    there = np.array([float(len(r.learners)) for r in run.records])
    goal = goal_of(run)
    figures = [_small(run, f"{goal} and bound", {"bound": column(run, "bound"), "got": column(run, "value")})]
    if run.records[-1].objective != Objective.EPOCHS:
        figures.append(_small(run, "Mean epochs", {"mean": column(run, "mean_epochs")}))
    figures += [
        _small(run, "Last report, s", _last_reports(run)),
        _small(run, f"Energy of all learners, {sign}", {"energy": joules / divisor}),
        _small(run, "Learners", {"there": there, "used": used}),
    ]
    keys = dict.fromkeys(str(key) for record in run.records for key in record.metrics or {})
    for key in [k for k in keys if k != "accuracy"][:_MOST_METRICS]:
        values = metric(run, key)
        if np.isfinite(values).any():
            figures.append(_small(run, key[:1].upper() + key[1:], {key: values}, zero=False))
    return el("div", figures, class_="grid four")


def _last_reports(run: Run) -> dict[str, FloatArray]:
    """Return T, what was planned and, of a run on real devices, when the last report came."""
    found = {"T": column(run, "cycle_time_s"), "planned" if run.real else "last": column(run, "makespan_s")}
    return found | ({"last": column(run, "waited_s")} if run.real else {})


def _small(run: Run, title: str, curves: dict[str, FloatArray], *, zero: bool = True) -> Html:
    """Draw one curve, or a reference (dashed) and a curve."""
    cycles = column(run, "cycle")
    lines = []
    for i, (label, values) in enumerate(curves.items()):
        reference = i < len(curves) - 1
        tips = [f"cycle {c:,.0f}: {label} {short(v)}" for c, v in zip(cycles.tolist(), values, strict=True)]
        known = values[np.isfinite(values)]
        end = short(known[-1], 3) if len(known) else ""
        lines.append(
            Line(label, cycles, values, tips, 7 if reference else 0, "dash" if reference else "", end=end)
        )
    what = "; ".join(f"{label}: {span(values)}" for label, values in curves.items())
    axis = fit(title, np.concatenate(list(curves.values())), zero=zero, ticks=4)
    return chart(title, f"Per cycle. {what}.", lines, cycles_axis(cycles), axis, height=_SMALL)
