"""The reproduction from results: ``python -m mel_simulation.paper.reproduction docs`` or ``RUN_DIRECTORY``.

For ``docs`` it reads the committed results, fills the generated blocks of REPRODUCTION.md and README.md and
draws the figures. For the directory of a sweep it writes REPRODUCTION.md and figures into it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from flwr_mel._files import atomically
from mel_simulation.pages import fill
from mel_simulation.paper import style, tables
from mel_simulation.paper.figures import compared, draw
from mel_simulation.paper.lemma_figure import draw_lemma
from mel_simulation.paper.statements import Grid
from mel_simulation.sweep.results import Row, read_results

#: Committed results of the reproduction.
SOURCES = ("headline", "past", "paper")
#: Those of README's first table.
RATES = "rate"


def read_lemma(path: Path) -> list[Row]:
    """Read the rows of `mel_simulation.paper.lemma`."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if "about" not in row]


def blocks(rows: Sequence[Row], paths: Sequence[Path], varied: Sequence[Row] = ()) -> dict[str, str]:
    """Return the generated blocks by their names, as far as there are cells for them."""
    grid = Grid.of(rows)
    found = {
        "sources": tables.sources(paths),
        "verdicts": tables.verdicts(grid),
        "statements": tables.statements(grid),
        "rules": tables.rules(rows),
    }
    if varied:
        found["variations"] = tables.variations(grid, varied)
    if any(key[:2] == ("HA", 0) for key in grid.rows):
        found["grid"] = tables.grid_table(rows)
    for where in ((10.0, 10.0), (20.0, 20.0)):
        if compared(rows, where):
            found[f"baselines-{where[0]:g}"] = tables.baselines(rows, where)
    return found


def update(results: Path, docs: Path, readme: Path) -> None:
    """Fill the pages and draw the figures from the committed results."""
    paths = [results / f"{name}.jsonl" for name in SOURCES]
    rows, lemma = [row for path in paths for row in read_results(path)], read_lemma(results / "lemma.jsonl")
    varied, short = results / "variations.jsonl", results / f"{RATES}.jsonl"
    rates = read_results(short)
    found = blocks(rows, [*paths, varied, short], read_results(varied)) | {"lemma": tables.lemma(lemma)}
    found["paper-result"] = tables.paper_result(rows, rates)
    fill(docs / "REPRODUCTION.md", found)
    fill(readme, {"headline": tables.headline(rows), "paper-result": found["paper-result"]})
    draw(rows, docs / "figures", rates)
    with style.style():
        style.save(draw_lemma(lemma), docs / "figures", "lemma1")


def write(directory: Path) -> Path:
    """Write the tables and figures of a sweep into its directory."""
    rows = read_results(directory)
    parts = [f"# Reproduction: {directory.name}"]
    parts += [f"![{path.stem}](figures/{path.name})" for path in draw(rows, directory / "figures")]
    found = blocks(rows, [directory / "results.jsonl"])
    parts += [f"## {name}\n\n{text}" for name, text in found.items()]
    atomically(directory / "REPRODUCTION.md", lambda file: file.write("\n\n".join(parts) + "\n"))
    return directory / "REPRODUCTION.md"


if __name__ == "__main__":
    _where = Path(sys.argv[1])
    if _where.name == "docs":
        update(Path("results"), _where, Path("README.md"))
    else:
        print(write(_where))
