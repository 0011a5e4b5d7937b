"""The reproduction from results: ``python -m mel_simulation.paper.reproduction docs`` or ``RUN_DIRECTORY``.

For ``docs`` it reads the committed results, fills the generated blocks of REPRODUCTION.md and README.md and
draws the figures. For the directory of a sweep it writes REPRODUCTION.md and figures into it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from mel_simulation.pages import fill, write_page
from mel_simulation.paper import on_engine, tables
from mel_simulation.paper.figures import draw
from mel_simulation.paper.statements import Grid
from mel_simulation.sweep.results import Row, read_about, read_results

#: Committed results of the reproduction.
SOURCES = ("headline", "paper")
#: Those of README's first table.
RATES = "rate"


def blocks(rows: Sequence[Row], paths: Sequence[Path], varied: Sequence[Row] = ()) -> dict[str, str]:
    """Return the generated blocks by their names, as far as there are cells for them."""
    grid = Grid.of(rows)
    found = {
        "sources": tables.sources(paths),
        "verdicts": tables.verdicts(grid),
        "statements": tables.statements(grid),
    }
    if varied:
        found["variations"] = tables.variations(grid, varied)
    return found


def update(results: Path, docs: Path, readme: Path) -> None:
    """Fill the pages and draw the figures from the committed results."""
    paths = [results / f"{name}.jsonl" for name in SOURCES]
    rows = [row for path in paths for row in read_results(path)]
    varied, short = results / "variations.jsonl", results / f"{RATES}.jsonl"
    found = blocks(rows, [*paths, varied, short], read_results(varied))
    found["engine"] = on_engine.table(results / on_engine.RESULTS.name, read_results(short))
    fill(docs / "REPRODUCTION.md", found)
    fill(readme, {"paper-result": tables.paper_result(rows, read_results(short))})
    draw(rows, docs / "figures")


def write(directory: Path) -> Path:
    """Write the tables and figures of a sweep into its directory."""
    rows, page = read_results(directory), directory / "REPRODUCTION.md"
    results = directory / "results.jsonl"
    title, notice = f"Reproduction: {directory.name}", read_about(results)["notice"].partition(".")[0]
    title += f" ({notice})" if notice else ""
    write_page(page, title, draw(rows, directory / "figures"), blocks(rows, [results]))
    return page


if __name__ == "__main__":
    _where = Path(sys.argv[1])
    if _where.name == "docs":
        update(Path("results"), _where, Path("README.md"))
    else:
        print(write(_where))
