"""The report on several runs: a curve and a line of each table per set-up, a band over its seeds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from flwr_mel._validate import FloatArray
from flwr_mel.report.axis import Axis, cycles_axis, fit
from flwr_mel.report.charts import Line, chart, ranged
from flwr_mel.report.headline import cycle_notes, facts, notices, title
from flwr_mel.report.ledger import column, ledger, metric, rising
from flwr_mel.report.markup import Html, el
from flwr_mel.report.numerals import JOULES, SECONDS, Units, mean, measure, percent, plural, short, unit
from flwr_mel.report.run import Run
from flwr_mel.report.series import Series, cost_of, differing, labels, series
from flwr_mel.report.single import folded, levels, section
from flwr_mel.report.tables import settings_table, table

_COLOURS = 7
_HEIGHT = 260
#: Good runs differ little in the end: beyond this accuracy they are drawn once more, closer.
_CLOSE = 0.9
_STYLES = ("", "dash", "dots", "long")


def overlay(runs: Sequence[Run]) -> list[Html]:
    """Return the sections of a comparison.

    Parameters
    ----------
    runs : sequence of Run
        Two or more.
    """
    rows = series(runs)
    keys = differing(rows)
    parts = [
        _header(runs, rows),
        section("Comparison", comparison(rows)),
        section("What an accuracy costs", costs(rows)) if levels(runs) else None,
        section("Learning", _learning(rows)),
        section("What differs", _differences(rows, keys)) if keys else None,
        section("Runs", [_details(run, name) for run, name in zip(runs, labels(runs), strict=True)]),
    ]
    return [part for part in parts if part is not None]


def _remarks(runs: Sequence[Run]) -> list[str]:
    """Return the runs' notices, those of several runs once."""
    found: dict[str, list[str]] = {}
    for run, name in zip(runs, labels(runs), strict=True):
        for text in run.notices:
            found.setdefault(text, []).append(name)
    return [text if len(of) == len(runs) else f"{', '.join(of)}: {text}" for text, of in found.items()]


def _header(runs: Sequence[Run], rows: Sequence[Series]) -> Html:
    finals = [(mean(row.values(_final)), row.label) for row in rows]
    best = max((pair for pair in finals if not math.isnan(pair[0])), default=None)
    said = "No accuracy is on record."
    if best:
        said = f"Highest accuracy at the end: {percent(best[0])}, {best[1]}."
    if len(rows) < len(runs):
        said += " Runs that differ in their seeds alone are put together."
    return el(
        "header",
        el("p", "flwr-mel run report", class_="over"),
        el("h1", f"{len(runs):,} runs compared"),
        el("p", said, class_="lead"),
        notices(_remarks(runs)),
    )


def _swatch(i: int, row: Series) -> Html:
    style = _STYLES[i // _COLOURS % len(_STYLES)]
    mark = el("i", class_=f"sw {style}".strip())
    some = row.runs[0].name if len(row.runs) == 1 else plural(len(row.runs), "run")
    name = el("span", some, class_="dir") if some != row.label else None
    return el("span", mark, el("b", row.label), name, class_=f"tag k{i % _COLOURS}")


def _final(run: Run) -> float:
    known = metric(run, "accuracy")
    known = known[np.isfinite(known)]
    return float(known[-1]) if len(known) else math.nan


def _best(run: Run) -> float:
    known = metric(run, "accuracy")
    return float(np.nanmax(known)) if np.isfinite(known).any() else math.nan


def _spread(values: FloatArray) -> Html | str:
    """Write a mean of accuracies with the range over runs."""
    known = values[np.isfinite(values)]
    if len(known) < 2:
        return percent(mean(values))
    span = f"{percent(known.min())} to {percent(known.max())}"
    return el("span", percent(float(known.mean())), el("span", span, class_="dir"))


def comparison(rows: Sequence[Series]) -> Html:
    """Make the table of the results, a line per series.

    Parameters
    ----------
    rows : sequence of Series
        The runs.
    """
    heads = ["run", "accuracy at the end", "best", "cycles", "virtual time", "energy", "mean epochs", "ended"]
    body = []
    for i, row in enumerate(rows):
        endings = Counter(run.ending for run in row.runs)
        body.append([
            _swatch(i, row),
            el("b", _spread(row.values(_final))),
            percent(mean(row.values(_best))),
            short(mean(row.values(lambda run: float(len(run.records)))), 3),
            measure(mean(row.values(lambda run: float(rising(run, "clock_s")[-1]))), SECONDS),
            measure(mean(row.values(lambda run: float(rising(run, "total_energy_j")[-1]))), JOULES),
            short(mean(row.values(lambda run: mean(column(run, "mean_epochs")))), 3),
            ", ".join(text if n == len(row.runs) else f"{n:,}: {text}" for text, n in endings.items()),
        ])  # fmt: skip
    return table(heads, body, words=(0, 7), cards=True)


def costs(rows: Sequence[Series]) -> Html:
    """Make the table of cycles, time and energy until an accuracy is reached, a line per series.

    Parameters
    ----------
    rows : sequence of Series
        The runs.
    """
    wanted = levels([run for row in rows for run in row.runs])
    body = []
    for i, row in enumerate(rows):
        said = [cost_of(row, level) for level in wanted]
        cells = [el("span", cycles, el("span", spent, class_="dir")) for cycles, spent in said]
        body.append([_swatch(i, row), *cells])
    heads = ["run", *(f"to {percent(level, 0)}" for level in wanted)]
    many = any(len(row.runs) > 1 for row in rows)
    hint = "Means over runs. " if many else ""
    note = el("p", f"{hint}Virtual time and energy of all learners. A dash: not reached.", class_="note")
    return el("div", table(heads, body, cards=True), note)


def _differences(rows: Sequence[Series], keys: Sequence[str]) -> Html:
    body = [[_swatch(i, row), *(row.setting(key) for key in keys)] for i, row in enumerate(rows)]
    return table(["run", *keys], body, words=tuple(range(len(keys) + 1)), cards=True)


def _lines(
    rows: Sequence[Series],
    along: Callable[[Run], FloatArray],
    read: Callable[[Run], FloatArray],
    say: Callable[[float], str],
) -> list[Line]:
    """Make a curve per series: the mean over its runs, with a band from the least to the most."""
    made = []
    for i, row in enumerate(rows):
        low, middle, high = ranged(row.table(read))
        many = len(row.runs) > 1
        tips = [
            f"{row.label}, cycle {c:,.0f}: {say(m)}" + (f" ({say(a)} to {say(z)})" if many else "")
            for c, a, m, z in zip(row.cycles.tolist(), low, middle, high, strict=True)
        ]
        style = _STYLES[i // _COLOURS % len(_STYLES)]
        band = (low, high) if many else None
        made.append(Line(row.label, ranged(row.table(along))[1], middle, tips, i % _COLOURS, style, band))
    return made


def _learning(rows: Sequence[Series]) -> list[Html]:
    key = el("p", [_swatch(i, row) for i, row in enumerate(rows)], class_="key runs")
    every = np.concatenate([row.accuracy.ravel() for row in rows])
    cycles = cycles_axis(np.concatenate([row.cycles for row in rows]))
    epochs = _epochs(rows, cycles)
    if not np.isfinite(every).any():
        return [el("p", "No accuracy is on record.", class_="lead"), key, epochs]
    clock, clock_axis = _spent(rows, "clock_s", "virtual time", SECONDS)
    joules, joules_axis = _spent(rows, "total_energy_j", "energy of all learners", JOULES)
    what = f"Accuracy of {plural(len(rows), 'set-up')}, up to {percent(np.nanmax(every))}."

    def draw(title: str, along: Callable[[Run], FloatArray], x: Axis, floor: float = 0.0) -> Html:
        def read(run: Run) -> FloatArray:
            values = metric(run, "accuracy")
            return np.where(values >= floor, values, math.nan)

        shown = np.append(every[every >= floor], floor or math.nan)
        y = fit("accuracy", shown, share=True, most=1.0)
        return chart(title, what, _lines(rows, along, read, percent), x, y, height=_HEIGHT, ends=False)

    axes = (
        ("cycles", lambda run: column(run, "cycle"), cycles),
        ("virtual time", clock, clock_axis),
        ("energy", joules, joules_axis),
    )
    figures = [draw(f"Accuracy against {name}", along, x) for name, along, x in axes]
    figures.append(epochs)
    if float(np.nanmax(every)) > _CLOSE + 0.02 and float(np.nanmin(every)) < _CLOSE:
        above = f"above {percent(_CLOSE, 0)}"
        figures += [
            draw(f"Accuracy against {name}, {above}", along, x, _CLOSE) for name, along, x in axes[:2]
        ]
    return [key, el("div", figures, class_="grid two")]


def _spent(
    rows: Sequence[Series], field: str, name: str, units: Units
) -> tuple[Callable[[Run], FloatArray], Axis]:
    """Return a counter of the records in a fitting unit, and an axis for it that starts at zero."""
    ends = np.concatenate([row.values(lambda run: float(rising(run, field)[-1])) for row in rows])
    divisor, sign = unit(float(ends.max()), units)
    axis = fit(f"{name}, {sign}", np.append(ends / divisor, 0.0), tight=True)
    return (lambda run: rising(run, field) / divisor), axis


def _epochs(rows: Sequence[Series], x: Axis) -> Html:
    lines = _lines(rows, lambda run: column(run, "cycle"), lambda run: column(run, "mean_epochs"), short)
    axis = fit("epochs", np.concatenate([line.y for line in lines]), zero=True)
    what = f"Mean epochs per learner and cycle of {plural(len(rows), 'set-up')}."
    return chart("Mean epochs per cycle", what, lines, x, axis, height=_HEIGHT, ends=False)


def _details(run: Run, name: str) -> Html:
    notes = notices(cycle_notes(run))
    config = settings_table(run.config) if run.config else el("p", "No configuration on record.")
    about = el("ul", facts(run, ledger(run)), class_="facts")
    return folded(f"{name}: {title(run)}, {run.name}", about, notes, config)
