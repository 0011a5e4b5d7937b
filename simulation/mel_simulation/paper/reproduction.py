"""The reproduction from results: ``python -m mel_simulation.paper.reproduction docs`` or ``RUN_DIRECTORY``.

For ``docs`` it reads the committed results, fills the generated blocks of REPRODUCTION.md and README.md and
draws the figures. For the directory of a sweep it writes REPRODUCTION.md and figures into it.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from mel_simulation.pages import fill, markdown_table, write_page
from mel_simulation.paper import on_engine
from mel_simulation.paper.figures import draw
from mel_simulation.paper.rows import USUAL, by, cost_to, median, method, plain, server, setting, trained
from mel_simulation.paper.statements import CLAIMS, Grid, Verdict
from mel_simulation.sweep.results import Row, read_about, read_results

#: Committed results: the paper's cells, one thing varied, and README's table.
SOURCES = ("headline", "paper", "variations", "rate")


def blocks(rows: Sequence[Row], paths: Sequence[Path]) -> dict[str, str]:
    """Return the tables of any sweep by their names."""
    return {"sources": sources(paths), "statements": statements(Grid(plain(rows)))}


def update(results: Path, docs: Path, readme: Path) -> None:
    """Fill the pages and draw the figures from the committed results."""
    *papers, varied, short = paths = [results / f"{name}.jsonl" for name in SOURCES]
    rows = [row for path in papers for row in read_results(path)]
    found = blocks(rows, paths)
    found["variations"] = variations(Grid(plain(rows)), read_results(varied))
    found["engine"] = on_engine.table(results / on_engine.RESULTS.name, read_results(short))
    fill(docs / "REPRODUCTION.md", found)
    fill(readme, {"paper-result": paper_result(rows, read_results(short))})
    draw(rows, docs / "figures")


def write(directory: Path) -> Path:
    """Write the tables and figures of a sweep into its directory."""
    rows, results, page = read_results(directory), directory / "results.jsonl", directory / "REPRODUCTION.md"
    notice = read_about(results)["notice"].partition(".")[0]
    title = f"Reproduction: {directory.name}" + (f" ({notice})" if notice else "")
    # The paper's statements are about 12 cycles of the full MNIST.
    judged = [row for row in rows if row["config"]["cycles"] >= 12 and not notice]
    write_page(page, title, draw(rows, directory / "figures"), blocks(judged, [results]))
    return page


def sources(paths: Sequence[Path]) -> str:
    """Return the files, their cells and the versions that computed them."""
    rows, others = [], set()
    for path in paths:
        about, cells = read_about(path), read_results(path)
        ours = Counter(row["version"] for row in cells)
        several = len(ours) > 1
        mixed = ", ".join(f"{name} ({n} cells)" if several else name for name, n in sorted(ours.items()))
        packages = (f"{name} {v}" for name, v in about["versions"].items() if name != "flwr-mel")
        others.add(", ".join(packages))
        data = about["notice"].split(".")[0] or "full MNIST"
        rows.append([f"`{path.name}`", f"{len(cells)} of {about['cells']}", mixed, data])
    table = markdown_table(["file", "cells", "flwr-mel", "data"], rows)
    return f"{table}\n\nOther packages: {'; '.join(sorted(others))}."


def statements(grid: Grid) -> str:
    """Return the statements beside ours; values of several seeds are separated by semicolons."""
    found = [(claim, claim.check(grid)) for claim in CLAIMS]
    lines = [[c.where, c.says, f.ours or "-", f"**{f.verdict}**"] for c, f in found]
    counts = Counter(f.verdict for _, f in found)
    summary = " ".join(f"{v.capitalize()}: {counts[v]}." for v in Verdict if counts[v])
    table = markdown_table(["where", "the paper", "ours, by seed", "verdict"], lines)
    return f"{len(CLAIMS)} statements. {summary}\n\n{table}"


def variations(grid: Grid, rows: Iterable[Row]) -> str:
    """Return the statements that do not hold, with one thing changed at a time."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        limit = row["config"]["energy"]
        for energy in (limit,) if limit else (10.0, 20.0):  # without limits, a cell stands for both
            as_if = {**row, "config": {**row["config"], "energy": energy}}
            groups[_variation(row["config"])].append(as_if)
    grids = {name: Grid(group) for name, group in groups.items()}
    lines = []
    for claim in CLAIMS:
        if claim.check(grid).verdict is not Verdict.FAILS:
            continue
        found = {name: claim.check(varied) for name, varied in grids.items()}
        does = [name for name, each in found.items() if each.verdict is Verdict.HOLDS]
        shown = [each.ours or "-" for each in found.values()]
        lines.append([claim.says, *shown, f"**{' or '.join(does) or 'none of these'}**"])
    return markdown_table(["the paper", *grids, "it takes"], lines)


def _variation(config: dict[str, Any]) -> str:
    words = [f"{k.replace('-', ' ')} {config[k]:g}" for k, usual in USUAL.items() if config[k] != usual]
    return ", ".join([*words, *([] if config["energy"] else ["no energy limits"])])


def paper_result(results: Iterable[Row], rates: Iterable[Row], percent: float = 95.5) -> str:
    """Return README's table: `rate` beside the paper's schemes, those with the same server first."""
    paper = [
        row
        for row in trained(plain(results))
        if setting(row) == (10.0, 10.0) and method(row) in ("HA-Asyn c = 2", "HA-Sync")
    ]
    runs = [*rates, *paper]
    ours = {server(row) for row in runs if method(row).startswith("rate")}
    # What shares its server with `rate` comes first: there, the plan makes the difference.
    groups = by(runs, lambda row: (server(row) not in ours, server(row), method(row)))
    lines = []
    for (_, how, name), group in groups.items():
        costs = [[cost_to(row, percent, cost) for row in group] for cost in ("makespan_s", "energy_j")]
        broken = mean(act["broken"] for row in group for act in row["acts"])
        beyond = f"{broken:.0f} of {group[0]['config']['learners']}"
        lines.append([name, how, *map(_range, costs), str(len(group)), beyond])
    head = ["plan", "server", f"s to {percent:g} %", f"J to {percent:g} %", "placements"]
    return markdown_table([*head, "devices beyond a limit"], lines)


def _range(values: Sequence[float]) -> str:
    if not np.isfinite(values).all():
        return "-"
    return f"{median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


if __name__ == "__main__":
    _where = Path(sys.argv[1])
    if _where.name == "docs":
        update(Path("results"), _where, Path("README.md"))
    else:
        print(write(_where))
