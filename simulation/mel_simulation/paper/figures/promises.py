"""Soonest's seconds and Cheapest's joules over every rival's: left of 1 the promise is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from mel_simulation.paper.figures import style as look
from mel_simulation.paper.promises import Comparison

_ACROSS = 3


def draw(panels: Mapping[str, Mapping[str, Sequence[tuple[str, Comparison]]]], out: Path) -> None:
    """Draw a panel per data.

    Parameters
    ----------
    panels : mapping
        By data, then by promise: rivals and comparisons.
    out : Path
        Directory of the figure.
    """
    shown = {name: lines for name, lines in panels.items() if any(lines.values())}
    if not shown:
        return
    promises = sorted({promise for lines in shown.values() for promise in lines}, reverse=True)
    across = min(len(shown), _ACROSS)
    with look.style():
        figure, axes = look.canvas(
            -(-len(shown) // across), across, width=look.PAGE, height=2.6, sharex=True, sharey=True
        )
        names = list(dict.fromkeys(n for lines in shown.values() for some in lines.values() for n, _ in some))
        for panel, (name, lines) in zip(axes.flat, shown.items(), strict=False):
            panel.axvline(1, color=look.GREY, lw=0.8)
            for promise, some in lines.items():
                which = promises.index(promise)
                style = {"color": look.COLOURS[1 + which], "marker": look.MARKERS[which]}
                for rival, found in some:
                    _bar(panel, names.index(rival) + 0.3 * (which - 0.5), found, style)
            panel.set(title=name.replace(", ", ",\n", 1), xscale="log")
        for panel in list(axes.flat)[len(shown) :]:
            panel.set_visible(False)
        axes.flat[0].set_yticks(range(len(names)), names)
        axes.flat[0].set_ylim(len(names) - 0.5, -0.5)
        for panel in axes[-1]:
            panel.set_xlabel("ours / rival's")
            low, high = panel.get_xlim()
            # Every second power, so that the marks do not touch.
            powers = [n for n in range(-10, 11, 2) if low <= 2.0**n <= high or n == 0]
            panel.set_xticks(
                [2.0**n for n in powers], [f"{2**n}" if n >= 0 else f"1/{2**-n}" for n in powers]
            )
            panel.minorticks_off()
        entries = [
            look.entry(promise, color=look.COLOURS[1 + i], marker=look.MARKERS[i], ls="-")
            for i, promise in enumerate(promises)
        ]
        entries.append(
            look.entry("a bound: a run ended early", color=look.GREY, marker="o", mfc="white", ls="")
        )
        look.legend(figure, entries, "Left of 1 the promise is kept; bars are 95 % intervals over seeds", 2.0)
        look.headline(figure, "Costs to an accuracy: ours over each rival's at each fixed T")
        look.save(figure, out, "objectives")


def _bar(panel: Axes, place: float, found: Comparison, style: dict[str, Any]) -> None:
    """Draw one comparison: filled where it is exact, open where it is a bound; none that says nothing."""
    if not found.pairs or found.sign == "?" or not np.isfinite(found.times):
        return
    if np.isfinite(found.low):
        panel.plot([found.low, found.high], [place, place], color=style["color"], lw=1)
    fill = style["color"] if found.sign == "=" else "white"
    panel.plot([found.times], [place], ls="", mfc=fill, **style)
