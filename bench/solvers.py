"""`Exact` against HiGHS, and against the least work that such a method can do. Ratios within one run.

``python -m bench.solvers``; ``--quick`` prints a small version.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from statistics import median
from time import process_time
from typing import Any

import numpy as np

from bench.tables import arguments, save, table
from flwr_mel import AllocationProblem, Workload, allocate, paper_fleet
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.paper import PAPER_LAYERS
from flwr_mel.solvers import Exact
from flwr_mel.solvers.knapsack import synchronous
from tests.problems import fleet_problem
from tests.rivals import IntArray, highs_within

#: (T, E): the paper's cells for K = 20, three of them for larger fleets.
CELLS, FEW_CELLS = tuple(product((10, 20, 30, 40), (10, 20, 30))), ((10, 10), (20, 20), (40, 30))
#: Staleness for the races, and for growth with c: learners and c; None is no cap.
STALENESS = (1, 2, 5)
WIDE = ((20, 100), (20, 1000), (20, 10_000), (20, None), (1000, 100), (1000, None), (100_000, 50))


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


def race(learners: int, c: int, repeats: int, seconds: float) -> dict[str, Any]:
    """Race HiGHS over the cells of the grid, or over a few of them for a larger fleet."""
    cells = CELLS if learners == 20 and repeats > 1 else FEW_CELLS
    make = paper_problem if learners == 20 else partial(fleet_problem, learners)
    found = [against_highs(make(*cell, c), seconds, repeats) for cell in cells]
    ours, ratios = (list(x) for x in zip(*found, strict=True))
    return {"K": learners, "c": c, "ms": 1e3 * median(ours), "highs": spread(ratios)}


def alone(learners: int, c: int, repeats: int) -> dict[str, Any]:
    """Compare `Exact` for a large fleet with the least work."""
    ratios, ours, gaps = [], [], []
    for cell in FEW_CELLS if learners <= 1000 else FEW_CELLS[1:2]:
        problem = fleet_problem(learners, *cell, c)
        gaps.append(allocate(problem, Exact()).gap)
        least = timed(base(problem), repeats)
        ours.append(timed(partial(allocate, problem, Exact()), repeats))
        ratios.append(ours[-1] / least)
    return {"K": learners, "c": c, "ms": 1e3 * median(ours), "sort": spread(ratios), "gap": max(gaps)}


def wide(learners: int, c: int | None, repeats: int) -> dict[str, Any]:
    """Let the staleness cap grow: times relative to c = 5, and the gaps that stay open."""
    ratios, gaps = [], []
    make = paper_problem if learners == 20 else partial(fleet_problem, learners)
    for least, (time_s, energy_j) in product((100, 1), FEW_CELLS if learners <= 1000 else FEW_CELLS[1:2]):
        usual = make(time_s, energy_j, 5).replace(min_samples=least)
        problem = usual.replace(staleness=c)
        gaps.append(allocate(problem, Exact()).gap)
        times = [timed(partial(allocate, each, Exact()), repeats) for each in (problem, usual)]
        ratios.append(times[0] / times[1])
    return {"K": learners, "c": c, "ratio": spread(ratios), "gap": max(gaps)}


def spread(values: list[float]) -> list[float]:
    """Return median, least and most."""
    return [median(values), min(values), max(values)]


def section(results: dict[str, Any]) -> str:
    """Return the section of the page."""
    cells: dict[int, dict[int, str]] = {}
    for x in [*results["races"], *results["large"]]:
        time = f"{x['ms']:.2f} ms" if x["ms"] < 10 else f"{x['ms']:.0f} ms"
        cells.setdefault(x["K"], {})[x["c"]] = f"{time}; {_shown(x.get('highs') or x['sort'])}"
    rows = [[f"{k:,}", *(found.get(c, "-") for c in STALENESS)] for k, found in cells.items()]
    wide = [
        [f"{x['K']:,}", f"{x['c']:,}" if x["c"] else "none", _shown(x["ratio"]), f"{x['gap']:.2%}"]
        for x in results["wide"]
    ]
    return f"""## Solvers

Median processor time of `Exact`, including the d_k and the check of all constraints, and a ratio (median and
range over problems). For K = 20 and 100, the ratio is the time of HiGHS over that of `Exact`; HiGHS gets the
same windows with the capacities given, and finds the same optima. For larger K, the ratio is the time of
`Exact` over that of one sort of all capacities, the least that such a method needs. The largest gap between a
plan and its bound is {max(x["gap"] for x in results["large"]):.0e}.

{table(["K", *(f"c = {c}" for c in STALENESS)], rows)}

With wide staleness caps, or none (d_l = 100 and d_l = 1):

{table(["K", "c", "Exact takes, times c = 5", "largest gap"], wide)}
"""


def _shown(values: list[float]) -> str:
    """Return a median with its range, if it has one."""
    median, low, high = (f"{x:,.1f}" if x < 10 else f"{x:,.0f}" for x in values)
    return median if low == high else f"{median} ({low} to {high})"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: small, prints only")
    given = parser.parse_args()
    quick = given.quick
    allocate(paper_problem(10, 10, 1), Exact())  # imports are not timed
    repeats = 1 if quick else 5
    results = {
        "races": [race(k, c, repeats, 20.0) for k in ((20,) if quick else (20, 100)) for c in STALENESS],
        "large": [
            alone(k, c, repeats) for k in ((1000,) if quick else (1000, 10_000, 1_000_000)) for c in (1, 5)
        ],
        "wide": [wide(k, c, repeats) for k, c in (WIDE[:2] if quick else WIDE)],
    }
    print(section(results))
    if not (quick or given.no_write):
        save("solvers", results)


if __name__ == "__main__":
    main()
