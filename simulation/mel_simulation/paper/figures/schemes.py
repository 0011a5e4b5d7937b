"""The paper's figures: accuracy against T, progression, updates to a target, the c = 0 check, HA and HU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from mel_simulation.paper.figures.style import (
    COLOURS,
    GREY,
    against_cycles,
    canvas,
    entry,
    footer,
    legend,
    percent_axis,
    scheme_look,
    scheme_name,
)
from mel_simulation.paper.rows import (
    NoCells,
    Row,
    about,
    at_cycle,
    by,
    cap,
    curves,
    cycles_to,
    family,
    median,
    plain,
    scheme_rows,
    setting,
    trained,
)

#: Cycles after which the paper reads off accuracy, accuracies to which it counts updates, T of its curves.
AFTER = (6, 12)
TARGETS = (0.955, 0.973)
CURVES_AT = (10.0, 20.0)


def _scheme_legend(figure: Figure, rows: Sequence[Row]) -> None:
    keys = sorted({(family(row), cap(row)) for row in rows})
    legend(figure, [entry(scheme_name(*key), **scheme_look(*key)) for key in keys], _leader(rows))


def _leader(rows: Sequence[Row]) -> str:
    """Say how often which c of HA has the best mean accuracy after the last cycle."""
    wins: Counter[int] = Counter()
    for group in by([row for row in rows if family(row) == "HA"], setting).values():
        ends = {c: [r["accuracy"][-1] for r in g] for (_, c), g in scheme_rows(group).items()}
        if len(ends) > 1:
            wins[max(ends, key=lambda c: float(np.mean(ends[c])))] += 1
    words = ", ".join(f"c={c}: {n}" for c, n in sorted(wins.items()))
    return f"Best HA at the end, of {wins.total()} (T, E): {words}" if wins else ""


def _infeasible(rows: Sequence[Row]) -> str:
    """Say which schemes have no allocation, by E and T."""
    failed = by([row for row in rows if row["trouble"]], lambda r: (family(r), cap(r), setting(r)[1]))
    words = []
    for (kind, c, energy), group in failed.items():
        times = sorted({setting(row)[0] for row in group})
        everywhere = set(times) == {setting(row)[0] for row in rows if setting(row)[1] == energy}
        where = "every T" if everywhere else "T=" + ", ".join(f"{t:g}" for t in times)
        words.append(f"{scheme_name(kind, c)} at E={energy:g}, {where}")
    return f" No allocation: {'; '.join(words)}." if words else ""


def final_accuracy(results: Sequence[Row], notice: str = "") -> Figure:
    """Draw accuracy after 6 and after 12 cycles against T, a column per E (figure14label, figure16label)."""
    rows = plain(results)
    done = trained(rows)
    after = [cycle for cycle in AFTER if any(len(row["accuracy"]) >= cycle for row in done)]
    if len({setting(row)[0] for row in done}) < 2 or not after:
        raise NoCells("needs the paper's schemes at two T or more, 6 cycles or more")
    energies = sorted({setting(row)[1] for row in done})
    figure, panels = canvas(len(after), len(energies), sharey="row", sharex=True)
    for line, cycle in zip(panels, after, strict=True):
        values: list[float] = []
        for axes, energy in zip(line, energies, strict=True):
            mine = [row for row in rows if setting(row)[1] == energy]
            values += _against_time(axes, trained(mine), cycle)
            axes.set_title(f"E = {energy:g} J, after {cycle} cycles")
        for axes in line:
            percent_axis(axes, values)
        line[0].set_ylabel("test accuracy (%)")
    for axes in panels[-1]:
        axes.set_xlabel("cycle time T (s)")
        axes.set_xticks(sorted({setting(row)[0] for row in done}))
    _scheme_legend(figure, done)
    footer(
        figure,
        f"Mean and range over seeds; scale: logarithm of the error.{_infeasible(rows)}",
        about(done, notice),
    )
    return figure


def _against_time(axes: Axes, rows: Sequence[Row], cycle: int) -> list[float]:
    seen: list[float] = []
    groups = by(rows, lambda r: (family(r), cap(r)))
    for place, ((kind, c), group) in enumerate(groups.items()):
        points = []
        for time, same in by(group, lambda r: setting(r)[0]).items():
            values = at_cycle(scheme_rows(same)[kind, c], cycle)
            if len(values):
                points.append((time, values.mean(), values.min(), values.max()))
        if not points:
            continue
        t, mean, low, high = np.array(points).T
        # Apart from each other by a little, so that the ranges can be told.
        t = t + 0.25 * (place - (len(groups) - 1) / 2)
        axes.errorbar(t, mean, [mean - low, high - mean], capsize=1.5, elinewidth=0.8, **scheme_look(kind, c))
        seen += [*low, *high]
    return seen


def progression(results: Sequence[Row], notice: str = "") -> Figure:
    """Draw accuracy against cycles for T = 10 and 20, a column per E (figure07label)."""
    rows = [row for row in plain(results) if setting(row)[0] in CURVES_AT]
    done = trained(rows)
    if not done:
        raise NoCells("needs the paper's schemes at T = 10 or 20")
    times, energies = (sorted({setting(row)[i] for row in done}) for i in (0, 1))
    figure, panels = canvas(len(times), len(energies), sharey=True, sharex=True)
    for line, time in zip(panels, times, strict=True):
        for axes, energy in zip(line, energies, strict=True):
            mine = [row for row in rows if setting(row) == (time, energy)]
            for (kind, c), group in scheme_rows(trained(mine)).items():
                lines = curves(group)
                x = np.arange(1, lines.shape[1] + 1)
                axes.plot(x, lines.mean(axis=0), **scheme_look(kind, c))
                axes.fill_between(x, lines.min(axis=0), lines.max(axis=0), color=COLOURS[c], alpha=0.12, lw=0)
            axes.set_title(f"T = {time:g} s, E = {energy:g} J")
    against_cycles(panels, [a for row in done for a in row["accuracy"]])
    _scheme_legend(figure, done)
    words = "Mean and range over seeds; scale: logarithm of the error, from 70 % or later."
    footer(figure, words + _infeasible(rows), about(done, notice))
    return figure


def updates_to_target(results: Sequence[Row], notice: str = "") -> Figure:
    """Draw the number of updates to 95.5 % and 97.3 % per T and c (figure15label, figure16label)."""
    rows = trained(plain(results))
    targets = [goal for goal in TARGETS if any(np.isfinite(cycles_to(row, goal)) for row in rows)]
    if not targets:
        raise NoCells("no cell of the paper's schemes reaches 95.5 %")
    energies = sorted({setting(row)[1] for row in rows})
    figure, panels = canvas(len(targets), len(energies), sharey=True)
    for line, goal in zip(panels, targets, strict=True):
        for axes, energy in zip(line, energies, strict=True):
            _bars(axes, [row for row in rows if setting(row)[1] == energy], goal)
            axes.set_title(f"{100 * goal:g} %, E = {energy:g} J")
        line[0].set_ylabel("updates")
    for axes in panels[-1]:
        axes.set_xlabel("cycle time T (s)")
    caps = sorted({cap(row) for row in rows if family(row) == "HA"})
    entries: list[Any] = [Patch(fc=COLOURS[c], label=scheme_name("HA", c)) for c in caps]
    if any(family(row) == "HU" for row in rows):
        entries.append(Patch(fc="white", ec=GREY, hatch="////", label="best HU"))
    entries.append(entry("never, in most seeds", color=COLOURS[0], marker="x", ls=""))
    legend(figure, entries, _saved(rows, targets[0]))
    never = "".join(f" No cell reaches {100 * g:g} %." for g in TARGETS if g not in targets)
    footer(figure, f"Bar: median over seeds; dots: single seeds.{never}", about(rows, notice))
    return figure


def _saved(rows: Sequence[Row], goal: float) -> str:
    """Say in how many settings some c > 0 needs fewer updates than c = 0 (medians)."""
    settings = by([row for row in rows if family(row) == "HA"], setting)
    fewer = more = counted = 0
    for group in settings.values():
        need = {c: median([cycles_to(r, goal) for r in g]) for (_, c), g in scheme_rows(group).items()}
        if 0 in need and len(need) > 1:
            best = min(value for c, value in need.items() if c)
            counted, fewer, more = counted + 1, fewer + (best < need[0]), more + (best > need[0])
    words = f"fewer updates in {fewer} of {counted} (T, E), more in {more}"
    return f"To {100 * goal:g} %: the best c > 0 needs {words}"


def _bars(axes: Axes, rows: Sequence[Row], goal: float) -> None:
    """Draw a group of bars per T: one per c of HA, then the best HU."""
    groups = by(rows, lambda r: setting(r)[0])
    most = max(len(row["accuracy"]) for row in rows)
    for place, same in enumerate(groups.values()):
        schemes = scheme_rows(same)
        bars = [
            (COLOURS[c], [cycles_to(r, goal) for r in g]) for (kind, c), g in schemes.items() if kind == "HA"
        ]
        rivals = [[cycles_to(r, goal) for r in g] for (kind, _), g in schemes.items() if kind == "HU"]
        if rivals:
            bars.append(("HU", min(rivals, key=lambda v: (median(v), min(v)))))
        width = 0.85 / max(len(bars), 1)
        for i, (colour, cycles) in enumerate(bars):
            x = place + (i - (len(bars) - 1) / 2) * width
            paint: dict[str, Any] = (
                {"fc": "white", "ec": GREY, "hatch": "////"} if colour == "HU" else {"fc": colour}
            )
            middle = median(cycles)
            if np.isfinite(middle):
                axes.bar(x, middle, 0.9 * width, alpha=0.85, **paint)
            else:
                axes.plot(x, 0.5, "x", color=GREY if colour == "HU" else colour, ms=4)
            single = [v for v in cycles if np.isfinite(v)]
            if len(cycles) > 1:
                axes.plot([x] * len(single), single, "o", ms=2.2, mfc="white", mec="black", mew=0.6)
    axes.set_xticks(range(len(groups)), [f"{t:g}" for t in groups])
    axes.set_ylim(0, most + 0.5)
    axes.grid(visible=False, axis="x")
