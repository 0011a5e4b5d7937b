"""The generated tables of docs/REPRODUCTION.md and README, from results alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from scipy.stats import t

from mel_simulation.pages import markdown_table
from mel_simulation.paper.figures import COMPARED, compared
from mel_simulation.paper.rows import (
    USUAL,
    by,
    cap,
    common_goal,
    cost_to,
    cycles_to,
    family,
    gain_ratio,
    median,
    method,
    plain,
    rule,
    seeds_by_position,
    server,
    setting,
    spread,
    trained,
)
from mel_simulation.paper.statements import CLAIMS, Grid, Verdict
from mel_simulation.sweep.results import Row, read_about, read_results


def sources(paths: Sequence[Path]) -> str:
    """Return the files, their cells and the versions that computed them."""
    rows = []
    for path in paths:
        about, cells = read_about(path), read_results(path)
        versions = dict(about["versions"])
        ours = versions.pop("flwr-mel")
        old = sum(map(seeds_by_position, cells))
        mixed = f"{ours} ({old} cells by 0.1)" if old and not ours.startswith("0.1") else ours
        others = ", ".join(f"{name} {version}" for name, version in versions.items())
        data = about["notice"].split(".")[0] or "full MNIST"
        rows.append([f"`{path.name}`", f"{len(cells)} of {about['cells']}", mixed, data, others])
    return markdown_table(["file", "cells", "flwr-mel", "data", "other packages"], rows)


def verdicts(grid: Grid) -> str:
    """Return how many statements fare how."""
    counts = Counter(claim.check(grid).verdict for claim in CLAIMS)
    shown = [verdict for verdict in Verdict if counts[verdict]]
    return markdown_table([*shown, "all"], [[*(str(counts[v]) for v in shown), str(len(CLAIMS))]])


def statements(grid: Grid) -> str:
    """Return the statements beside ours; values of several seeds are separated by semicolons."""
    found = [(claim, claim.check(grid)) for claim in CLAIMS]
    lines = [[c.where, c.says, f.ours or "-", f"**{f.verdict}**"] for c, f in found]
    return markdown_table(["where", "the paper", "ours, by seed", "verdict"], lines)


def variations(grid: Grid, rows: Iterable[Row]) -> str:
    """Return the statements that do not hold for every seed, with one thing changed at a time."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if name := _variation(row["config"]):
            groups.setdefault(name, []).append(row)
    grids = {name: Grid.of(_as_the_papers(group)) for name, group in groups.items()}
    lines = []
    for claim in CLAIMS:
        if claim.check(grid).verdict in (Verdict.HOLDS, Verdict.MISSING):
            continue
        found = {name: claim.check(varied) for name, varied in grids.items()}
        does = [name for name, each in found.items() if each.verdict is Verdict.HOLDS]
        shown = [each.ours or "-" for each in found.values()]
        lines.append([claim.says, *shown, f"**{' or '.join(does) or 'none of these'}**"])
    return markdown_table(["the paper", *grids, "it takes"], lines)


def _variation(config: dict[str, Any]) -> str:
    words = [f"{k.replace('-', ' ')} {config[k]:g}" for k, usual in USUAL.items() if config[k] != usual]
    return ", ".join([*words, *([] if config["energy"] else ["no energy limits"])])


def _as_the_papers(rows: Sequence[Row]) -> list[Row]:
    """Return cells as if they were the paper's, those without limits once for each of its limits."""
    return [
        {**row, "config": {**row["config"], **USUAL, "energy": energy}}
        for row in rows
        for energy in ([row["config"]["energy"]] if row["config"]["energy"] else (10.0, 20.0, 30.0))
    ]


def grid_table(results: Iterable[Row]) -> str:
    """Return one line per (T, E): synchronous, the best c, equal batches; accuracies after the last cycle."""
    head = ["T", "E", "HA-Sync, %", "best HA-Asyn, %", "best HU, %", "updates to 95.5 %: sync, best c"]
    lines = []
    for (time_s, energy_j), group in by(trained(plain(results)), setting).items():
        schemes = by(group, lambda r: (family(r), cap(r)))
        final = {key: mean(100 * row["accuracy"][-1] for row in some) for key, some in schemes.items()}
        need = {key: median([cycles_to(row, 0.955) for row in some]) for key, some in schemes.items()}
        asyn, equal = [key for key in final if key[0] == "HA" and key[1]], [k for k in final if k[0] == "HU"]
        best = [max(keys, key=final.__getitem__, default=None) for keys in (asyn, equal)]
        lines.append(
            [
                f"{time_s:g}",
                f"{energy_j:g}",
                f"{final['HA', 0]:.2f}",
                *(f"{final[key]:.2f} (c = {key[1]})" if key else "infeasible" for key in best),
                f"{_count(need['HA', 0])}, {_count(min(need[key] for key in asyn))}",
                f"{np.mean([gain_ratio(row) for row in schemes['HA', 0]]):.2f}",
            ]
        )
    return markdown_table([*head, "τ\\*/⌊τ\\*⌋"], lines)


def _count(value: float) -> str:
    return f"{value:.0f}" if np.isfinite(value) else "-"


def rules(results: Iterable[Row]) -> str:
    """Compare rules and averages with the paper's at the same data, T, E and c, seed by seed."""
    rows = [r for r in trained(results) if not r["config"]["baseline"] and family(r) == "HA"]
    rows = [r for r in rows if r["config"]["exclude"] == "infeasible" and cap(r) in (0, 2)]
    groups = by(rows, lambda r: (_data(r), cap(r), rule(r), str(r["config"]["average"])))
    lines = []
    for (data, c, how, average), group in groups.items():
        papers = groups[data, c, "proportional", "data"]
        if sum(key[:2] == (data, c) for key in groups) == 1:
            continue
        accuracy = spread([100 * row["accuracy"][-1] for row in group])
        joules = mean(float(np.mean([act["energy_j"] for act in row["acts"]])) for row in group)
        lines.append([data, str(c), how, average, accuracy, f"{joules:.0f}", _against(papers, group)])
    head = [
        "data",
        "c",
        "hand-out",
        "average",
        "accuracy, %",
        "J per cycle",
        "against the paper's",
    ]
    return markdown_table(head, lines)


def _data(row: Row) -> str:
    time_s, energy_j = setting(row)
    alpha = row["config"]["alpha"]
    kept = f"FL, Dirichlet {alpha:g}" if alpha else "FL, IID"
    return f"{kept if row['config']['mode'] == 'fl' else 'PL'}, T={time_s:g}, E={energy_j:g}"


def _against(papers: Sequence[Row], ours: Sequence[Row]) -> str:
    """Return the difference of the last accuracies in points, and a verdict at the 5 % level (paired t)."""
    base = {row["config"]["seed"]: row["accuracy"][-1] for row in papers}
    gaps = [
        100 * (r["accuracy"][-1] - base[r["config"]["seed"]]) for r in ours if r["config"]["seed"] in base
    ]
    if len(gaps) < 2 or not any(gaps):
        return "-"
    margin = stdev(gaps) / len(gaps) ** 0.5 * t.ppf(0.975, len(gaps) - 1)
    verdict = "no clear difference" if abs(mean(gaps)) <= margin else "better" if mean(gaps) > 0 else "worse"
    return f"{mean(gaps):+.2f} ± {stdev(gaps):.2f}, {verdict}"


def baselines(results: Sequence[Row], where: tuple[float, float], only: Sequence[str] = ()) -> str:
    """Return time and energy to an accuracy at one (T, E), with allocation and without.

    Parameters
    ----------
    results : sequence of dict
        All cells.
    where : tuple of float
        (T, E).
    only : sequence of str
        The lines; by default all schemes with c = 0 or 2 and all baselines.
    """
    own = [r for r in compared(results, where) if r["config"]["baseline"] or family(r) == "HA"]
    own = [r for r in own if r["config"]["baseline"] or rule(r) == "proportional"]
    groups = by([r for r in own if r["config"]["baseline"] or cap(r) in (0, 2)], method)
    names = [name for name in only or groups if name in groups]
    everything = [row for name in names for row in groups[name]]
    goal, last = common_goal(everything), min(len(row["accuracy"]) for row in everything)
    head = ["", f"s to {100 * goal:g} %", f"J to {100 * goal:g} %", f"after {last} cycles, %"]
    lines = []
    for name in names:
        group = groups[name]
        costs = [_range([cost_to(row, goal, cost) for row in group]) for cost in ("makespan_s", "energy_j")]
        broken = mean(act["broken"] for row in group for act in row["acts"])
        final = spread([100 * row["accuracy"][last - 1] for row in group])
        lines.append([name, *costs, final, f"{broken:.1f} of {group[0]['config']['learners']}"])
    return markdown_table([*head, "learners beyond a limit"], lines)


def _range(values: Sequence[float]) -> str:
    if not np.isfinite(values).all():
        return "-"
    return f"{median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def headline(results: Sequence[Row]) -> str:
    """Return the paper's schemes beside baselines."""
    return baselines(results, (10.0, 10.0), COMPARED)


def paper_result(results: Sequence[Row], rates: Sequence[Row], goal: float = 0.955) -> str:
    """Return README's table: time and energy to an accuracy on the paper's fleet.

    Parameters
    ----------
    results : sequence of dict
        The paper's schemes and baselines.
    rates : sequence of dict
        Cells of the profile `rate`.
    goal : float
        The accuracy.
    """
    shown = ("HA-Asyn c = 2", "HA-Sync", "FedAvg, waits, 3 ep.")
    groups = by([*rates, *compared(results)], lambda row: (server(row), method(row)))
    order = sorted(groups, key=lambda key: (not key[1].startswith("rate"), key[0] != "average", key))
    lines = []
    for key in (key for key in order if key[0] != "average" or key[1] in shown):
        group = groups[key]
        costs = [_range([cost_to(row, goal, cost) for row in group]) for cost in ("makespan_s", "energy_j")]
        broken = mean(act["broken"] for row in group for act in row["acts"])
        beyond = f"{broken:.0f} of {group[0]['config']['learners']}"
        lines.append([key[1], key[0], *costs, str(len(group)), beyond])
    head = ["", "server", f"s to {100 * goal:g} %", f"J to {100 * goal:g} %", "placements"]
    return markdown_table([*head, "learners beyond a limit"], lines)


def lemma(rows: Sequence[Row]) -> str:
    """Return how often the distance of Lemma 1 exceeds each bound."""
    head = ["bound", "eta\\*beta", "rows in which the distance is larger", "largest distance / bound"]
    lines = []
    for bound in ("printed", "weighted", "corrected"):
        for step in sorted({row["step"] for row in rows}):
            ratios = [r["distance"] / r[bound] for r in rows if r["step"] == step and r["anchor"] == "max"]
            over = sum(ratio > 1 for ratio in ratios)
            lines.append([bound, f"{step:g}", f"{over} of {len(ratios)}", f"{max(ratios):.2g}"])
    return markdown_table(head, lines)
