"""Schemes against what a Flower user would do otherwise: accuracy, time and energy at equal limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from flwr_mel.solvers.schemes import SchemeName
from mel_simulation.paper.figures.style import (
    COLOURS,
    LINES,
    MARKERS,
    canvas,
    dots,
    entry,
    footer,
    legend,
    percent_axis,
)
from mel_simulation.paper.rows import (
    COMPARED,
    NoCells,
    Row,
    about,
    by,
    cap,
    common_goals,
    cost_to,
    family,
    is_like,
    median,
    once_per_seed,
    rule,
    running,
    setting,
    trained,
)

_BASELINES = {
    "fedavg": "FedAvg, waits",
    "fedavg-drop": "FedAvg, drops",
    "fedprox": "FedProx",
    "partial": "random epochs",
}
#: Key of the acts and axis label.
_COSTS = (("makespan_s", "virtual time (s)"), ("energy_j", "energy of all learners (J)"))


def baseline_name(row: Row) -> str:
    """Name a baseline and its epochs."""
    config = row["config"]
    return f"{_BASELINES.get(config['baseline'], config['baseline'])}, {config['epochs']} ep."


def _method(row: Row) -> str:
    """Name a cell as a reader of a comparison knows it."""
    config = row["config"]
    if config["baseline"]:
        return baseline_name(row)
    if config["scheme"] == SchemeName.HA_PROGRESS:
        return f"HA-Progress c={cap(row)}"
    how = "" if rule(row) == "proportional" else f", {rule(row)}"
    return f"{family(row)}-{'Asyn' if cap(row) else 'Sync'} c={cap(row)}{how}"


def _rivals(results: Sequence[Row]) -> dict[str, list[Row]]:
    """Return what is compared in the setting with most baselines, by name: of each baseline the best."""
    pool = [r for r in trained(results) if is_like(r, mode="pl", average="data")]
    settings = by([r for r in pool if r["config"]["baseline"]], setting)
    if not settings:
        raise NoCells("needs baselines (fedavg, fedavg-drop, fedprox, partial)")
    where = max(settings, key=lambda s: len(settings[s]))
    schemes = [r for r in pool if setting(r) == where and not r["config"]["baseline"] and family(r) == "HA"]
    wanted = [r for r in schemes if (rule(r), cap(r)) in COMPARED]
    methods = {name: once_per_seed(g) for name, g in by(wanted or schemes, _method).items()}
    if not methods:
        raise NoCells("needs HA cells at the T and E of the baselines")
    for group in by(settings[where], lambda r: str(r["config"]["baseline"])).values():
        variants = by(group, _method)
        best = max(variants, key=lambda name: float(np.mean([r["accuracy"][-1] for r in variants[name]])))
        methods[best] = once_per_seed(variants[best])
    return methods


def _looks(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    return {
        n: {"color": COLOURS[i % 8], "marker": MARKERS[i % 8], "ls": LINES[i % 8]}
        for i, n in enumerate(names)
    }


def baselines(results: Sequence[Row], notice: str = "") -> Figure:
    """Draw accuracy against virtual time and against energy, schemes and baselines at equal T and E."""
    methods = _rivals(results)
    looks = _looks(list(methods))
    figure, panels = canvas(1, 2, height=2.9, sharey=True)
    for axes, (cost, label) in zip(panels[0], _COSTS, strict=True):
        for name, group in methods.items():
            length = min(len(row["accuracy"]) for row in group)
            x = np.array([running(row, cost)[:length] for row in group])
            y = np.array([row["accuracy"][:length] for row in group])
            for one, curve in zip(x, y, strict=True):
                axes.plot(one, curve, color=looks[name]["color"], lw=0.4, alpha=0.5)
            axes.plot(x.mean(axis=0), y.mean(axis=0), **looks[name])
        axes.set_xlabel(label)
    values = [a for group in methods.values() for row in group for a in row["accuracy"]]
    for axes in panels[0]:
        percent_axis(axes, [max(min(values), 0.6), max(values)])
    panels[0][0].set(ylabel="test accuracy (%)", title="against time")
    panels[0][1].set_title("against energy")
    rows = [row for group in methods.values() for row in group]
    title = _cheapest(methods, common_goals(rows, 1)[0])
    legend(figure, [entry(name, **looks[name]) for name in methods], title, 2.3)
    _footer(figure, "Thick: mean, thin: single seeds", rows, notice)
    return figure


def cost_to_accuracy(results: Sequence[Row], notice: str = "") -> Figure:
    """Draw seconds and joules to an accuracy, schemes and baselines at equal T and E."""
    methods = _rivals(results)
    rows = [row for group in methods.values() for row in group]
    goal = common_goals(rows, 1)[0]
    colours = {name: look["color"] for name, look in _looks(list(methods)).items()}
    figure, panels = canvas(1, 2, height=0.5 + 0.28 * len(methods), sharey=True)
    for axes, (cost, label) in zip(panels[0], _COSTS, strict=True):
        dots(axes, methods, lambda row, c=cost: cost_to(row, goal, c), colours)  # type: ignore[misc]
        axes.set(xlabel=label, title=f"to {100 * goal:g} % accuracy")
    legend(figure, [], _cheapest(methods, goal))
    _footer(figure, "Dots: seeds, bar: median", rows, notice)
    return figure


def _cheapest(methods: dict[str, list[Row]], goal: float) -> str:
    """Say who reaches an accuracy first and with least energy (medians over seeds)."""
    words = []
    for cost, adverb in (("makespan_s", "soonest"), ("energy_j", "with least energy")):
        need = {name: median([cost_to(row, goal, cost) for row in g]) for name, g in methods.items()}
        words.append(f"{adverb}: {min(need, key=lambda name: need[name])}")
    return f"{100 * goal:g} % {'; '.join(words)}"


def _footer(figure: Figure, marks: str, rows: Sequence[Row], notice: str) -> None:
    time, energy = setting(rows[0])
    limits = f"T = {time:g} s, E = {energy:g} J per learner; FedAvg that waits keeps neither limit"
    text = f"{marks}; of each baseline the number of epochs that ends best. {limits}."
    footer(figure, text, about(rows, notice))
