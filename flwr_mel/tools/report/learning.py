"""Accuracy against rounds, time and energy, and what an accuracy costs: of one run, or of several set-ups."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import attrgetter, methodcaller
from typing import NamedTuple

import numpy as np

from flwr_mel._validate import FloatArray
from flwr_mel.tools.report.charts import COLOURS, Line, chart
from flwr_mel.tools.report.markup import DASH, Html, el, plural, short, table
from flwr_mel.tools.report.runs import Run

_LEVELS = (0.5, 0.8, 0.9, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99)

Read = Callable[[Run], FloatArray]


learned: Read = attrgetter("learned")
seconds: Read = methodcaller("column", "clock_s")
joules: Read = attrgetter("joules")
losses: Read = attrgetter("loss")
epochs: Read = methodcaller("column", "mean_epochs")
rounds: Read = methodcaller("column", "cycle")
work: Read = methodcaller("column", "work")


class Series(NamedTuple):
    """Runs that differ in their seeds alone, and what sets them apart from the others."""

    label: str
    runs: Sequence[Run]

    def table(self, read: Read) -> FloatArray:
        """Return what `read` gives for each run, a row per run; NaN beyond its last round."""
        rows = [read(run) for run in self.runs]
        most = max(map(len, rows))
        return np.array([np.append(row, np.full(most - len(row), math.nan)) for row in rows])

    def last(self, read: Read) -> FloatArray:
        """Return the last known value of each run; NaN where there is none."""
        return np.array([np.append(math.nan, v[np.isfinite(v)])[-1] for v in map(read, self.runs)])


def swatch(i: int, row: Series) -> Html:
    """Show the colour and the label of a series, and the name of its run if that is another."""
    name = row.runs[0].name if len(row.runs) == 1 else plural(len(row.runs), "run")
    detail = el("small", name) if name.replace("-", " ") != row.label else ""
    mark = el("i", class_="sw dash" if i >= COLOURS else "sw")
    return el("span", mark, el("b", row.label), detail, class_=f"tag k{i % COLOURS}")


def curves(rows: Sequence[Series], read: Read, along: Read) -> list[Line]:
    """Make a curve per series: the mean over its runs, with a band from the least to the most."""
    lines = []
    for i, row in enumerate(rows):
        y, x = (np.ma.masked_invalid(row.table(each)) for each in (read, along))
        low, middle, high, at = (part.filled(math.nan) for part in (y.min(0), y.mean(0), y.max(0), x.mean(0)))
        lines.append(Line(at, middle, i, (low, high) if len(row.runs) > 1 else None))
    return lines


def learning_charts(rows: Sequence[Series]) -> Html:
    """Draw the accuracy, or another metric, against time and energy or rounds, and the loss against time."""
    every = [run for row in rows for run in row.runs]
    metric, share = every[0].metric.capitalize(), every[0].is_share
    against = {"time": (seconds, "time, s"), "rounds": (rounds, "round")}
    if any(run.energy_known for run in every):
        against["energy"] = (joules, "energy, J")
    has_loss = share and any(np.isfinite(run.loss).any() for run in every)
    if has_loss and "energy" in against:
        del against["rounds"]  # three charts fill a row
    charts = [
        chart(f"{metric} against {name}", curves(rows, learned, along), label, share=share)
        for name, (along, label) in against.items()
    ]
    if has_loss:
        charts.append(chart("Loss against time", curves(rows, losses, seconds), "time, s"))
    return el("div", charts, class_=f"grid n{len(charts)}")


def cost_table(rows: Sequence[Series]) -> Html:
    """Make the table of rounds, time and energy until the highest accuracies that some run reached."""
    runs = [run for row in rows for run in row.runs]
    wanted = [level for level in _LEVELS if any(run.first(level) is not None for run in runs)][-3:]
    body = [[swatch(i, row), *(_cost(row, level) for level in wanted)] for i, row in enumerate(rows)]
    return table(["run", *(f"rounds to {100 * level:g}%" for level in wanted)], body) if wanted else Html()


def _cost(row: Series, level: float) -> Html:
    reached = sum(run.first(level) is not None for run in row.runs)
    if reached < len(row.runs):
        return el("span", DASH, el("small", f"{reached:,} of {len(row.runs):,}"))
    time_s, energy_j = cost_to(row, level)
    cycles = np.mean([rounds(run)[run.first(level)] for run in row.runs])
    spent = short(time_s, "s") + (f", {short(energy_j, 'J')}" if np.isfinite(energy_j) else "")
    return el("span", short(float(cycles)), el("small", spent))


def cost_to(row: Series, level: float) -> tuple[float, float]:
    """Return the mean seconds and joules until all runs reach an accuracy; NaN if energy is unknown."""
    at = [(run, run.first(level)) for run in row.runs]
    time_s, energy_j = (float(np.mean([read(run)[n] for run, n in at])) for read in (seconds, joules))
    return time_s, energy_j
