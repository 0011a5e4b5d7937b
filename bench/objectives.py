"""The allocation's growth, its objectives and its inverse questions: ``python -m bench.objectives``.

Writes the sections about objectives of docs/BENCHMARKS.md. Ratios are of processor times in one run, the
least of a few repeats each, so that other work on the machine does not count. ``--quick`` prints a small
version.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from itertools import product
from statistics import median
from time import process_time

import numpy as np

from bench import schedulers
from bench.problems import fleet_problem
from bench.rivals import IntArray, highs
from bench.tables import PAGE, table, write_section
from flwr_mel import AllocationProblem, Coefficients, PerCost, Progress, Status, allocate, fastest, greenest
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.solvers import Exact
from flwr_mel.solvers.windows import synchronous

#: What is compared: the objectives, and those of them that spread the work.
GOALS = {
    **{name: name for name in ("epochs", "progress")},
    **{f"progress, share up to {share:.0%}": Progress(share) for share in (0.2, 0.1)},
    **{name: name for name in ("drift:0.002", "soonest", "cheapest")},
    "per-cost:1,0.1": PerCost(1.0, 0.1),
}


def least(call: Callable[[], object], repeats: int) -> float:
    """Return the least processor time of a few calls."""
    seconds = []
    for _ in range(repeats):
        start = process_time()
        call()
        seconds.append(process_time() - start)
    return max(min(seconds), 1e-9)


def against_highs(repeats: int) -> str:
    """Compare over the paper's (T, E)."""
    rows = []
    for c in (1, 2, 5):
        ratios = []
        for time_s, energy_j in product((5, 10, 20, 40), (10, 20, 30)):
            problem, caps = fleet_problem(20, time_s, energy_j, c), dict[int, IntArray]()
            highs(problem, caps)
            rival = least(partial(highs, problem, caps), 10 * repeats)
            ours = least(partial(allocate, problem, Exact()), 10 * repeats)
            ratios.append(rival / ours)
        rows.append([str(c), f"{median(ratios):.0f}", f"{min(ratios):.1f}", f"{max(ratios):.0f}"])
    return table(["c", "HiGHS / Exact, median", "least", "most"], rows)


def growth(staleness: tuple[int, ...], repeats: int) -> str:
    """Let c grow where the least batch is one sample."""
    rows = []
    for k, (time_s, energy_j) in product((20, 100), ((10, 10), (20, 20), (40, 30))):
        cells, base = [], 0.0
        for c in staleness:
            problem = fleet_problem(k, time_s, energy_j, c).replace(min_samples=1)
            seconds = least(partial(allocate, problem, Exact()), 3 * repeats)
            base = base or seconds
            found = allocate(problem, Exact())
            proven = found.status is Status.OPTIMAL
            cells.append(f"{seconds / base:.1f}" + ("" if proven else f" (gap {found.gap:.0e})"))
        rows.append([str(k), f"{time_s}, {energy_j}", f"{base * 1e3:.1f} ms", *cells])
    return table(["K", "T, E", f"c = {staleness[0]}", *(f"c = {c:,}" for c in staleness)], rows)


def large(sizes: tuple[int, ...]) -> str:
    """Compare large fleets with capacities and a sort."""
    rows = []
    for k, c in product(sizes, (1, 2)):
        problem = fleet_problem(k, 20, 20, c)
        sync = synchronous(Capacities.of(problem), problem.total_samples)
        base = least(partial(_base, problem, sync, c), 3)
        cells = []
        for goal in ("epochs", "progress"):
            start = process_time()
            found = allocate(problem, Exact(objective=goal))
            cells += [f"{(process_time() - start) / base:.0f}", f"{found.gap:.0e}"]
        rows.append([f"{k:,}", str(c), f"{base * 1e3:.0f} ms", *cells])
    head = ["K", "c", "capacities and a sort", "epochs, times that", "gap", "progress, times that", "gap"]
    return table(head, rows)


def _base(problem: AllocationProblem, sync: int, c: int) -> None:
    capacities = Capacities.of(problem)
    rows = [capacities.at(tau) for tau in range(max(1, sync - c), sync + c + 1)]
    np.sort(rows[0] - rows[-1])


def curves(quick: bool) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Measure the growth with K, c and d, per objective."""
    base = fleet_problem(20, 20, 20, 2)
    learners = (20, 100) if quick else (20, 100, 1000, 10_000, 100_000, 1_000_000)
    staleness = (1, 10) if quick else (1, 3, 10, 30, 100, 300, 1000, 3000)
    samples = (600, 6000) if quick else (600, 6000, 60_000, 600_000, 6_000_000)
    problems = {
        "learners K": [(k, fleet_problem(k, 20, 20, 2)) for k in learners],
        "staleness c": [(c, base.replace(staleness=c, min_samples=1)) for c in staleness],
        # As many epochs as before: costs fall as the samples grow.
        "samples d": [(d, _finer(base, d)) for d in samples],
    }
    most = {"cheapest": 1000, "soonest": 100}  # of K and c, beyond which one call takes long
    return {
        axis: {
            goal: [
                (x, least(partial(allocate, problem, Exact(objective=goal)), 1 if goal == "soonest" else 2))
                for x, problem in some
                if axis == "samples d" or x <= most.get(goal, x)
            ]
            for goal in ("epochs", "progress", "cheapest", "soonest")
        }
        for axis, some in problems.items()
    }


def _finer(problem: AllocationProblem, samples: int) -> AllocationProblem:
    """Cut the same work into another number of samples."""
    c, share = problem.coefficients, problem.total_samples / samples
    costs = Coefficients(c.c2 * share, c.c1 * share, c.c0, c.g2 * share, c.g1 * share, c.g0)
    return problem.replace(coefficients=costs, total_samples=samples, min_samples=max(samples // 600, 1))


def draw(measured: dict[str, dict[str, list[tuple[int, float]]]]) -> None:
    """Plot the growth in the style of all figures, readable without colours."""
    from mel_simulation.paper import style as look

    with look.style():
        figure, panels = look.canvas(1, 3, width=look.PAGE, height=2.3, sharey=True)
        for axes, (axis, lines) in zip(panels[0], measured.items(), strict=True):
            for i, (goal, points) in enumerate(lines.items()):
                looks = {"color": look.COLOURS[i], "marker": look.MARKERS[i], "ls": look.LINES[i]}
                axes.plot(*zip(*points, strict=True), label=goal, **looks)
            axes.set(xscale="log", yscale="log", xlabel=axis)
        panels[0][0].set_ylabel("seconds")
        handles = panels[0][0].get_legend_handles_labels()[0]
        look.legend(figure, handles, "K = 20, c = 2, d = 3,000 per learner unless on the axis", 1.2)
        look.headline(figure, "How does the time to allocate grow?")
        look.save(figure, PAGE.parent / "figures", "objectives_growth")


def growth_table(measured: dict[str, dict[str, list[tuple[int, float]]]]) -> str:
    """Put the growth into a table."""
    rows = [
        [axis, goal, *(f"{x:,}: {seconds * 1e3:.3g} ms" for x, seconds in points)]
        for axis, lines in measured.items()
        for goal, points in lines.items()
    ]
    width = max(map(len, rows))
    return table(["", "objective", *[""] * (width - 2)], [row + [""] * (width - len(row)) for row in rows])


def objectives() -> str:
    """Show what the objectives trade on one fleet of the paper."""
    rows = []
    for time_s, energy_j in ((10, 10), (40, 30)):
        problem = fleet_problem(20, time_s, energy_j, 2)
        for name, goal in GOALS.items():
            start = process_time()
            found = allocate(problem, Exact(objective=goal))
            seconds = process_time() - start
            share = f"{100 * found.samples.max() / problem.total_samples:.0f} %"
            last, joules = float(found.time_s.max()), float(found.energy_j.sum())
            numbers = (found.mean_epochs, last, joules, found.progress / last, found.progress / joules)
            cells = [f"{x:.3g}" if x < 1000 else f"{x:,.0f}" for x in numbers]
            cells += [share, f"{found.bias:.2f}", f"{found.gap:.1e}", f"{seconds * 1e3:.0f} ms"]
            rows.append([f"{time_s}, {energy_j}", name, *cells])
    head = ["T, E", "objective", "mean epochs", "makespan, s", "energy, J", "S per s", "S per J"]
    return table([*head, "largest share", "bias", "gap", "time"], rows)


def inverse(samples: tuple[int, ...], repeats: int) -> str:
    """Compare with schedulers for fixed epochs."""
    rows, tau = [], np.full(20, 2)
    for d in samples:
        problem = fleet_problem(20, 400, 3000, 0).replace(total_samples=d, min_samples=1)
        fast = least(partial(fastest, problem, tau), 3 * repeats)
        green = least(partial(greenest, problem, tau), 3 * repeats)
        rival_s = least(partial(schedulers.olar, problem, tau), repeats)
        cells = [f"{fast * 1e3:.2f} ms", f"{rival_s / fast:.1f}"]
        cells.append(f"{green * 1e3:.2f} ms")
        for name in ("marin", "marco", "mc2mkp", "ecmtc"):
            if name in ("mc2mkp", "ecmtc") and d > 6000:
                cells.append("-")  # time grows with the square of the samples
                continue
            rival_s = least(partial(getattr(schedulers, name), problem, tau), 1)
            cells.append(f"{rival_s / green:.1f}")
        rows.append([f"{d:,}", *cells])
    head = ["samples", "fastest", "OLAR, times", "greenest", "MarIn, times", "MarCo, times"]
    return table([*head, "(MC)²MKP, times", "ECMTC, times"], rows)


def main(arguments: list[str] | None = None) -> None:
    """Measure, print, and write unless in a hurry."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: small, prints only")
    parser.add_argument(
        "--growth", action="store_true", help="only the growth with K, c and d, and its figure"
    )
    parser.add_argument("--trade", action="store_true", help="only what the objectives trade")
    options = parser.parse_args(arguments)
    for part, asked in ((grow, options.growth), (trade, options.trade), (compare, False)):
        if asked or not (options.growth or options.trade):
            part(options.quick)


def grow(quick: bool) -> None:
    """Measure and draw the growth with K, c and d."""
    measured = curves(quick)
    text = f"""## Growth of the allocation, T = 20 s, E = 20 J

Generated by `python -m bench.objectives --growth`.

{growth_table(measured)}

![Time to allocate against K, c and d](figures/objectives_growth.png)

Processor times, the least of a few. With c the least batch is 1; with d the work stays the same, in smaller
samples. `soonest` is measured up to K and c of 100, `cheapest` up to 1,000.
"""
    print(text)
    if not quick:
        draw(measured)
        write_section(PAGE, "growth", text)


def trade(quick: bool) -> None:
    """Compare the objectives with each other."""
    text = f"""## What the objectives trade, K = 20, c = 2

Generated by `python -m bench.objectives --trade`.

{objectives()}

S per s and per J are what `soonest` and `cheapest` maximise; the largest share is that of the samples which
one learner has; the bias is chi² between the shares of the samples and what a plain average weighs
(docs/THEORY.md). A cap on the share (`Progress(max_share)`) spreads the work and costs progress.
"""
    print(text)
    if not quick:
        write_section(PAGE, "trade", text)


def compare(quick: bool) -> None:
    """Compare with others."""
    repeats = 1 if quick else 3
    text = f"""## Objectives

Generated by `python -m bench.objectives`; ratios of processor times in one run.

### Against HiGHS over the paper's twelve (T, E), K = 20

{against_highs(repeats)}

### Growth with the staleness, least batch 1, times the cost of c = 5

{growth((5, 100) if quick else (5, 20, 100, 1000, 10_000, 60_000), repeats)}

Without a gap the optimum is proven.

### Large fleets, T = 20 s, E = 20 J

{large((10_000,) if quick else (100_000, 1_000_000))}

### Fixed epochs against other authors' schedulers, K = 20, two epochs

{inverse((600,) if quick else (600, 6000, 60_000), repeats)}

The rivals are re-implemented from their papers (`bench/schedulers.py`), (MC)²MKP and ECMTC with numpy inside.
All reach the same optimum; ECMTC may leave learners out and then spends less, as does
`greenest(..., leave_out=True)`.
"""
    print(text)
    if not quick:
        write_section(PAGE, "objectives", text)


if __name__ == "__main__":
    main()
