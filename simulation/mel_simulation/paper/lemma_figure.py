"""The figure of Lemma 1: distance and bounds as staleness grows, and what the loss does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mel_simulation.paper import style

Rows = Sequence[dict[str, Any]]

_LINES: dict[str, tuple[str, dict[str, Any]]] = {
    "distance": ("measured", {"color": style.BLACK, "marker": "o", "ls": "-", "lw": 2.0}),
    "printed": ("bound as printed (1/d)", {"color": style.VERMILION, "marker": "^", "ls": "--"}),
    "weighted": ("bound with d_k/d", {"color": style.BLUE, "marker": "s", "ls": "-."}),
    "corrected": ("corrected bound", {"color": style.GREEN, "marker": "D", "ls": ":"}),
}
_ANCHORS: dict[str, tuple[str, dict[str, Any]]] = {
    "max": ("max τ fixed", {"color": style.BLACK, "marker": "o"}),
    "min": ("min τ fixed", {"color": style.ORANGE, "marker": "v", "ls": "--"}),
}


def draw_lemma(rows: Rows) -> Figure:
    """Draw the rows of `mel_simulation.paper.lemma.measure` with the smaller step."""
    rows = [row for row in rows if row["step"] < 1]
    fixed, last = [row for row in rows if row["anchor"] == "max"], max(row["interval"] for row in rows)
    figure, panels = style.canvas(1, 3, height=2.4)
    for axes, index in zip(panels[0], (0, last), strict=False):
        for key, (_, look) in _LINES.items():
            _band(axes, [row for row in fixed if row["interval"] == index], key, look)
        axes.set(yscale="log", xlabel="staleness s", title=f"interval g = {index}")
    panels[0][0].set_ylabel("distance to the auxiliary model")
    loss = panels[0][2]
    for anchor, (_, look) in _ANCHORS.items():
        mine = [row for row in rows if row["anchor"] == anchor and row["interval"] == last]
        _band(loss, mine, "loss", look)
    loss.legend(handles=[style.entry(name, **look) for name, look in _ANCHORS.values()])
    loss.set(xlabel="staleness s", ylabel="global loss F(w)", title="loss at the end")
    entries = [style.entry(name, **look) for name, look in _LINES.values()]
    style.legend(figure, entries, "How far averaging strays from central training, and three bounds", 1.75)
    first, seeds = rows[0], len({row["seed"] for row in rows})
    style.footer(
        figure,
        "Logistic regression on embedded MNIST digits, full-batch gradient descent, uneven labels "
        f"(Dirichlet {first['alpha']:g}), eta*beta = {first['step']:g}; {seeds} seeds: mean and range.",
    )
    return figure


def _band(axes: Axes, rows: Rows, key: str, look: dict[str, Any]) -> None:
    """Draw mean and range over seeds against staleness."""
    steps = sorted({row["staleness"] for row in rows})
    values = [[row[key] for row in rows if row["staleness"] == s] for s in steps]
    axes.plot(steps, [float(np.mean(v)) for v in values], **look)
    low, high = [min(v) for v in values], [max(v) for v in values]
    axes.fill_between(steps, low, high, color=look["color"], alpha=0.15, lw=0)
    axes.set_xticks(steps)
