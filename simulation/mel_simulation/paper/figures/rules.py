"""Rules that allocate, ways to average, uneven labels: cycles to an accuracy and the last accuracy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mel_simulation.paper.figures.style import (
    COLOURS,
    canvas,
    dots,
    footer,
    legend,
)
from mel_simulation.paper.rows import (
    NoCells,
    Row,
    about,
    at_cycle,
    by,
    cap,
    common_goals,
    cycles_to,
    family,
    is_like,
    median,
    once_per_seed,
    rule,
    setting,
    trained,
)

#: Accuracies that comparisons count cycles to, if half of the cells get there.
TARGETS = (0.94, 0.95)


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


def _varied(rows: Sequence[Row], key: Callable[[Row], str]) -> list[Row]:
    """Return the rows of the (T, E) with most cells among those where something takes several values."""
    groups = by(rows, setting)
    groups = {s: g for s, g in groups.items() if len({key(row) for row in g}) > 1}
    return max(groups.values(), key=len) if groups else []


def _comparison(
    groups: dict[str, list[Row]], colour: Callable[[str], str], notice: str, words: str
) -> Figure:
    """Draw cycles to two accuracies and the last accuracy, a line per group."""
    rows = [row for group in groups.values() for row in group]
    goals = common_goals(rows, 2, TARGETS)
    colours = {name: colour(name) for name in groups}
    figure, panels = canvas(1, len(goals) + 1, height=0.5 + 0.26 * len(groups), sharey=True)
    for axes, goal in zip(panels[0], goals, strict=False):
        dots(axes, groups, lambda row, g=goal: cycles_to(row, g), colours)  # type: ignore[misc]
        axes.set(xlabel="cycles", title=f"cycles to {100 * goal:g} %")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    last = min(len(row["accuracy"]) for row in rows)
    dots(panels[0][-1], groups, lambda row: 100 * float(at_cycle([row], last)[0]), colours, 0.5)
    panels[0][-1].set(xlabel="test accuracy (%)", title=f"after {last} cycles")
    legend(figure, [], _quickest(groups, goals[-1]))
    settings = " and ".join(f"T = {t:g} s, E = {e:g} J" for t, e in sorted({setting(row) for row in rows}))
    footer(figure, f"{words} Dots: seeds, bar: median. {settings}.", about(rows, notice))
    return figure


def _quickest(groups: dict[str, list[Row]], goal: float) -> str:
    """Say which groups need the fewest cycles (medians over seeds)."""
    need = {name: median([cycles_to(row, goal) for row in rows]) for name, rows in groups.items()}
    best = [name for name, cycles in need.items() if cycles == min(need.values())]
    who = " and ".join(best) if len(best) < 3 else f"{len(best)} of {len(need)} alike"
    return f"Fewest cycles to {100 * goal:g} % ({min(need.values()):g}): {who}"
