"""Write docs/BENCHMARKS.md and a table of docs/REPRODUCTION.md from results: ``python -m bench.page``."""

from __future__ import annotations

from pathlib import Path

from mel_simulation.pages import fill

from bench import fleet, gallery, learning, paper_grid, solvers, startup, step, strategy, sweep, updates
from bench.tables import load

HEAD = """# Benchmarks

`make bench` measures everything on this page, and `make docs` writes it from the results in `bench/results/`.
Seconds depend on the machine, which had two cores; ratios compare measurements of the same run.
"""
SECTIONS = (gallery, fleet, solvers, strategy, updates, learning, startup, sweep)


def page() -> str:
    """Return the page."""
    parts = [HEAD.strip()]
    for module in SECTIONS:
        name = module.__name__.rpartition(".")[2]
        results = load(name)
        made = f"Made by `python -m {module.__name__}`, version {results['version']}."
        parts += [module.section(results).strip(), made]
    parts += [step.section(step.runs()).strip(), "Made by `python -m bench.step --data DIR`."]
    return "\n\n".join(parts) + "\n"


def update(docs: Path) -> None:
    """Write BENCHMARKS.md, and fill the table of REPRODUCTION.md, in the directory of the pages."""
    (docs / "BENCHMARKS.md").write_text(page(), encoding="utf-8")
    fill(docs / "REPRODUCTION.md", {"gaps": paper_grid.section(load("paper_grid"))})


if __name__ == "__main__":
    update(Path(__file__).parent.parent / "docs")
