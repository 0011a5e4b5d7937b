"""The paper's solver against the exact one on the paper's grid; writes docs/SUGGEST_IMPROVE.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, median

import numpy as np
from rich.console import Console
from rich.progress import track

from flwr_mel import AllocationProblem, Solution, Status, Workload, allocate, paper_fleet
from flwr_mel.paper import PAPER_LAYERS
from flwr_mel.solvers import Exact, SuggestImprove
from flwr_mel.solvers.sdp import MARGIN
from flwr_mel.solvers.suggest_improve import Suggest

TIMES_S = tuple(range(5, 45, 5))
ENERGIES_J = (10, 20, 30)
STALENESS = tuple(range(6))
PLACEMENTS = (0, 1, 2)
TARGET = Path(__file__).parent.parent / "docs" / "SUGGEST_IMPROVE.md"
SDP, BISECTION = Suggest.SDP, Suggest.BISECTION


@dataclass(frozen=True, slots=True)
class Cell:
    """One problem of the grid, solved three times."""

    time_s: int
    energy_j: int
    placement: int
    staleness: int
    exact: Solution
    ours: dict[Suggest, Solution]

    def stat(self, name: str, suggest: Suggest = SDP) -> float:
        """Read a number the paper's solver reports."""
        return float(self.ours[suggest].stats[name])

    def gap(self, stage: str, suggest: Suggest) -> float:
        """Return by which share a stage stays below the optimum."""
        return 1 - self.stat(f"epochs_{stage}", suggest) / self.exact.mean_epochs

    def slowdown(self, suggest: Suggest) -> float:
        """Return the time in units of the exact solver's."""
        return self.stat("seconds", suggest) / float(self.exact.stats["seconds"])


def measure(console: Console) -> list[Cell]:
    """Solve the whole grid."""
    workload = Workload.mlp(PAPER_LAYERS)
    fleets = {
        (e, s): paper_fleet(np.random.default_rng(s), energy_j=e) for e in ENERGIES_J for s in PLACEMENTS
    }
    grid = list(product(TIMES_S, ENERGIES_J, PLACEMENTS, STALENESS))
    cells: list[Cell] = []
    # The first cell is solved twice, so that imports are not timed.
    for time_s, energy_j, place, c in track([grid[0], *grid], "Paper's grid", console=console):
        problem = AllocationProblem.from_devices(
            fleets[energy_j, place],
            workload,
            cycle_time_s=time_s,
            total_samples=60_000,
            min_samples=100,
            staleness=c,
        )
        ours = {s: allocate(problem, SuggestImprove(suggest=s)) for s in Suggest}
        cells.append(Cell(time_s, energy_j, place, c, allocate(problem, Exact()), ours))
    return cells[1:]


def percent(x: float, digits: int = 1) -> str:
    return f"{100 * x:.{digits}f} %"


def both(values: Iterable[float]) -> str:
    """Mean and worst, as percentages."""
    known = list(values)
    return f"{percent(fmean(known), 2)} / {percent(max(known))}"


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def per(cells: list[Cell], key: str, row: Callable[[list[Cell]], list[str]]) -> list[list[str]]:
    """One row for each value of a cell's field, and one for all cells."""
    values = sorted({getattr(cell, key) for cell in cells})
    groups = [(str(v), [cell for cell in cells if getattr(cell, key) == v]) for v in values]
    return [[name, *row(group)] for name, group in [*groups, ("all", cells)]]


def gaps(cells: list[Cell]) -> str:
    head = ["c", "floored, SDP", "floored, bisection", "repaired, SDP", "repaired, bisection"]
    columns = list(product(("floored", "repaired"), (SDP, BISECTION)))
    return table(
        head,
        per(cells, "staleness", lambda group: [both(x.gap(*column) for x in group) for column in columns]),
    )


def stages(cells: list[Cell]) -> str:
    names = ("suggested", "improved", "floored", "repaired")
    head = ["c", *(f"{n}, {s}" for s in (SDP, BISECTION) for n in names), "exact"]

    def row(group: list[Cell]) -> list[str]:
        ours = [fmean(x.stat(f"epochs_{n}", s) for x in group) for s in (SDP, BISECTION) for n in names]
        return [f"{v:.2f}" for v in [*ours, fmean(x.exact.mean_epochs for x in group)]]

    return table(head, per(cells, "staleness", row))


def optimal(cells: list[Cell]) -> str:
    head = ["c", "floored, SDP", "floored, bisection", "repaired, SDP", "repaired, bisection", "proven, SDP"]

    def row(group: list[Cell]) -> list[str]:
        columns = product(("floored", "repaired"), (SDP, BISECTION))
        shares = [fmean(x.gap(stage, s) <= 1e-12 for x in group) for stage, s in columns]
        return [percent(v) for v in [*shares, fmean(x.ours[SDP].status is Status.OPTIMAL for x in group)]]

    return table(head, per(cells, "staleness", row))


def bounds(cells: list[Cell]) -> str:
    head = ["T, s", "mean tau*", "SDP bound / tau*: mean", "worst"]

    def row(group: list[Cell]) -> list[str]:
        ratios = [x.stat("sdp_bound") / x.stat("relaxed_optimum") for x in group]
        tau = fmean(x.stat("relaxed_optimum") for x in group)
        return [f"{tau:.2f}", f"{fmean(ratios):.4f}", f"{max(ratios):.4f}"]

    # The SDP does not know c: one cell per (T, E, placement).
    return table(head, per([x for x in cells if x.staleness == 0], "time_s", row))


def times(cells: list[Cell]) -> str:
    head = ["c", "SDP, times as long as Exact (median)", "bisection, times as long (median)"]
    rows = per(
        cells,
        "staleness",
        lambda group: [f"{median(x.slowdown(s) for x in group):.0f}" for s in (SDP, BISECTION)],
    )
    return table(head, rows)


def document(cells: list[Cell]) -> str:
    """Put the tables into words."""
    sync = [x for x in cells if x.staleness == 0]
    whole = {(x.time_s, x.energy_j, x.placement): x.exact.mean_epochs for x in sync}
    loser = max(sync, key=lambda x: x.stat("relaxed_optimum") / x.exact.mean_epochs)
    tau, kept = loser.stat("relaxed_optimum"), loser.exact.mean_epochs
    lost = [x.stat("samples_lost") for x in cells]
    below = fmean(
        x.stat("epochs_floored") < whole[x.time_s, x.energy_j, x.placement] for x in cells if x.staleness
    )
    solvers = ", ".join(sorted({str(x.ours[SDP].stats["sdp_status"]) for x in cells}))
    return f"""# The paper's solver: what each of its steps brings

<!-- Generated by `python -m bench.paper_grid`; every number below is measured. Do not edit. -->

`SuggestImprove` is the paper's suggest-and-improve method, repaired where it has to be. Here it meets
`Exact` on the paper's grid: T = {TIMES_S[0]} to {TIMES_S[-1]} s, E = {", ".join(map(str, ENERGIES_J))} J,
c = {STALENESS[0]} to {STALENESS[-1]}, {len(PLACEMENTS)} placements of 20 learners, 60,000 samples, at least
100 per learner: {len(cells)} problems.

1. **Suggest.** Solve the relaxed synchronous problem, by the paper's SDP or exactly by bisection.
2. **Improve.** Coordinate descent on the relaxed asynchronous problem, over the tau_k and pairs (d_i, d_j).
   The paper names the method only; the choice of coordinates and their order is ours.
3. **Floor.** The paper stops here ("as published").
4. **Repair.** Ours: hand out the samples that the floor lost, and go on with the same coordinates in
   integers.

## Gap to the optimum, mean / worst

The share by which the mean number of epochs stays below `Exact`'s.

{gaps(cells)}

## Mean epochs after each stage

{stages(cells)}

*Suggested* means: everybody does what the slowest learner can do on the suggested batches.

## Share of problems solved to optimality

{optimal(cells)}

*Proven*: the solver knows it, because the linear-relaxation certificate meets its result.

## Why the floor alone loses

- The epochs are small numbers, so a floor is a large step. At T = {loser.time_s} s, E = {loser.energy_j} J
  the relaxed synchronous optimum is tau* = {tau:.2f}, of which the floor keeps {kept:.0f}:
  {percent(1 - kept / tau, 0)} of everybody's epochs are given away.
- With c > 0 the improve step does not know of the floor: a tau_k just below an integer suits it, and the
  floor then takes nearly a whole epoch. In {percent(below, 0)} of the problems with c > 0 the floored
  result (SDP) is below what the synchronous scheme (c = 0) reaches in integers.
- The floor also breaks sum d_k = d: it loses {fmean(lost):.1f} samples on average, {max(lost):.0f} at
  worst, and the published method has no step to give them back. The gaps of the floored columns
  count these allocations as if they were valid.
- A pair of coordinates cannot move the window of all tau_k. Descent from the exact optimum of the
  relaxed problem, where everybody is at tau*, therefore stops early; in integers we move the
  window itself as one more coordinate.

## The SDP

As printed (Eq_10_theoremSDP) it has no solution. The matrix F2 of the Lagrangian has a zero diagonal, so it
is semidefinite only if every lambda_k and gamma_k is 0, and then the row of tau cannot be satisfied: the
dual is infeasible, the primal unbounded (only in the limit, so that a numerical solver may run off to a huge
"optimum" instead of saying so). What it lacks are constraints that put something on the diagonal.
We add boxes for tau and d_k in quadratic form and the product of sum d_k = d with tau; all hold for every
solution. No constraint couples d_i with d_j, so the sparsity pattern is chordal and the one (K+2) x (K+2)
block splits into K blocks of 3 x 3 without loss (Grone et al. 1984).

How good is the bound? Bisection gives the relaxed synchronous optimum tau* exactly, so it can be judged.
The bound includes a safety margin of {MARGIN["optimal"]:g} tau_hi for the tolerance of the numerical solver.
Status of all runs: {solvers}.

{bounds(cells)}

The SDP gives nearly the number that bisection gives exactly, and its candidate has to be repaired before
it can be used. As a starting point for descent it is a different one, not always a worse one (see the
stages above).

## Time

{times(cells)}

Use `Exact`. `SuggestImprove` is here so that the paper's method can be compared with.
"""


def main() -> None:
    """Run the grid and write the page."""
    console = Console()
    TARGET.write_text(document(measure(console)), encoding="utf-8")
    console.print(f"wrote docs/{TARGET.name}")


if __name__ == "__main__":
    main()
