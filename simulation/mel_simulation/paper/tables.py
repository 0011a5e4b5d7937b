"""The generated tables of docs/REPRODUCTION.md and README, from results alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from scipy.stats import t

from mel_simulation.pages import markdown_table
from mel_simulation.paper.rows import (
    USUAL,
    by,
    cap,
    cost_to,
    family,
    is_like,
    median,
    method,
    rule,
    server,
    setting,
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
        ours = Counter(row["version"] for row in cells)
        several = len(ours) > 1
        mixed = ", ".join(f"{name} ({n} cells)" if several else name for name, n in sorted(ours.items()))
        del versions["flwr-mel"]
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


def rules(results: Iterable[Row]) -> str:
    """Compare rules and averages with the paper's at the same data, T, E and c, seed by seed."""
    rows = [r for r in trained(results) if not r["config"]["baseline"] and family(r) == "HA"]
    rows = [r for r in rows if r["config"]["exclude"] == "infeasible" and cap(r) in (0, 2)]
    groups = by(rows, lambda r: (_data(r), cap(r), rule(r), str(r["config"]["average"])))
    lines = []
    for (data, c, how, average), group in groups.items():
        papers = groups.get((data, c, "proportional", "data"), [])
        if papers and group is not papers:
            joules = ", ".join(f"{_joules(some):.0f}" for some in (papers, group))
            lines.append([data, str(c), how, average, joules, _against(papers, group)])
    head = ["data", "c", "hand-out", "average", "J per cycle: paper's, this", "points against the paper's"]
    return markdown_table(head, lines)


def _joules(rows: Sequence[Row]) -> float:
    """Return the mean energy of a cycle."""
    return mean(float(np.mean([act["energy_j"] for act in row["acts"]])) for row in rows)


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


def compared(results: Iterable[Row]) -> list[Row]:
    """Return the cells of README's comparison: shipped data, the paper's average, T = 10 s, E = 10 J."""
    alike = {"mode": "pl", "average": "data", "exclude": "infeasible", "energy_spread": 2.5}
    rows = [row for row in trained(results) if is_like(row, **alike) and setting(row) == (10.0, 10.0)]
    return [row for row in rows if server(row) == "average"]


def _range(values: Sequence[float]) -> str:
    if not np.isfinite(values).all():
        return "-"
    return f"{median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def baselines(results: Iterable[Row], goal: float = 0.95) -> str:
    """Return time and energy of the schemes and of baselines with three epochs."""
    rows = [r for r in compared(results) if r["config"]["baseline"] or family(r) == "HA"]
    groups = by(rows, lambda row: (server(row), method(row)))
    shown = [key for key in groups if key[1] in ("HA-Sync", "HA-Asyn c = 2") or key[1].endswith("3 ep.")]
    return _costs({key: groups[key] for key in shown}, goal)


def paper_result(results: Iterable[Row], rates: Iterable[Row], goal: float = 0.955) -> str:
    """Return README's table: the profile `rate` beside the paper's schemes and FedAvg."""
    shown = ("HA-Asyn c = 2", "HA-Sync", "FedAvg, waits, 3 ep.")
    groups = by([*rates, *compared(results)], lambda row: (server(row), method(row)))
    order = sorted(groups, key=lambda key: (not key[1].startswith("rate"), key[0] != "average", key))
    return _costs({key: groups[key] for key in order if key[0] != "average" or key[1] in shown}, goal)


def _costs(groups: Mapping[tuple[str, str], Sequence[Row]], goal: float) -> str:
    """Return seconds and joules to an accuracy by (server, method)."""
    lines = []
    for (how, name), group in groups.items():
        costs = [_range([cost_to(row, goal, cost) for row in group]) for cost in ("makespan_s", "energy_j")]
        broken = mean(act["broken"] for row in group for act in row["acts"])
        beyond = f"{broken:.0f} of {group[0]['config']['learners']}"
        lines.append([name, how, *costs, str(len(group)), beyond])
    head = ["", "server", f"s to {100 * goal:g} %", f"J to {100 * goal:g} %", "placements"]
    return markdown_table([*head, "learners beyond a limit"], lines)
