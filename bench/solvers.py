"""`Exact` against HiGHS, and against the least work that such a method can do. Ratios within one run.

``python -m bench.solvers``; ``--quick`` prints a small version.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from statistics import median
from time import process_time
from typing import Any

import numpy as np

from bench.problems import fleet_problem
from bench.rivals import IntArray, highs_within
from bench.tables import arguments, publish, table
from flwr_mel import AllocationProblem, Workload, allocate, paper_fleet
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.paper import PAPER_LAYERS
from flwr_mel.solvers import Exact
from flwr_mel.solvers.knapsack import synchronous

#: (T, E): the paper's cells for K = 20, three of them for larger fleets.
CELLS, FEW_CELLS = tuple(product((10, 20, 30, 40), (10, 20, 30))), ((10, 10), (20, 20), (40, 30))
#: Staleness for the races, and for growth with c.
STALENESS, WIDE = (1, 2, 5), (5, 100, 1000, 10_000)


def timed(run: Callable[[], object], repeats: int) -> float:
    """Return the median of processor times, so that other work on the machine does not count."""
    times = []
    for _ in range(repeats):
        start = process_time()
        run()
        times.append(process_time() - start)
    return median(times)


def paper_problem(time_s: float, energy_j: float, staleness: int) -> AllocationProblem:
    """Return a cell of the paper's grid."""
    return AllocationProblem.from_devices(
        paper_fleet(np.random.default_rng(0), energy_j=energy_j),
        Workload.mlp(PAPER_LAYERS),
        cycle_time_s=time_s,
        total_samples=60_000,
        min_samples=100,
        staleness=staleness,
    )


def against_highs(problem: AllocationProblem, seconds: float, repeats: int) -> tuple[float, float]:
    """Return our time and how many times as long HiGHS takes; both must find the same optimum.

    HiGHS gets the window formulation with capacities computed beforehand.
    """
    solution = allocate(problem, Exact())
    tables: dict[int, IntArray] = {}
    highs_within(problem, 0.0, tables)
    ours: list[float] = []
    theirs: list[float] = []
    answer: tuple[int | None, bool] = (None, False)
    while len(theirs) < repeats and sum(theirs) < seconds / 4:
        ours.append(timed(lambda: allocate(problem, Exact()), 3))
        start = process_time()
        answer = highs_within(problem, seconds, tables)
        theirs.append(process_time() - start)
    if answer[1] and answer[0] != int(solution.epochs.sum()):
        raise RuntimeError(f"HiGHS proves {answer[0]}, Exact finds {int(solution.epochs.sum())}")
    return median(ours), median(b / a for a, b in zip(ours, theirs, strict=True))


def base(problem: AllocationProblem) -> Callable[[], object]:
    """Return the least work of such a method: the capacities in the windows, and one sort."""
    capacities, c = Capacities.of(problem), problem.staleness
    sync = synchronous(capacities, problem.total_samples)
    first, last = max(1, sync - c), min(sync + c, int(capacities.most_epochs.max()))

    def run() -> None:
        caps = Capacities.of(problem).table(first, last)
        np.argsort((caps[0] - caps[-1]) / max(last - first, 1), kind="stable")

    return run


def races(cells: tuple[tuple[int, int], ...], learners: int, repeats: int, seconds: float) -> list[list[str]]:
    """Race HiGHS for every staleness over some cells."""
    rows = []
    for c in STALENESS:
        found = []
        for time_s, energy_j in cells:
            paper = learners == 20
            problem = (
                paper_problem(time_s, energy_j, c) if paper else fleet_problem(learners, time_s, energy_j, c)
            )
            found.append(against_highs(problem, seconds, repeats))
        ours, ratios = (list(x) for x in zip(*found, strict=True))
        print(
            f"K={learners} c={c}: {median(ratios):.0f} ({min(ratios):.1f} to {max(ratios):.0f})", flush=True
        )
        rows.append(
            [
                f"{learners:,}",
                str(c),
                f"{median(ours) * 1e3:.2f} ms",
                f"{median(ratios):.0f}",
                f"{min(ratios):.1f}",
                f"{max(ratios):.0f}",
            ]
        )
    return rows


def alone(sizes: tuple[int, ...], repeats: int) -> list[list[str]]:
    """Compare large fleets with the least work."""
    rows = []
    for learners, c in product(sizes, (1, 5)):
        ratios, ours, gaps = [], [], []
        for time_s, energy_j in FEW_CELLS if learners <= 1000 else FEW_CELLS[1:2]:
            problem, solver = fleet_problem(learners, time_s, energy_j, c), Exact()
            gaps.append(allocate(problem, solver).gap)
            least = timed(base(problem), repeats)
            ours.append(timed(lambda: allocate(problem, solver), repeats))  # noqa: B023
            ratios.append(ours[-1] / least)
        print(f"K={learners} c={c}: {median(ratios):.1f}", flush=True)
        rows.append(
            [
                f"{learners:,}",
                str(c),
                f"{median(ours) * 1e3:.3g} ms",
                f"{median(ratios):.1f}",
                f"{max(ratios):.1f}",
                f"{max(gaps):.0e}",
            ]
        )
    return rows


def wide(repeats: int) -> list[list[str]]:
    """Let the staleness grow, K = 20: times those of c = 5, and the gap that stays open."""
    rows = []
    for least, (time_s, energy_j) in product((100, 1), FEW_CELLS):
        times, gaps = [], []
        for c in WIDE:
            problem = paper_problem(time_s, energy_j, c).replace(min_samples=least)
            gaps.append(allocate(problem, Exact()).gap)
            times.append(timed(lambda: allocate(problem, Exact()), repeats))  # noqa: B023
        cells = [f"{t / times[0]:.1f} ({gap:.0e})" for t, gap in zip(times, gaps, strict=True)]
        rows.append([f"{time_s}, {energy_j}", str(least), f"{times[0] * 1e3:.2f} ms", *cells[1:]])
        print(*rows[-1], flush=True)
    return rows


def section(results: dict[str, Any]) -> str:
    """Return the section of the page."""
    races, sizes = results["races"], results["alone"]
    return f"""## Solvers

Ratios of processor times. `Exact` includes handing out the samples and verifying all constraints. HiGHS
gets our window formulation and the capacities, and finds the same optima, for {len(CELLS)} pairs (T, E)
of the paper with K = 20, three with K = 100:

{table(["K", "c", "Exact, median", "HiGHS / Exact, median", "least", "most"], races)}

Large fleets, relative to the least work of any such method, which is all capacities and one sort:

{table(["K", "c", "Exact, median", "ratio, median", "most", "largest gap"], sizes)}

Large staleness caps, K = 20: time relative to c = 5, and in brackets the gap between plan and bound:

{table(["T, E", "d_l", "c = 5", *(f"c = {c:,}" for c in WIDE[1:])], results["wide"])}
"""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: small, prints only")
    given = parser.parse_args()
    quick = given.quick
    allocate(paper_problem(10, 10, 1), Exact())  # imports are not timed
    repeats = 1 if quick else 5
    results = {
        "races": races(FEW_CELLS[:1] if quick else CELLS, 20, repeats, 20.0),
        "alone": alone((1000,) if quick else (1000, 10_000, 1_000_000), 1 if quick else 3),
        "wide": wide(repeats),
    }
    if not quick:
        results["races"] += races(FEW_CELLS, 100, repeats, 20.0)
    publish("solvers", results, section, write=not (quick or given.no_write))


if __name__ == "__main__":
    main()
