"""The generated tables of docs/REPRODUCTION.md and README, from results alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from mel_simulation.pages import markdown_table
from mel_simulation.paper.rows import (
    USUAL,
    by,
    cost_to,
    median,
    method,
    plain,
    server,
    setting,
    trained,
)
from mel_simulation.paper.statements import CLAIMS, Grid, Verdict
from mel_simulation.sweep.results import Row, read_about, read_results


def sources(paths: Sequence[Path]) -> str:
    """Return the files, their cells and the versions that computed them."""
    rows, others = [], set()
    for path in paths:
        about, cells = read_about(path), read_results(path)
        versions = dict(about["versions"])
        ours = Counter(row["version"] for row in cells)
        several = len(ours) > 1
        mixed = ", ".join(f"{name} ({n} cells)" if several else name for name, n in sorted(ours.items()))
        del versions["flwr-mel"]
        others.add(", ".join(f"{name} {version}" for name, version in versions.items()))
        data = about["notice"].split(".")[0] or "full MNIST"
        rows.append([f"`{path.name}`", f"{len(cells)} of {about['cells']}", mixed, data])
    table = markdown_table(["file", "cells", "flwr-mel", "data"], rows)
    return f"{table}\n\nOther packages: {'; '.join(sorted(others))}."


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


def paper_result(results: Iterable[Row], rates: Iterable[Row], percent: float = 95.5) -> str:
    """Return README's table: the profile `rate` beside the paper's schemes."""
    paper = [
        row
        for row in trained(plain(results))
        if setting(row) == (10.0, 10.0) and method(row) in ("HA-Asyn c = 2", "HA-Sync")
    ]
    groups = by(
        [*rates, *paper],
        lambda row: (not method(row).startswith("rate"), server(row) != "average", server(row), method(row)),
    )
    lines = []
    for (_, _, how, name), group in groups.items():
        costs = [
            _range([cost_to(row, percent, cost) for row in group]) for cost in ("makespan_s", "energy_j")
        ]
        broken = mean(act["broken"] for row in group for act in row["acts"])
        beyond = f"{broken:.0f} of {group[0]['config']['learners']}"
        lines.append([name, how, *costs, str(len(group)), beyond])
    head = ["", "server", f"s to {percent:g} %", f"J to {percent:g} %", "placements"]
    return markdown_table([*head, "learners beyond a limit"], lines)


def _range(values: Sequence[float]) -> str:
    if not np.isfinite(values).all():
        return "-"
    return f"{median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"
