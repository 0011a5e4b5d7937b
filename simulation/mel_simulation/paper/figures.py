"""The figures of docs/REPRODUCTION.md, from results alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from mel_simulation.paper import style
from mel_simulation.paper.rows import by, cap, cycles_to, family, gain_ratio, median, plain, setting, trained
from mel_simulation.sweep.results import Row

_PERCENT = (80.0, 90.0, 95.5, 97.3)
_TICKS = (0.3, 0.5, 0.7, 0.8, 0.85, 0.88, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.975, 0.98, 0.99)


def final_accuracy(rows: Sequence[Row]) -> Figure:
    """Draw accuracy after 6 and 12 cycles against T (figure14label)."""
    longest = max(len(row["accuracy"]) for row in rows)

    def draw(axes: Axes, cycle: int, kind: str, c: int, group: Sequence[Row]) -> None:
        times = by([row for row in group if len(row["accuracy"]) >= cycle], lambda row: setting(row)[0])
        values = [[row["accuracy"][cycle - 1] for row in same] for same in times.values()]
        mean, low, high = (np.array([f(v) for v in values]) for f in (np.mean, min, max))
        place = np.array(list(times)) + 0.3 * (c - 2.5)  # so that the ranges can be told apart
        axes.errorbar(place, mean, [mean - low, high - mean], elinewidth=0.8, **_look(kind, c))
        _scale(axes)

    cycles = sorted({min(n, longest) for n in (6, 12)})
    return _panels(rows, cycles, "after {} cycles", draw, "cycle time T (s)", "test accuracy (%)")


def progression(rows: Sequence[Row]) -> Figure:
    """Draw accuracy against cycles for T = 10 and 20 (figure07label)."""
    rows = [row for row in rows if setting(row)[0] in (10.0, 20.0)]

    def draw(axes: Axes, time_s: float, kind: str, c: int, group: Sequence[Row]) -> None:
        curves = np.array([row["accuracy"] for row in group if setting(row)[0] == time_s])
        if len(curves):
            x = np.arange(1, curves.shape[1] + 1)
            axes.plot(x, curves.mean(axis=0), **_look(kind, c))
            low, high = curves.min(axis=0), curves.max(axis=0)
            axes.fill_between(x, low, high, color=style.COLOURS[c], alpha=0.12, lw=0)
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            _scale(axes)

    times = sorted({setting(row)[0] for row in rows})
    return _panels(rows, times, "T = {:g} s", draw, "global cycle", "test accuracy (%)")


def updates_to_target(rows: Sequence[Row]) -> Figure:
    """Draw the updates to the two highest accuracies reached (figure15label, figure16label)."""
    best = max(max(row["accuracy"]) for row in rows)

    def draw(axes: Axes, percent: float, kind: str, c: int, group: Sequence[Row]) -> None:
        if kind == "HA":
            times = by(group, lambda row: setting(row)[0])
            need = [median([cycles_to(row, percent) for row in same]) for same in times.values()]
            place = np.array(list(times)) + 0.7 * (c - 2.5)
            shown = np.where(np.isfinite(need), need, np.nan)
            axes.bar(place, shown, 0.7, color=style.COLOURS[c], label=f"HA, c = {c}")

    goals = [percent for percent in _PERCENT if percent <= max(100 * best, _PERCENT[0])][-2:]
    return _panels(rows, goals, "{:g} %", draw, "cycle time T (s)", "updates")


def gain_of_asynchrony(rows: Sequence[Row]) -> Figure:
    """Draw the accuracy that c > 0 gains over c = 0 after half of the cycles against tau*/floor(tau*)."""
    figure, ((axes,),) = style.canvas(1, 1, height=2.8)
    aware = [row for row in rows if family(row) == "HA"]
    for group in by(aware, lambda row: (setting(row), row["config"]["seed"])).values():
        half = {cap(row): 100 * row["accuracy"][(len(row["accuracy"]) - 1) // 2] for row in group}
        for row in (row for row in group if cap(row) and 0 in half):
            look = _look("HA", cap(row)) | {"ls": "", "mfc": "none"}
            axes.plot(gain_ratio(row), half[cap(row)] - half[0], **look)
    axes.axhline(0, color=style.GREY, lw=0.8)
    axes.set_xlabel("τ* / ⌊τ*⌋ of the synchronous optimum")
    axes.set_ylabel("accuracy gain (points)")
    style.legend(figure)
    return figure


def _panels(
    rows: Sequence[Row], values: Sequence[Any], title: str, draw: Callable[..., None], x: str, y: str
) -> Figure:
    """Draw a row of panels per value and a column per E, scheme by scheme."""
    energies = by(rows, lambda row: setting(row)[1])
    figure, panels = style.canvas(len(values), len(energies), sharex=True, sharey="row")
    for line, value in zip(panels, values, strict=True):
        for axes, (energy, mine) in zip(line, energies.items(), strict=True):
            axes.set_title(f"{title.format(value)}, E = {energy:g} J")
            for (kind, c), group in by(mine, lambda row: (family(row), cap(row))).items():
                draw(axes, value, kind, c, group)
        line[0].set_ylabel(y)
    for axes in panels[-1]:
        axes.set_xlabel(x)
    style.legend(figure)
    return figure


def _look(kind: str, c: int) -> dict[str, Any]:
    """Colour and marker show c; HA is solid and filled, HU dashed and open."""
    look = {"color": style.COLOURS[c], "marker": style.MARKERS[c], "label": f"{kind}, c = {c}"}
    return look if kind == "HA" else {**look, "ls": "--", "lw": 0.9, "mfc": "white"}


def _scale(axes: Axes) -> None:
    """Scale the y axis by the logarithm of the odds: 90 % and 97 % are both readable."""
    axes.set_yscale("logit")
    axes.yaxis.set_major_locator(FixedLocator(_TICKS))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g}"))


FIGURES = (final_accuracy, progression, updates_to_target, gain_of_asynchrony)


def draw(results: Sequence[Row], out: Path) -> list[Path]:
    """Draw the figures as PNG, if there are cells of the paper; the same rows give the same bytes."""
    rows = trained(plain(results))
    if not rows:
        return []
    with style.style():
        return [style.save(make(rows), out, make.__name__) for make in FIGURES]
