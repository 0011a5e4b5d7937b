"""What each cycle achieved and cost, in small charts."""

from __future__ import annotations

import numpy as np

from flwr_mel._validate import FloatArray
from flwr_mel.report.axis import cycles_axis, fit
from flwr_mel.report.charts import Line, chart
from flwr_mel.report.ledger import column, metric
from flwr_mel.report.markup import Html, el
from flwr_mel.report.numerals import JOULES, finite, short, span, unit
from flwr_mel.report.run import Run

_HEIGHT = 150
_MOST_METRICS = 8


def cycle_charts(run: Run) -> Html:
    """Draw epochs, time, energy, learners and every metric but the accuracy.

    Parameters
    ----------
    run : Run
        The run.
    """
    joules = column(run, "energy_j")
    divisor, sign = unit(float(np.nanmax(joules, initial=0.0)), JOULES)
    used = np.array([float(sum(finite(row.weight) > 0 for row in r.learners)) for r in run.records])
    there = np.array([float(len(r.learners)) for r in run.records])
    figures = [
        _small(
            run, "Mean epochs and bound", {"bound": column(run, "bound"), "mean": column(run, "mean_epochs")}
        ),
        _small(run, "Last report, s", {"T": column(run, "cycle_time_s"), "last": column(run, "makespan_s")}),
        _small(run, f"Energy of all learners, {sign}", {"energy": joules / divisor}),
        _small(run, "Learners", {"there": there, "used": used}),
    ]
    keys = dict.fromkeys(str(key) for record in run.records for key in record.metrics or {})
    for key in [k for k in keys if k != "accuracy"][:_MOST_METRICS]:
        values = metric(run, key)
        if np.isfinite(values).any():
            figures.append(_small(run, key[:1].upper() + key[1:], {key: values}, zero=False))
    return el("div", figures, class_="grid four")


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
    return chart(title, f"Per cycle. {what}.", lines, cycles_axis(cycles), axis, height=_HEIGHT)
