"""The figure of Lemma 1: distance and bounds as staleness grows, and what the loss does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from mel_simulation.paper.figures import style as art
from mel_simulation.paper.figures.style import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    VERMILION,
    canvas,
    entry,
    footer,
    headline,
    legend,
    style,
)

Rows = Sequence[dict[str, Any]]

_LINES: dict[str, tuple[str, dict[str, Any]]] = {
    "distance": ("measured", {"color": BLACK, "marker": "o", "ls": "-", "lw": 2.0}),
    "printed": ("bound as printed (1/d)", {"color": VERMILION, "marker": "^", "ls": "--"}),
    "weighted": ("bound with d_k/d", {"color": BLUE, "marker": "s", "ls": "-."}),
    "corrected": ("corrected bound", {"color": GREEN, "marker": "D", "ls": ":"}),
}


def draw_lemma(rows: Rows, out: Path) -> Path:
    """Draw what `mel_simulation.paper.lemma.measure` found.

    Parameters
    ----------
    rows : sequence of dict
        Of any number of seeds; with ``anchor="min"`` among them the third panel has two lines.
    out : Path
        The directory of ``lemma1.png``.
    """
    fixed = [row for row in rows if row["anchor"] == "max"]
    if not fixed:
        raise ValueError('rows must hold some with anchor "max". Call measure() with its default.')
    last = max(row["interval"] for row in fixed)
    with style():
        figure, panels = canvas(1, 3, height=2.4)
        for axes, index in zip(panels[0], (0, last), strict=False):
            mine = [row for row in fixed if row["interval"] == index]
            for key, (_, look) in _LINES.items():
                _band(axes, mine, key, look)
            axes.set(yscale="log", xlabel="staleness s", title=f"interval g = {index}")
        panels[0][0].set_ylabel("distance to the auxiliary model")
        values = [row[key] for row in fixed if row["interval"] in (0, last) for key in _LINES]
        for axes in panels[0][:2]:
            axes.set_ylim(max(0.6 * min(values), 1e-9), 1.6 * max(values))
        _losses(panels[0][2], [row for row in rows if row["interval"] == last])
        legend(figure, [entry(word, **look) for word, look in _LINES.values()], _verdict(fixed), 1.75)
        seeds = len({row["seed"] for row in rows})
        words = "Logistic regression on embedded MNIST digits, full-batch gradient descent, uneven labels"
        chosen = ", ".join(f"eta*beta = {b:g}, Dirichlet({a:g})" for a, b in _choices(rows))
        footer(figure, f"{words}; {chosen}; {seeds} seed{'s' * (seeds > 1)}: mean and range.")
        headline(figure, "How far averaging strays from central training, and three bounds")
        return art.save(figure, out, "lemma1")


def _choices(rows: Rows) -> list[tuple[float, float]]:
    """Return the (alpha, step) of the rows: how often a bound holds depends on them."""
    return sorted({(row["alpha"], row["step"]) for row in rows})


def _band(axes: Axes, rows: Rows, key: str, look: dict[str, Any]) -> None:
    """Draw mean and range over seeds against staleness."""
    steps = sorted({row["staleness"] for row in rows})
    values = [[row[key] for row in rows if row["staleness"] == s] for s in steps]
    axes.plot(steps, [np.mean(v) for v in values], **look)
    axes.fill_between(
        steps, [min(v) for v in values], [max(v) for v in values], color=look["color"], alpha=0.15, lw=0
    )
    axes.set_xticks(steps)


def _losses(axes: Axes, rows: Rows) -> None:
    """Draw the loss of the aggregated model with max tau_k, and with min tau_k, held."""
    looks = {
        "max": ("max τ held", {"color": BLACK, "marker": "o"}),
        "min": ("min τ held", {"color": ORANGE, "marker": "v", "ls": "--"}),
    }
    for anchor, (word, look) in looks.items():
        mine = [row for row in rows if row["anchor"] == anchor]
        if mine:
            _band(axes, mine, "loss", look)
            least = min(row["staleness"] for row in mine)
            first = np.mean([row["loss"] for row in mine if row["staleness"] == least])
            below = -1 if anchor == "min" else 1
            axes.annotate(
                word, (least, float(first)), (4, -14 * below), textcoords="offset points", fontsize=8
            )
    axes.set(xlabel="staleness s", ylabel="global loss F(w)", title="loss at the end")
    axes.margins(y=0.25)


def _verdict(rows: Rows) -> str:
    """Say how often each bound holds."""
    words = []
    for key in ("printed", "weighted", "corrected"):
        held = sum(row["distance"] <= row[key] for row in rows)
        words.append(f"{key} {held}/{len(rows)}")
    return f"Distance within the bound: {', '.join(words)}"
