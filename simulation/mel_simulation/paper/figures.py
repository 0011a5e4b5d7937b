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

_TARGETS = (0.8, 0.9, 0.955, 0.973)
_TICKS = (0.3, 0.5, 0.7, 0.8, 0.85, 0.88, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.975, 0.98, 0.99)


def final_accuracy(rows: Sequence[Row]) -> Figure:
    """Draw accuracy after 6 and 12 cycles against T, a column per E (figure14label)."""
    energies = sorted({setting(row)[1] for row in rows})
    after = [n for n in (6, 12) if any(len(row["accuracy"]) >= n for row in rows)]
    figure, panels = style.canvas(len(after), len(energies), sharex=True, sharey="row")
    for line, cycle in zip(panels, after, strict=True):
        for axes, energy in zip(line, energies, strict=True):
            mine = [r for r in rows if setting(r)[1] == energy and len(r["accuracy"]) >= cycle]
            for (kind, c), group in _schemes(mine).items():
                times = by(group, lambda row: setting(row)[0])
                values = [[row["accuracy"][cycle - 1] for row in same] for same in times.values()]
                mean, low, high = (np.array([f(v) for v in values]) for f in (np.mean, min, max))
                place = np.array(list(times)) + 0.3 * (c - 2.5)  # so that the ranges can be told apart
                axes.errorbar(place, mean, [mean - low, high - mean], elinewidth=0.8, **_look(kind, c))
            axes.set_title(f"E = {energy:g} J, after {cycle} cycles")
            _scale(axes)
    _label(figure, panels, "cycle time T (s)", "test accuracy (%)")
    return figure


def progression(rows: Sequence[Row]) -> Figure:
    """Draw accuracy against cycles for T = 10 and 20, a column per E (figure07label)."""
    rows = [row for row in rows if setting(row)[0] in (10.0, 20.0)]
    times, energies = (sorted({setting(row)[i] for row in rows}) for i in (0, 1))
    figure, panels = style.canvas(len(times), len(energies), sharex=True, sharey=True)
    for line, time in zip(panels, times, strict=True):
        for axes, energy in zip(line, energies, strict=True):
            mine = [row for row in rows if setting(row) == (time, energy)]
            for (kind, c), group in _schemes(mine).items():
                curves = np.array([row["accuracy"] for row in group])
                x = np.arange(1, curves.shape[1] + 1)
                axes.plot(x, curves.mean(axis=0), **_look(kind, c))
                low, high = curves.min(axis=0), curves.max(axis=0)
                axes.fill_between(x, low, high, color=style.COLOURS[c], alpha=0.12, lw=0)
            axes.set_title(f"T = {time:g} s, E = {energy:g} J")
            _scale(axes)
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    _label(figure, panels, "global cycle", "test accuracy (%)")
    return figure


def updates_to_target(rows: Sequence[Row]) -> Figure:
    """Draw the updates to the two highest accuracies reached, per T and c (figure15label, figure16label)."""
    goals = [goal for goal in _TARGETS if any(max(row["accuracy"]) >= goal for row in rows)][-2:] or _TARGETS[
        :1
    ]
    energies = sorted({setting(row)[1] for row in rows})
    figure, panels = style.canvas(len(goals), len(energies), sharex=True, sharey=True)
    for line, goal in zip(panels, goals, strict=True):
        for axes, energy in zip(line, energies, strict=True):
            schemes = _schemes([row for row in rows if setting(row)[1] == energy])
            for (_, c), group in ((key, group) for key, group in schemes.items() if key[0] == "HA"):
                times = by(group, lambda row: setting(row)[0])
                need = [median([cycles_to(row, goal) for row in same]) for same in times.values()]
                place = np.array(list(times)) + 0.7 * (c - 2.5)
                shown = [n if np.isfinite(n) else np.nan for n in need]
                axes.bar(place, shown, 0.7, color=style.COLOURS[c], label=f"HA, c = {c}")
            axes.set_title(f"{100 * goal:g} %, E = {energy:g} J")
    _label(figure, panels, "cycle time T (s)", "updates")
    return figure


def gain_of_asynchrony(rows: Sequence[Row]) -> Figure:
    """Draw the accuracy that c > 0 gains over c = 0 after half of the cycles against tau*/floor(tau*)."""
    figure, panels = style.canvas(1, 1, height=2.8)
    axes = panels[0][0]
    aware = [row for row in rows if family(row) == "HA"]
    for group in by(aware, lambda row: (setting(row), row["config"]["seed"])).values():
        half = {cap(row): 100 * row["accuracy"][(len(row["accuracy"]) - 1) // 2] for row in group}
        for row in (row for row in group if cap(row) and 0 in half):
            look = _look("HA", cap(row)) | {"ls": "", "mfc": "none"}
            axes.plot(gain_ratio(row), half[cap(row)] - half[0], **look)
    axes.axhline(0, color=style.GREY, lw=0.8)
    _label(figure, panels, "τ* / ⌊τ*⌋ of the synchronous optimum", "accuracy gain (points)")
    return figure


def _schemes(rows: Sequence[Row]) -> dict[tuple[str, int], list[Row]]:
    return by(rows, lambda row: (family(row), cap(row)))


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


def _label(figure: Figure, panels: Any, x: str, y: str) -> None:
    """Label the outer axes, and put the legend above."""
    for axes in panels[-1]:
        axes.set_xlabel(x)
    for line in panels:
        line[0].set_ylabel(y)
    style.legend(figure)


FIGURES: tuple[Callable[[Sequence[Row]], Figure], ...] = (
    final_accuracy,
    progression,
    updates_to_target,
    gain_of_asynchrony,
)


def draw(results: Sequence[Row], out: Path) -> list[Path]:
    """Draw the figures as PNG, if there are cells of the paper; the same rows give the same bytes."""
    rows = trained(plain(results))
    if not rows:
        return []
    with style.style():
        return [style.save(make(rows), out, make.__name__) for make in FIGURES]
