"""Checks of the paper's claims: c = 0 is the synchronous scheme, HA beats HU, where asynchrony pays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import rankdata

from mel_simulation.paper.figures.schemes import CURVES_AT
from mel_simulation.paper.figures.style import (
    COLOURS,
    GREY,
    against_cycles,
    canvas,
    entries_of,
    entry,
    footer,
    legend,
    note,
    percent_axis,
    point,
)
from mel_simulation.paper.rows import (
    NoCells,
    Row,
    about,
    by,
    cap,
    curves,
    family,
    gain_ratio,
    plain,
    scheme_rows,
    setting,
    trained,
)

_WIDE: dict[str, Any] = {"lw": 4.5, "ls": "-", "solid_capstyle": "round"}
_OVERLAY: dict[str, tuple[str, dict[str, Any]]] = {
    "ha-sync": ("HA-Sync", {"color": COLOURS[6], **_WIDE}),
    "ha-asyn": ("HA-Asyn c=0", {"color": COLOURS[0], "marker": "o", "ms": 3, "lw": 0.8}),
    "hu-sync": ("HU-Sync", {"color": COLOURS[4], **_WIDE}),
    "hu-asyn": ("HU-Asyn c=0", {"color": COLOURS[2], "marker": "^", "ms": 3, "lw": 0.8, "ls": "--"}),
}


def convergence_check(results: Sequence[Row], notice: str = "") -> Figure:
    """Draw HA-Sync over HA-Asyn with c = 0, and the same for HU: the curves must be the same."""
    rows = [row for row in plain(results) if cap(row) == 0]
    pairs = by(rows, lambda r: (setting(r), family(r), r["config"]["seed"]))
    both = [g for g in pairs.values() if len({row["config"]["scheme"] for row in g}) == 2 and trained(g)]
    settings = sorted({setting(group[0]) for group in both})
    if not settings:
        raise NoCells("needs a scheme both as Sync and as Asyn with c = 0")
    gap = max(_gap(group) for group in both)
    shown = [s for s in settings if s[0] in CURVES_AT][:6] or settings[:6]
    columns = min(3, len(shown))
    figure, panels = canvas(-(-len(shown) // columns), columns, sharey=True, sharex=True)
    for axes in list(panels.flat)[len(shown) :]:
        axes.set_visible(False)
    for axes, (time, energy) in zip(panels.flat, shown, strict=False):
        mine = [row for row in rows if setting(row) == (time, energy)]
        _overlay(axes, trained(mine))
        axes.set_title(f"T = {time:g} s, E = {energy:g} J")
        failed = sorted({row["config"]["scheme"] for row in mine if row["trouble"]})
        note(axes, "\n".join(f"{_OVERLAY[scheme][0]}: no allocation" for scheme in failed))
    against_cycles(panels, [a for row in trained(rows) for a in row["accuracy"] if setting(row) in shown])
    there = {row["config"]["scheme"] for row in trained(rows)}
    words = f"{len(both)} pairs of cells, largest difference {100 * gap:.2g} points"
    entries = [entry(word, **look) for scheme, (word, look) in _OVERLAY.items() if scheme in there]
    legend(figure, entries, f"Sync and Asyn with c = 0: {words}")
    made_from = about(trained(rows), notice)
    footer(figure, "All seeds; scale: logarithm of the error, from 70 % or later.", made_from)
    return figure


def _overlay(axes: Axes, rows: Sequence[Row]) -> None:
    for scheme, (_, look) in _OVERLAY.items():
        for row in rows:
            if row["config"]["scheme"] == scheme:
                axes.plot(range(1, len(row["accuracy"]) + 1), row["accuracy"], **look)


def _gap(group: Sequence[Row]) -> float:
    """Return the largest difference in accuracy between cells that must be the same."""
    if len({len(row["accuracy"]) for row in group}) > 1:
        return 1.0
    return float(np.ptp(curves(group), axis=0).max(initial=0.0))


def aware_against_unaware(results: Sequence[Row], notice: str = "") -> Figure:
    """Draw accuracy of HA against that of HU with the same T, E, c and seed."""
    rows = trained(plain(results))
    groups = by(rows, lambda r: (setting(r), cap(r), r["config"]["seed"]))
    pairs = []
    for (where, c, _), group in groups.items():
        two = {family(row): row["accuracy"][-1] for row in group}
        if len(two) == 2:
            pairs.append((*where, c, two["HU"], two["HA"]))
    if not pairs:
        raise NoCells("needs HA and HU cells with the same T, E, c and seed")
    figure, panels = canvas(1, 2, height=2.6)
    left, right = panels[0]
    energies = sorted({p[1] for p in pairs})
    for time, energy, c, unaware, aware in pairs:
        i = energies.index(energy)
        look = point(c, i)
        left.plot(unaware, aware, **look)
        right.plot(time + 0.5 * (i - (len(energies) - 1) / 2), 100 * (aware - unaware), **look)
    values = [p[i] for p in pairs for i in (3, 4)]
    left.plot([min(values), max(values)], [min(values), max(values)], color=GREY, lw=0.8)
    percent_axis(left, values)
    percent_axis(left, values, "x")
    left.set(xlabel="HU, accuracy (%)", ylabel="HA, accuracy (%)", title="accuracy (line: equal)")
    right.axhline(0, color=GREY, lw=0.8)
    right.set(xlabel="cycle time T (s)", ylabel="HA minus HU (points)", title="difference")
    right.set_xticks(sorted({p[0] for p in pairs}))
    entries = entries_of(sorted({p[2] for p in pairs}), energies)
    ahead = sum(p[4] > p[3] for p in pairs)
    legend(figure, entries, f"HA is ahead of HU in {ahead} of {len(pairs)} pairs of cells", 0.9)
    footer(figure, "After the last cycle, a point per T, E, c and seed.", about(rows, notice))
    return figure


def gain_of_asynchrony(results: Sequence[Row], notice: str = "") -> Figure:
    """Draw what c > 0 gains over c = 0 against tau*/floor(tau*)."""
    rows = [r for r in trained(plain(results)) if family(r) == "HA"]
    points = []
    for where, group in by(rows, lambda r: (setting(r), r["config"]["seed"])).items():
        schemes = {c: g[0] for (_, c), g in scheme_rows(group).items()}
        base = schemes.get(0)
        for c, row in schemes.items() if base else ():
            if c and base and np.isfinite(gain_ratio(base)):
                points.append(
                    (gain_ratio(base), c, where[0][1], _epochs(row) / _epochs(base), _lead(row, base))
                )
    if not points:
        raise NoCells("needs HA cells with c = 0 and c > 0 at the same T, E and seed")
    figure, panels = canvas(1, 2, height=2.6)
    energies = sorted({p[2] for p in points})
    for ratio, c, energy, epochs, lead in points:
        look = point(c, energies.index(energy))
        panels[0][0].plot(ratio, epochs, **look)
        panels[0][1].plot(ratio, lead, **look)
    ends = [min(p[0] for p in points), max(p[0] for p in points)]
    panels[0][0].plot(ends, ends, color=GREY, lw=0.8)
    panels[0][0].set(ylabel="mean epochs, c > 0 over c = 0", title="epochs (line: what rounding lost)")
    panels[0][1].axhline(0, color=GREY, lw=0.8)
    panels[0][1].set(ylabel="accuracy gain (points)", title="accuracy after half of the cycles")
    for axes in panels[0]:
        axes.set_xlabel("τ* / ⌊τ*⌋ of the synchronous optimum")
    entries = entries_of(sorted({p[1] for p in points}), energies)
    title = "Accuracy gain and τ*/⌊τ*⌋"
    ranks = [rankdata([p[i] for p in points]) for i in (0, 4)]
    if min(np.ptp(rank) for rank in ranks) > 0:
        title += f": rank correlation {np.asarray(np.corrcoef(ranks))[0, 1]:.2f} over {len(points)} points"
    legend(figure, entries, title, 0.9)
    footer(figure, "A point per T, E, c and seed; the ratio is the mean over cycles.", about(rows, notice))
    return figure


def _epochs(row: Row) -> float:
    return float(np.mean([act["mean_epochs"] for act in row["acts"]]))


def _lead(row: Row, base: Row) -> float:
    """Return how many points of accuracy a cell is ahead after half of its cycles."""
    half = (min(len(row["accuracy"]), len(base["accuracy"])) + 1) // 2
    return 100 * float(row["accuracy"][half - 1] - base["accuracy"][half - 1])
