"""The paper's solver against the exact one on the paper's grid: a table of docs/REPRODUCTION.md."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from statistics import fmean, median
from typing import Any

import numpy as np

from bench.solvers import paper_problem
from bench.tables import save, table
from flwr_mel import Solution, Workload, allocate, paper_fleet
from flwr_mel.allocation import AllocationProblem
from flwr_mel.paper import PAPER_LAYERS
from flwr_mel.solvers import Exact, SuggestImprove
from flwr_mel.solvers.suggest_improve import Suggest

TIMES_S, ENERGIES_J, STALENESS, PLACEMENTS = range(5, 45, 5), (10, 20, 30), range(6), (0, 1, 2)
COLUMNS = tuple(product(("floored", "repaired"), Suggest))


@dataclass(frozen=True, slots=True)
class Cell:
    """One problem of the grid, solved by both."""

    staleness: int
    exact: Solution
    ours: dict[Suggest, Solution]

    def stat(self, name: str, suggest: Suggest = Suggest.SDP) -> float:
        """Read a number that the paper's solver reports."""
        return float(self.ours[suggest].stats[name])

    def gap(self, stage: str, suggest: Suggest) -> float:
        """Return by which share a stage stays below the optimum."""
        return 1 - self.stat(f"epochs_{stage}", suggest) / self.exact.mean_epochs


def measure() -> list[Cell]:
    """Solve the whole grid."""
    allocate(paper_problem(10, 10, 1), SuggestImprove())  # imports are not timed
    cells = []
    for time_s, energy_j, place, c in product(TIMES_S, ENERGIES_J, PLACEMENTS, STALENESS):
        problem = AllocationProblem.from_devices(
            paper_fleet(np.random.default_rng(place), energy_j=energy_j),
            Workload.mlp(PAPER_LAYERS),
            cycle_time_s=time_s,
            total_samples=60_000,
            min_samples=100,
            staleness=c,
        )
        ours = {s: allocate(problem, SuggestImprove(suggest=s)) for s in Suggest}
        cells.append(Cell(c, allocate(problem, Exact()), ours))
    return cells


def both(values: Iterable[float]) -> str:
    """Mean and worst, in percent."""
    known = [100 * value for value in values]
    return f"{fmean(known):.2f} / {max(known):.1f}"


def gaps(group: list[Cell]) -> list[str]:
    """How far each method stays below the optimum, how often it meets it, and how long it takes."""
    met = fmean(cell.gap("repaired", Suggest.SDP) <= 1e-12 for cell in group)
    slower = median(cell.stat("seconds") / float(cell.exact.stats["seconds"]) for cell in group)
    found = [both(cell.gap(*column) for cell in group) for column in COLUMNS]
    return [*found, f"{100 * met:.0f} %", f"{slower:.0f}"]


def section(results: dict[str, Any]) -> str:
    """Return the table of docs/REPRODUCTION.md."""
    head = ["c", *(f"{stage}, {suggest}" for stage, suggest in COLUMNS)]
    return table([*head, "repaired, SDP: optimal", "SDP / Exact, time"], results["rows"])


def main() -> None:
    """Run the grid and save the table."""
    cells = measure()
    groups = [(str(c), [cell for cell in cells if cell.staleness == c]) for c in STALENESS]
    results = {"rows": [[name, *gaps(group)] for name, group in [*groups, ("all", cells)]]}
    print(section(results))
    save("paper_grid", results)


if __name__ == "__main__":
    main()
