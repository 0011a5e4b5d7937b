"""Figures past the paper: baselines, hand-out rules, averaging, uneven labels, where asynchrony pays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from flwr_mel.allocation.schemes import SchemeName
from simulation.figures_rows import (
    NoCells,
    Row,
    about,
    at_cycle,
    by,
    cap,
    common_goals,
    cost_to,
    cycles_to,
    family,
    is_like,
    median,
    once_per_seed,
    rule,
    running,
    setting,
    trained,
)
from simulation.figures_style import (
    COLOURS,
    GREY,
    LINES,
    MARKERS,
    canvas,
    entry,
    footer,
    headline,
    legend,
    percent_axis,
)

#: Accuracies that comparisons count cycles to, if anybody reaches them; else the two highest that are.
TARGETS = (0.94, 0.95)
_STEPS = (0.98, 0.97, 0.96, 0.95, 0.94, 0.92, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5)
_BASELINES = {
    "fedavg": "FedAvg, waits",
    "fedavg-drop": "FedAvg, drops",
    "fedprox": "FedProx",
    "partial": "random epochs",
}
#: Key of the acts and axis label.
_COSTS = (("makespan_s", "virtual time (s)"), ("energy_j", "energy of all learners (J)"))

Values = Callable[[Row], float]


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


def _rivals(results: Sequence[Row]) -> tuple[tuple[float, float], dict[str, list[Row]]]:
    """Return the setting with most baselines and, by name, what is compared: of each baseline the best."""
    pool = [r for r in trained(results) if is_like(r, mode="pl", average="data")]
    settings = by([r for r in pool if r["config"]["baseline"]], setting)
    if not settings:
        raise NoCells("needs baselines (fedavg, fedavg-drop, fedprox, partial)")
    where = max(settings, key=lambda s: len(settings[s]))
    schemes = [r for r in pool if setting(r) == where and not r["config"]["baseline"] and family(r) == "HA"]
    # The paper's two, and ours at the same c.
    shown = {("proportional", 0), ("proportional", 2), ("strongest-first", 2), ("progress", 2)}
    wanted = [r for r in schemes if (rule(r), cap(r)) in shown]
    methods = {name: once_per_seed(g) for name, g in by(wanted or schemes, _method).items()}
    if not methods:
        raise NoCells("needs HA cells at the T and E of the baselines")
    for group in by(settings[where], lambda r: str(r["config"]["baseline"])).values():
        variants = by(group, _method)
        best = max(variants, key=lambda name: float(np.mean([r["accuracy"][-1] for r in variants[name]])))
        methods[best] = once_per_seed(variants[best])
    return where, methods


def _looks(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    return {
        n: {"color": COLOURS[i % 8], "marker": MARKERS[i % 8], "ls": LINES[i % 8]}
        for i, n in enumerate(names)
    }


def baselines(results: Sequence[Row], notice: str = "") -> Figure:
    """Draw accuracy against virtual time and against energy, schemes and baselines at equal T and E."""
    (time, energy), methods = _rivals(results)
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
    limits = f"T = {time:g} s, E = {energy:g} J per learner; FedAvg that waits keeps neither limit"
    text = "Thick: mean, thin: single seeds; of each baseline the number of epochs that ends best."
    footer(figure, f"{text} {limits}.", about(rows, notice))
    return figure


def _goals(rows: Sequence[Row], count: int) -> list[float]:
    """Return the accuracies to count to: 94 and 95 % if half of the cells get there, else lower ones."""
    enough = [g for g in _STEPS if np.mean([np.isfinite(cycles_to(row, g)) for row in rows]) >= 0.5]
    if set(TARGETS[:count]) <= set(enough):
        return list(TARGETS[:count])
    return sorted(enough[:count]) or [_STEPS[-1]]


def _dots(
    axes: Axes, groups: dict[str, list[Row]], value: Values, colours: dict[str, str], least_span: float = 2.0
) -> None:
    """Draw a line per group from top to bottom: dots are seeds, a bar their median, "never" at the right."""
    numbers = {name: np.array([value(row) for row in rows]) for name, rows in groups.items()}
    finite = np.concatenate([v[np.isfinite(v)] for v in numbers.values()])
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    low = min(low, high - least_span)
    span = high - low
    never = high + 0.25 * span
    for place, (name, v) in enumerate(numbers.items()):
        shown = np.where(np.isfinite(v), v, never)
        nudge = np.linspace(-0.16, 0.16, len(v)) if len(v) > 1 else np.zeros(1)
        fill = [colours[name] if f else "white" for f in np.isfinite(v)]
        axes.scatter(shown, place + nudge, s=18, c=fill, edgecolors=colours[name], linewidths=0.9, zorder=3)
        middle = median(list(v))
        if np.isfinite(middle):
            axes.plot([middle] * 2, [place - 0.32, place + 0.32], color=colours[name], lw=2)
    right = high
    if any(not np.isfinite(v).all() for v in numbers.values()):
        right = never
        axes.axvline(high + 0.12 * span, color=GREY, lw=0.6, ls=":")
        axes.text(never, -0.55, "never", ha="center", va="bottom", fontsize=7, color="#444444")
    axes.set_yticks(range(len(groups)), list(groups))
    axes.set_ylim(len(groups) - 0.5, -0.6)
    axes.set_xlim(low - 0.1 * span, right + 0.1 * span)
    axes.grid(visible=False, axis="y")


def cost_to_accuracy(results: Sequence[Row], notice: str = "") -> Figure:
    """Draw seconds and joules to an accuracy, schemes and baselines at equal T and E."""
    (time, energy), methods = _rivals(results)
    rows = [row for group in methods.values() for row in group]
    goal = common_goals(rows, 1)[0]
    colours = {name: look["color"] for name, look in _looks(list(methods)).items()}
    figure, panels = canvas(1, 2, height=0.5 + 0.28 * len(methods), sharey=True)
    for axes, (cost, label) in zip(panels[0], _COSTS, strict=True):
        _dots(axes, methods, lambda row, c=cost: cost_to(row, goal, c), colours)  # type: ignore[misc]
        axes.set(xlabel=label, title=f"to {100 * goal:g} % accuracy")
    limits = f"T = {time:g} s, E = {energy:g} J per learner; FedAvg that waits keeps neither limit"
    headline(figure, _cheapest(methods, goal))
    text = "Dots: seeds, bar: median; of each baseline the number of epochs that ends best."
    footer(figure, f"{text} {limits}.", about(rows, notice))
    return figure


def _cheapest(methods: dict[str, list[Row]], goal: float) -> str:
    """Say who reaches an accuracy first and with least energy (medians over seeds)."""
    words = []
    for cost, adverb in (("makespan_s", "soonest"), ("energy_j", "with least energy")):
        need = {name: median([cost_to(row, goal, cost) for row in g]) for name, g in methods.items()}
        words.append(f"{adverb}: {min(need, key=lambda name: need[name])}")
    return f"{100 * goal:g} % {'; '.join(words)}"


def _quickest(groups: dict[str, list[Row]], goal: float) -> str:
    """Say which groups need the fewest cycles (medians over seeds)."""
    need = {name: median([cycles_to(row, goal) for row in rows]) for name, rows in groups.items()}
    best = [name for name, cycles in need.items() if cycles == min(need.values())]
    who = " and ".join(best) if len(best) < 3 else f"{len(best)} of {len(need)} alike"
    return f"Fewest cycles to {100 * goal:g} % ({min(need.values()):g}): {who}"


def _comparison(
    groups: dict[str, list[Row]], colour: Callable[[str], str], notice: str, words: str
) -> Figure:
    """Draw cycles to two accuracies and the last accuracy, a line per group."""
    rows = [row for group in groups.values() for row in group]
    goals = _goals(rows, 2)
    colours = {name: colour(name) for name in groups}
    figure, panels = canvas(1, len(goals) + 1, height=0.5 + 0.26 * len(groups), sharey=True)
    for axes, goal in zip(panels[0], goals, strict=False):
        _dots(axes, groups, lambda row, g=goal: cycles_to(row, g), colours)  # type: ignore[misc]
        axes.set(xlabel="cycles", title=f"cycles to {100 * goal:g} %")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    last = min(len(row["accuracy"]) for row in rows)
    _dots(panels[0][-1], groups, lambda row: 100 * float(at_cycle([row], last)[0]), colours, 0.5)
    panels[0][-1].set(xlabel="test accuracy (%)", title=f"after {last} cycles")
    headline(figure, _quickest(groups, goals[-1]))
    settings = " and ".join(f"T = {t:g} s, E = {e:g} J" for t, e in sorted({setting(row) for row in rows}))
    footer(figure, f"{words} Dots: seeds, bar: median. {settings}.", about(rows, notice))
    return figure


def _varied(rows: Sequence[Row], key: Callable[[Row], str]) -> list[Row]:
    """Return the rows of the (T, E) with most cells among those where something takes several values."""
    groups = by(rows, setting)
    groups = {s: g for s, g in groups.items() if len({key(row) for row in g}) > 1}
    return max(groups.values(), key=len) if groups else []


def rules(results: Sequence[Row], notice: str = "") -> Figure:
    """Compare the rules that allocate (PL): hand-outs, the progress objective, stragglers left out."""
    pool = [r for r in trained(results) if is_like(r, mode="pl", average="data", baseline="")]
    pool = [r for r in pool if family(r) == "HA"]
    rows = _varied(pool, rule)
    caps = {cap(r) for r in rows if rule(r) != "proportional"}
    groups = by([r for r in rows if cap(r) in caps], lambda r: f"c={cap(r)}, {rule(r)}")
    groups = {name: once_per_seed(group) for name, group in groups.items()}
    if len(groups) < 2:
        raise NoCells("needs HA cells with several rules")
    return _comparison(groups, lambda n: COLOURS[int(n[2])], notice, "PL, IID data, heterogeneity aware.")


def averaging(results: Sequence[Row], notice: str = "") -> Figure:
    """Compare the ways to average (PL)."""
    pool = [
        r
        for r in trained(results)
        if family(r) == "HA" and is_like(r, mode="pl", baseline="", exclude="infeasible")
    ]
    rows = _varied(pool, lambda r: str(r["config"]["average"]))
    tried = {(rule(r), cap(r)) for r in rows if r["config"]["average"] != "data"}
    rows = [r for r in rows if (rule(r), cap(r)) in tried and r["config"]["scheme"] != "ha-sync"]
    groups = by(rows, lambda r: f"{rule(r)}, c={cap(r)}, {r['config']['average']}")
    if len(groups) < 2:
        raise NoCells("needs HA-Asyn cells with several ways to average")
    tint = dict(zip(sorted({rule(r) for r in rows}), COLOURS, strict=False))
    return _comparison(groups, lambda n: tint[n.split(",")[0]], notice, "PL, ways to average.")


def federated(results: Sequence[Row], notice: str = "") -> Figure:
    """Compare rules and staleness in FL with Dirichlet labels."""
    rows = [r for r in trained(results) if is_like(r, mode="fl", baseline="", average="data")]
    groups = by(rows, lambda r: (r["config"]["alpha"], cap(r), rule(r)))
    if len(groups) < 2:
        raise NoCells("needs FL cells with several alpha, c or rules")
    words = {alpha: f"Dir({alpha:g})" if alpha else "IID" for alpha, _, _ in groups}
    named = {f"{words[alpha]}, c={c}, {how}": group for (alpha, c, how), group in groups.items()}
    tint = dict(zip(words.values(), COLOURS[1:], strict=False))
    return _comparison(named, lambda name: tint[name.split(",")[0]], notice, "FL; Dir(a): Dirichlet labels.")
