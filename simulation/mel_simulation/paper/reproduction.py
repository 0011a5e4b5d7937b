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

#: Committed results: the paper's cells, one thing varied, and README's table.
SOURCES = ("headline", "paper", "variations", "rate")


def blocks(rows: Sequence[Row], paths: Sequence[Path]) -> dict[str, str]:
    """Return the tables of any sweep by their names."""
    grid = Grid.of(rows)
    return {
        "sources": tables.sources(paths),
        "verdicts": tables.verdicts(grid),
        "statements": tables.statements(grid),
    }


def update(results: Path, docs: Path, readme: Path) -> None:
    """Fill the pages and draw the figures from the committed results."""
    *papers, variations, short = paths = [results / f"{name}.jsonl" for name in SOURCES]
    rows = [row for path in papers for row in read_results(path)]
    found = blocks(rows, paths)
    found["variations"] = tables.variations(Grid.of(rows), read_results(variations))
    found["engine"] = on_engine.table(results / on_engine.RESULTS.name, read_results(short))
    fill(docs / "REPRODUCTION.md", found)
    fill(readme, {"paper-result": tables.paper_result(rows, read_results(short))})
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


if __name__ == "__main__":
    _where = Path(sys.argv[1])
    if _where.name == "docs":
        update(Path("results"), _where, Path("README.md"))
    else:
        print(write(_where))
