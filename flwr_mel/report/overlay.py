"""The report on several runs: one curve each, one table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flwr_mel._validate import FloatArray
from flwr_mel.report.axis import Axis, cycles_axis, fit
from flwr_mel.report.charts import Line, chart
from flwr_mel.report.headline import cycle_notes, facts, notices, scheme_name, title
from flwr_mel.report.ledger import Ledger, column, first_reached, ledger, metric, rising
from flwr_mel.report.markup import Html, el
from flwr_mel.report.numerals import DASH, JOULES, SECONDS, mean, measure, percent, plural, short, unit
from flwr_mel.report.run import Run
from flwr_mel.report.single import LEVELS, folded, section
from flwr_mel.report.tables import difference_table, settings_table, table, written

_COLOURS = 7
_HEIGHT = 260
#: Good runs differ little in the end: beyond this accuracy they are drawn once more, closer.
_CLOSE = 0.9
#: Settings that tell runs apart, and how they are written.
_TELLING = {
    "staleness": "c=", "mode": "", "cycle-time": "T=", "energy": "E=", "dataset": "", "alpha": "alpha=",
    "solver": "", "handout": "", "learners": "K=", "seed": "seed ",
}  # fmt: skip
#: Longer names do not fit beside the curves.
_LONGEST = 30
_STYLES = ("", "dash", "dots", "long")


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One run among others."""

    label: str
    run: Run
    who: Ledger
    accuracy: FloatArray
    cycles: FloatArray
    clock_s: FloatArray
    energy_j: FloatArray


def labels(runs: Sequence[Run]) -> list[str]:
    """Name runs so that no two names are equal: by what sets them apart, or else by directory."""
    told = _telling(runs)
    if len(set(told)) == len(runs) > 1 and all(0 < len(name) <= _LONGEST for name in told):
        return told
    names = [run.name for run in runs]
    twice = Counter(names)
    names = [
        f"{run.path.resolve().parent.name}/{name}" if twice[name] > 1 else name
        for run, name in zip(runs, names, strict=True)
    ]
    seen: Counter[str] = Counter()
    result = []
    for name in names:
        seen[name] += 1
        result.append(f"{name} #{seen[name]}" if seen[name] > 1 else name)
    return result


def _telling(runs: Sequence[Run]) -> list[str]:
    """Name each run by its scheme and the settings in which runs differ; "" where the scheme is unknown."""
    names = [scheme_name(run) for run in runs]
    for key, sign in _TELLING.items():
        values = [run.setting(key) for run in runs]
        if len({str(value) for value in values}) == 1:
            continue
        for i, value in enumerate(values):
            synchronous = key == "staleness" and str(runs[i].setting("scheme")).endswith("sync")
            if names[i] and value is not None and not synchronous:
                names[i] += f" {sign}{written(value)}"
    return names


def entries(runs: Sequence[Run]) -> list[Entry]:
    """Read the curves of every run."""
    return [
        Entry(
            label,
            run,
            ledger(run),
            metric(run, "accuracy"),
            column(run, "cycle"),
            rising(run, "clock_s"),
            rising(run, "total_energy_j"),
        )
        for label, run in zip(labels(runs), runs, strict=True)
    ]


def overlay(runs: Sequence[Run]) -> list[Html]:
    """Return the sections of a comparison.

    Parameters
    ----------
    runs : sequence of Run
        Two or more.
    """
    rows = entries(runs)
    difference = difference_table([e.label for e in rows], [e.run.config for e in rows])
    parts = [
        _header(rows),
        section("Comparison", comparison(rows)),
        section("Learning", _learning(rows)),
        section("What differs", difference) if difference else None,
        section("Runs", [_details(entry) for entry in rows]),
    ]
    return [part for part in parts if part is not None]


def _remarks(rows: Sequence[Entry]) -> list[str]:
    """Return the runs' notices, those of several runs once."""
    found: dict[str, list[str]] = {}
    for e in rows:
        for text in e.run.notices:
            found.setdefault(text, []).append(e.label)
    return [text if len(of) == len(rows) else f"{', '.join(of)}: {text}" for text, of in found.items()]


def _header(rows: Sequence[Entry]) -> Html:
    known = [(float(np.nanmax(e.accuracy)), e.label) for e in rows if np.isfinite(e.accuracy).any()]
    best = max(known, default=None)
    said = f"Highest accuracy: {percent(best[0])}, {best[1]}." if best else "No accuracy is on record."
    return el(
        "header",
        el("p", "flwr-mel run report", class_="over"),
        el("h1", f"{len(rows):,} runs compared"),
        el("p", said, class_="lead"),
        notices(_remarks(rows)),
    )


def _swatch(i: int, entry: Entry) -> Html:
    style = _STYLES[i // _COLOURS % len(_STYLES)]
    name = el("span", entry.run.name, class_="dir") if entry.run.name != entry.label else None
    mark = el("i", class_=f"sw {style}".strip())
    return el("span", mark, entry.label, name, class_=f"tag k{i % _COLOURS}")


def comparison(rows: Sequence[Entry]) -> Html:
    """Make the table of the runs' results.

    Parameters
    ----------
    rows : sequence of Entry
        The runs.
    """
    heads = ["run", "final accuracy", "best", *(f"cycles to {percent(level, 0)}" for level in LEVELS)]
    heads += ["cycles", "virtual time", "energy", "mean epochs", "ended"]
    body = []
    for i, e in enumerate(rows):
        known = e.accuracy[np.isfinite(e.accuracy)]
        reached = [first_reached(e.run, level) for level in LEVELS]
        body.append([
            _swatch(i, e),
            el("b", percent(known[-1] if len(known) else math.nan)),
            percent(known.max() if len(known) else math.nan),
            *(DASH if n is None else f"{e.run.records[n].cycle:,}" for n in reached),
            f"{len(e.run.records):,}",
            measure(e.clock_s[-1], SECONDS),
            measure(e.energy_j[-1], JOULES),
            short(mean(column(e.run, "mean_epochs")), 3),
            e.run.ending,
        ])  # fmt: skip
    return table(heads, body, words=(0, 10))


def _lines(rows: Sequence[Entry], xs: Sequence[FloatArray], ys: Sequence[FloatArray], say: str) -> list[Line]:
    return [
        Line(
            e.label,
            x,
            y,
            [
                f"{e.label}, cycle {c:,.0f}: {percent(v) if say == 'percent' else short(v)}"
                for c, v in zip(e.cycles.tolist(), y.tolist(), strict=True)
            ],
            i % _COLOURS,
            _STYLES[i // _COLOURS % len(_STYLES)],
        )
        for i, (e, x, y) in enumerate(zip(rows, xs, ys, strict=True))
    ]


def _learning(rows: Sequence[Entry]) -> Html:
    every = np.concatenate([e.accuracy for e in rows])
    if not np.isfinite(every).any():
        return el("div", el("p", "No accuracy is on record.", class_="lead"), _epochs(rows))
    level = fit("accuracy", every, share=True, most=1.0)
    what = f"Accuracy of {plural(len(rows), 'run')}, up to {percent(np.nanmax(every))}."

    def draw(title: str, xs: Sequence[FloatArray], axis: Axis, floor: float = 0.0) -> Html:
        ys = [np.where(e.accuracy >= floor, e.accuracy, math.nan) for e in rows]
        y = fit("accuracy", np.append(np.concatenate(ys), floor), share=True, most=1.0) if floor else level
        return chart(title, what, _lines(rows, xs, ys, "percent"), axis, y, height=_HEIGHT, wide=True)

    time, second = unit(max(float(e.clock_s[-1]) for e in rows), SECONDS)
    power, joule = unit(max(float(e.energy_j[-1]) for e in rows), JOULES)
    clocks, joules = [e.clock_s / time for e in rows], [e.energy_j / power for e in rows]
    cycles = [e.cycles for e in rows]
    x, t = cycles_axis(np.concatenate(cycles)), _from_zero(f"virtual time, {second}", clocks)
    figures = [
        draw("Accuracy against cycles", cycles, x),
        draw("Accuracy against virtual time", clocks, t),
        draw("Accuracy against energy", joules, _from_zero(f"energy of all learners, {joule}", joules)),
        _epochs(rows),
    ]
    if float(np.nanmax(every)) > _CLOSE + 0.02 and float(np.nanmin(every)) < _CLOSE:
        above = f"above {percent(_CLOSE, 0)}"
        figures.append(draw(f"Accuracy against cycles, {above}", cycles, x, _CLOSE))
        figures.append(draw(f"Accuracy against virtual time, {above}", clocks, t, _CLOSE))
    return el("div", figures, class_="grid two")


def _from_zero(label: str, values: Sequence[FloatArray]) -> Axis:
    return fit(label, np.append(np.concatenate(values), 0.0), tight=True)


def _epochs(rows: Sequence[Entry]) -> Html:
    values = [column(e.run, "mean_epochs") for e in rows]
    cycles = [e.cycles for e in rows]
    lines = _lines(rows, cycles, values, "number")
    axis = fit("epochs", np.concatenate(values), zero=True)
    what = f"Mean epochs per learner and cycle of {plural(len(rows), 'run')}."
    x = cycles_axis(np.concatenate(cycles))
    return chart("Mean epochs per cycle", what, lines, x, axis, height=_HEIGHT, wide=True)


def _details(entry: Entry) -> Html:
    notes = notices(cycle_notes(entry.run))
    config = settings_table(entry.run.config) if entry.run.config else el("p", "No configuration on record.")
    about = el("ul", facts(entry.run, entry.who), class_="facts")
    return folded(f"{entry.label}: {title(entry.run)}", about, notes, config)
