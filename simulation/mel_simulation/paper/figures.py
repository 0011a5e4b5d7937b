"""The figures of docs/REPRODUCTION.md and README, from results alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from mel_simulation.paper import style
from mel_simulation.paper.rows import (
    by,
    cap,
    cycles_to,
    family,
    gain_ratio,
    median,
    plain,
    setting,
    trained,
)
from mel_simulation.sweep.results import Row

_TARGETS = (0.955, 0.973)


def _look(kind: str, c: int) -> dict[str, Any]:
    """Colour and marker show c; HA is solid and filled, HU dashed and open."""
    look: dict[str, Any] = {"color": style.COLOURS[c], "marker": style.MARKERS[c]}
    return {**look, "ls": "-"} if kind == "HA" else {**look, "ls": (0, (3, 2)), "mfc": "white", "lw": 0.9}


def _schemes(rows: Sequence[Row]) -> dict[tuple[str, int], list[Row]]:
    return by(rows, lambda r: (family(r), cap(r)))


def _scheme_legend(figure: Figure, rows: Sequence[Row], title: str) -> None:
    names = [(kind, c, f"{kind}-{'Asyn' if c else 'Sync'} c={c}") for kind, c in _schemes(rows)]
    style.legend(figure, [style.entry(name, **_look(kind, c)) for kind, c, name in names], title, 1.25)


def _about(rows: Sequence[Row]) -> str:
    """Return what a figure was made from."""
    seeds = len({row["config"]["seed"] for row in rows})
    names = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
    data = ", ".join(sorted({names[row["config"]["dataset"]] for row in rows}))
    return (
        f"{data}, K = {rows[0]['config']['learners']}, up to {seeds} seeds (placements). HA: batches follow "
        "the devices, HU: equal batches. Asyn: epochs differ by up to c. T: seconds per cycle, E: joules per "
        "learner and cycle."
    )


def final_accuracy(rows: Sequence[Row]) -> Figure:
    """Draw accuracy after 6 and 12 cycles against T, a column per E (figure14label)."""
    energies = sorted({setting(row)[1] for row in rows})
    after = [n for n in (6, 12) if any(len(row["accuracy"]) >= n for row in rows)]
    figure, panels = style.canvas(len(after), len(energies), sharey="row", sharex=True)
    for line, cycle in zip(panels, after, strict=True):
        values: list[float] = []
        for axes, energy in zip(line, energies, strict=True):
            mine = [r for r in rows if setting(r)[1] == energy and len(r["accuracy"]) >= cycle]
            values += _against_time(axes, mine, cycle)
            axes.set_title(f"E = {energy:g} J, after {cycle} cycles")
        for axes in line:
            style.percent_axis(axes, values)
        line[0].set_ylabel("test accuracy (%)")
    for axes in panels[-1]:
        axes.set_xlabel("cycle time T (s)")
        axes.set_xticks(sorted({setting(row)[0] for row in rows}))
    _scheme_legend(figure, rows, "How accurate is the model after 6 and after 12 cycles?")
    missing = "A missing point: no allocation, or not run. "
    style.footer(figure, f"Mean and range over seeds; scale: logarithm of the error. {missing}{_about(rows)}")
    return figure


def _against_time(axes: Axes, rows: Sequence[Row], cycle: int) -> list[float]:
    seen: list[float] = []
    groups = _schemes(rows)
    for place, ((kind, c), group) in enumerate(groups.items()):
        points = []
        for time, same in by(group, lambda r: setting(r)[0]).items():
            values = np.array([row["accuracy"][cycle - 1] for row in same])
            points.append((time, values.mean(), values.min(), values.max()))
        t, mean, low, high = np.array(points).T
        t = t + 0.25 * (place - (len(groups) - 1) / 2)  # so that the ranges can be told apart
        axes.errorbar(t, mean, [mean - low, high - mean], capsize=1.5, elinewidth=0.8, **_look(kind, c))
        seen += [*low, *high]
    return seen


def progression(rows: Sequence[Row]) -> Figure:
    """Draw accuracy against cycles for T = 10 and 20, a column per E (figure07label)."""
    rows = [row for row in rows if setting(row)[0] in (10.0, 20.0)]
    times, energies = (sorted({setting(row)[i] for row in rows}) for i in (0, 1))
    figure, panels = style.canvas(len(times), len(energies), sharey=True, sharex=True)
    for line, time in zip(panels, times, strict=True):
        for axes, energy in zip(line, energies, strict=True):
            mine = [row for row in rows if setting(row) == (time, energy)]
            for (kind, c), group in _schemes(mine).items():
                length = min(len(row["accuracy"]) for row in group)
                curves = np.array([row["accuracy"][:length] for row in group])
                x = np.arange(1, length + 1)
                axes.plot(x, curves.mean(axis=0), **_look(kind, c))
                low, high = curves.min(axis=0), curves.max(axis=0)
                axes.fill_between(x, low, high, color=style.COLOURS[c], alpha=0.12, lw=0)
            axes.set_title(f"T = {time:g} s, E = {energy:g} J")
            style.percent_axis(axes, [0.7, max(a for row in rows for a in row["accuracy"])])
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        line[0].set_ylabel("test accuracy (%)")
    for axes in panels[-1]:
        axes.set_xlabel("global cycle")
    _scheme_legend(figure, rows, "How accuracy grows from cycle to cycle")
    style.footer(figure, f"Mean and range over seeds; scale: logarithm of the error. {_about(rows)}")
    return figure


def updates_to_target(rows: Sequence[Row]) -> Figure:
    """Draw the number of updates to 95.5 % and 97.3 % per T and c (figure15label, figure16label)."""
    energies = sorted({setting(row)[1] for row in rows})
    figure, panels = style.canvas(len(_TARGETS), len(energies), sharey=True)
    for line, goal in zip(panels, _TARGETS, strict=True):
        for axes, energy in zip(line, energies, strict=True):
            _bars(axes, [row for row in rows if setting(row)[1] == energy], goal)
            axes.set_title(f"{100 * goal:g} %, E = {energy:g} J")
        line[0].set_ylabel("updates")
    for axes in panels[-1]:
        axes.set_xlabel("cycle time T (s)")
    caps = sorted({cap(row) for row in rows if family(row) == "HA"})
    names = [f"HA-{'Asyn' if c else 'Sync'} c={c}" for c in caps]
    entries: list[Any] = [Patch(fc=style.COLOURS[c], label=name) for c, name in zip(caps, names, strict=True)]
    entries.append(Patch(fc="white", ec=style.GREY, hatch="////", label="best HU"))
    entries.append(style.entry("not reached", color=style.BLACK, marker="x", ls=""))
    style.legend(figure, entries, "How many global updates does an accuracy take?", 1.15)
    style.footer(figure, f"Bar: median over seeds; dots: single seeds. {_about(rows)}")
    return figure


def _bars(axes: Axes, rows: Sequence[Row], goal: float) -> None:
    """Draw a group of bars per T: one per c of HA, then the best HU."""
    times = by(rows, lambda r: setting(r)[0])
    for place, same in enumerate(times.values()):
        need = {key: [cycles_to(r, goal) for r in group] for key, group in _schemes(same).items()}
        bars = [(style.COLOURS[c], "", values) for (kind, c), values in need.items() if kind == "HA"]
        rivals = [values for (kind, _), values in need.items() if kind == "HU"]
        if rivals:
            bars.append(("white", "////", min(rivals, key=lambda v: (median(v), min(v)))))
        width = 0.85 / max(len(bars), 1)
        for i, (colour, hatch, cycles) in enumerate(bars):
            x, edge = place + (i - (len(bars) - 1) / 2) * width, style.GREY if hatch else colour
            if np.isfinite(median(cycles)):
                axes.bar(x, median(cycles), 0.9 * width, fc=colour, ec=edge, hatch=hatch, alpha=0.85)
            else:
                axes.plot(x, 0.5, "x", color=edge, ms=4)
            if len(cycles) > 1:
                axes.plot([x] * len(cycles), cycles, "o", ms=2.2, mfc="white", mec="black", mew=0.6)
    axes.set_xticks(range(len(times)), [f"{t:g}" for t in times])
    axes.set_ylim(0, max(len(row["accuracy"]) for row in rows) + 0.5)
    axes.grid(visible=False, axis="x")


def gain_of_asynchrony(rows: Sequence[Row]) -> Figure:
    """Draw the accuracy that c > 0 gains over c = 0 after half of the cycles against tau*/floor(tau*)."""
    rows = [row for row in rows if family(row) == "HA"]
    figure, panels = style.canvas(1, 1, width=style.PAGE, height=2.8)
    axes, energies = panels[0][0], sorted({setting(row)[1] for row in rows})
    for ((_, energy), _), group in by(rows, lambda r: (setting(r), r["config"]["seed"])).items():
        base = next((row for row in group if not cap(row)), None)
        for row in (row for row in group if base is not None and cap(row)):
            half = (len(row["accuracy"]) + 1) // 2 - 1
            gain = 100 * (row["accuracy"][half] - base["accuracy"][half]) if base else 0.0
            look = {"color": style.COLOURS[cap(row)], "marker": style.MARKERS[energies.index(energy)]}
            axes.plot(gain_ratio(row), gain, ls="", mfc="none", alpha=0.85, **look)
    axes.axhline(0, color=style.GREY, lw=0.8)
    axes.set(xlabel="τ* / ⌊τ*⌋ of the synchronous optimum", ylabel="accuracy gain (points)")
    entries = [style.entry(f"c = {c}", color=style.COLOURS[c], lw=3) for c in range(1, 6)]
    marks = zip(energies, style.MARKERS, strict=False)
    entries += [style.entry(f"E = {e:g} J", color=style.GREY, marker=m, ls="", mfc="none") for e, m in marks]
    style.legend(figure, entries, "When does asynchrony pay?", 0.85)
    about = "Accuracy with c > 0 minus that with c = 0, after half of the cycles; a point per T, E, c and"
    style.footer(figure, f"{about} seed. {_about(rows)}")
    return figure


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
