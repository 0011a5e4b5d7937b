"""`Exact` against general solvers, against the paper's, and alone on large fleets.

``python -m bench.solvers`` writes the section "Solvers" of docs/BENCHMARKS.md, its figure, and the raw
numbers to bench/results/solvers.json. ``--quick`` only prints a small version.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from types import ModuleType

import numpy as np

from bench.problems import fleet_problem
from bench.rivals import WORKERS, IntArray, cp_sat, highs_within, scip
from bench.tables import PAGE, table, write_section
from flwr_mel import AllocationProblem, Solution, allocate
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.solvers import Exact, SuggestImprove
from flwr_mel.solvers.windows import synchronous

RESULTS = Path(__file__).parent / "results" / "solvers.json"
FIGURE = PAGE.parent / "figures" / "exact_growth"
#: (T, E) of the instances: the corners and the middle of the paper's grid.
SETTINGS = ((10, 10), (20, 20), (40, 30))
STALENESS = (1, 5)
HIGHS, CP_SAT, SCIP, SDP, BISECTION = "HiGHS", "CP-SAT", "SCIP", "SDP", "bisection"


#: Sum of epochs, and whether it is proven to be the largest.
Answer = tuple[int | None, bool]
#: Rival and staleness, and where it ran out of time.
Failed = dict[tuple[str, int], str]


@dataclass(frozen=True, slots=True)
class Scale:
    """How much to measure."""

    sizes: tuple[int, ...] = (20, 100, 1000)
    alone: tuple[int, ...] = (10**4, 10**5, 10**6)
    settings: tuple[tuple[int, int], ...] = SETTINGS
    seconds: float = 20.0
    repeats: int = 7


QUICK = Scale(sizes=(20,), alone=(10**4,), settings=SETTINGS[:1], seconds=1.0, repeats=1)


@dataclass(slots=True)
class Race:
    """One size and staleness: `Exact` against the others, over some instances."""

    learners: int
    staleness: int
    exact_s: list[float] = field(default_factory=list)
    optimal: bool = True
    ratios: dict[str, list[float]] = field(default_factory=dict)
    gaps: dict[str, list[float]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Alone:
    """`Exact` on a large fleet, in a process of its own."""

    learners: int
    staleness: int
    seconds: float
    base_s: float
    ratio: float
    peak_mb: float
    status: str
    open_epochs: float


def timed(run: Callable[[], object]) -> float:
    start = process_time()
    run()
    return process_time() - start


def by_the_clock(seconds: float) -> float:
    """Return how long a processor time takes by the clock, which limits the rivals, on a busy machine."""
    start, clock = process_time(), perf_counter()
    while process_time() - start < 0.05:
        pass
    return seconds * max(1.0, (perf_counter() - clock) / (process_time() - start))


def window_epochs(problem: AllocationProblem) -> tuple[int, int]:
    """Return the first and the last number of epochs in the windows that matter; 2c + 1 where all exist."""
    capacities = Capacities.of(problem)
    sync = synchronous(capacities, problem.total_samples)
    return max(1, sync - problem.staleness), min(sync + problem.staleness, int(capacities.most_epochs.max()))


def race(learners: int, staleness: int, scale: Scale, failed: Failed) -> Race:
    """Run everybody on the same instances, in turns; not those who `failed` with this staleness before."""
    result, slow = Race(learners, staleness), set()
    for time_s, energy_j in scale.settings:
        problem = fleet_problem(learners, time_s, energy_j, staleness)
        best = allocate(problem, Exact())
        wanted, fresh = int(best.epochs.sum()), []
        result.optimal &= best.bound == best.mean_epochs
        for rival, solve in rivals(problem, by_the_clock(scale.seconds)).items():
            if (rival, staleness) in failed or rival in slow:
                continue
            ours, theirs, (total, proven) = in_turns(problem, solve, scale, WORKERS if rival == CP_SAT else 1)
            fresh += ours
            if theirs[0] > scale.seconds / 4:
                slow.add(rival)
            ratio = median(b / a for a, b in zip(ours, theirs, strict=True))
            result.ratios.setdefault(rival, []).append(ratio)
            if rival in (SDP, BISECTION):
                result.gaps.setdefault(rival, []).append(1 - (total or 0) / wanted)
            elif not proven:
                failed[rival, staleness] = f"K = {learners:,}"
                result.notes[rival] = f"not finished in {theirs[-1]:.0f} s"
            elif total != wanted:
                raise RuntimeError(f"{rival} proves {total}, Exact {wanted}")
            print(f"K={learners} c={staleness} T={time_s} {rival}: {median(theirs):.4f} s, {times(ratio)}")
        result.exact_s.append(median(fresh or [timed(lambda: allocate(problem, Exact()))]))  # noqa: B023
    return result


def in_turns(
    problem: AllocationProblem, solve: Callable[[], Answer], scale: Scale, workers: int
) -> tuple[list[float], list[float], Answer]:
    """Time `Exact` and a rival one after the other, several times unless the rival is slow."""
    ours: list[float] = []
    theirs: list[float] = []
    while len(theirs) < scale.repeats and sum(theirs) < scale.seconds / 4:
        ours.append(timed(lambda: allocate(problem, Exact())))
        start = process_time()
        answer = solve()
        theirs.append((process_time() - start) / workers)
    return ours, theirs, answer


def rivals(problem: AllocationProblem, seconds: float) -> dict[str, Callable[[], Answer]]:
    """Return the other solvers, ready to run; capacities they need are computed beforehand."""
    tables: dict[int, IntArray] = {}
    highs_within(problem, 0.0, tables)
    first, last = window_epochs(problem)
    for tau in range(first, last + 1):
        tables[tau] = np.minimum(Capacities.of(problem).at(tau), problem.total_samples)
    caps = np.array([tables[tau] for tau in range(first, last + 1)])

    def paper(suggest: str) -> tuple[int | None, bool]:
        solution: Solution = allocate(problem, SuggestImprove(suggest=suggest))  # type: ignore[arg-type]
        return int(solution.epochs.sum()), False

    return {
        HIGHS: lambda: highs_within(problem, seconds, tables),
        CP_SAT: lambda: cp_sat(problem, caps, first, seconds),
        SCIP: lambda: scip(problem, last, seconds),
        SDP: lambda: paper("sdp"),
        BISECTION: lambda: paper("bisection"),
    }


def warm_up(scale: Scale) -> None:
    """Let everybody load its libraries. CP-SAT's must come before cvxpy's, which may complain but goes on."""
    ready = rivals(fleet_problem(4, 20, 20, 1), scale.seconds)
    for rival in (CP_SAT, SCIP, HIGHS, SDP, BISECTION):
        ready[rival]()


def alone(learners: int, staleness: int, repeats: int) -> Alone:
    """Measure `Exact` against the least any method of this kind must do: the capacities and one sort."""
    problem = fleet_problem(learners, 20, 20, staleness)
    first, last = window_epochs(problem)

    def base() -> None:
        caps = Capacities.of(problem).table(first, last)
        np.argsort((caps[0] - caps[-1]) / (last - first), kind="stable")

    solution = allocate(problem, Exact())
    base()
    ours, least = [], []
    for _ in range(repeats):
        least.append(timed(base))
        ours.append(timed(lambda: allocate(problem, Exact())))
    return Alone(
        learners,
        staleness,
        seconds=median(ours),
        base_s=median(least),
        ratio=median(a / b for a, b in zip(ours, least, strict=True)),
        peak_mb=peak_mb(),
        status=str(solution.status),
        open_epochs=round((solution.bound - solution.mean_epochs) * learners),
    )


def peak_mb() -> float:
    """Return the process's peak of memory; on Linux without what it inherited from its parent."""
    status = Path("/proc/self/status")
    if status.exists():
        found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
        if found:
            return int(found[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def alone_elsewhere(learners: int, staleness: int, repeats: int) -> Alone:
    """Run `alone` in a fresh process, so that the peak of memory is that of this size."""
    command = [sys.executable, "-m", "bench.solvers", "--alone", str(learners), str(staleness), str(repeats)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Alone(**json.loads(done.stdout))


def times(x: float) -> str:
    """Write a ratio with two or three digits."""
    return f"{x:.1f}x" if x < 10 else f"{x:,.0f}x"


def duration(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def cell(result: Race, rival: str, failed: Failed) -> str:
    if rival not in result.ratios:
        return f"skipped, see {failed[rival, result.staleness]}"
    ratio = median(result.ratios[rival])
    if rival in result.notes:
        return f"{result.notes[rival]}, > {times(max(result.ratios[rival]))}"
    if rival in result.gaps:
        gap = max(result.gaps[rival])
        return f"{times(ratio)}, {'optimal' if gap == 0 else f'up to {100 * gap:.1g} % below'}"
    low, high = min(result.ratios[rival]), max(result.ratios[rival])
    return f"{times(ratio)} ({times(low)} to {times(high)})" if low < high else times(ratio)


def race_table(races: Iterable[Race], failed: Failed) -> str:
    head = ["K", "c", "Exact", HIGHS, CP_SAT, SCIP, "SuggestImprove, SDP", "SuggestImprove, bisection"]
    return table(
        head,
        [
            [
                f"{r.learners:,}",
                str(r.staleness),
                f"{duration(median(r.exact_s))}, {'optimal' if r.optimal else 'not proven'}",
                *(cell(r, rival, failed) for rival in (HIGHS, CP_SAT, SCIP, SDP, BISECTION)),
            ]
            for r in races
        ],
    )


def alone_table(sizes: Iterable[Alone]) -> str:
    head = ["K", "c", "Exact", "capacities and a sort", "ratio", "peak memory", "status", "bound - sum tau_k"]
    return table(
        head,
        [
            [
                f"{a.learners:,}",
                str(a.staleness),
                duration(a.seconds),
                duration(a.base_s),
                times(a.ratio),
                f"{a.peak_mb:,.0f} MB",
                a.status,
                f"{a.open_epochs:g}",
            ]
            for a in sizes
        ],
    )


def document(races: list[Race], large: list[Alone], failed: Failed, scale: Scale) -> str:
    """Put the tables into words."""
    settings = ", ".join(f"({t} s, {e} J)" for t, e in scale.settings)
    return f"""## Solvers

Generated by `python -m bench.solvers`.

### Against general solvers

Fleets drawn as in the paper, 3,000 samples per learner, at least 100 each, (T, E) = {settings}.
The first time is ours, the median over the instances. The others are **ratios: how many times as long as
`Exact`**, on the same instance, the two measured in turns in one run, median over up to {scale.repeats}
repeats; in brackets the easiest and the hardest instance. Times are processor times, so that other work on
the machine does not count; CP-SAT has {WORKERS} workers, whose mean counts.

HiGHS gets our window formulation and CP-SAT our table of capacities, both computed beforehand at no cost to
them; SCIP gets the quadratic programme as the paper states it. Rivals have about {scale.seconds:g} s.
One that takes more than a quarter of that has a single instance; one that did not finish is not tried again
with that c. Wherever a rival proves an optimum, it is that of `Exact`.

{race_table(races, failed)}

SuggestImprove is the paper's method: a heuristic, so the cell also says how far below the optimum it ends.

### Alone, on large fleets

T = 20 s, E = 20 J. "Capacities and a sort" is the least work a method of this kind can do: cap_k(tau)
for every tau of the c + 1 windows, and one sort of the learners. `Exact` includes the hand-out of the samples
and the final check of all constraints. Memory is the peak of the whole process, Python included. The last
column is what the certificate leaves open, in epochs of one learner.

{alone_table(large)}

![Time of Exact against the number of learners](figures/exact_growth.png)

Up to K = {max(scale.sizes):,} the points are medians over the instances of the first table.
"""


def draw(races: list[Race], large: list[Alone]) -> None:
    """Plot the growth with K in the style of all figures, readable without colours."""
    from mel_simulation.paper import style as look

    with look.style():
        _draw(races, large, look)


def _draw(races: list[Race], large: list[Alone], look: ModuleType) -> None:
    figure, panels = look.canvas(1, 1, width=look.PAGE, height=3.0)
    axes = panels[0][0]
    # Okabe and Ito's colours; every line also has its own marker and its label.
    for c, colour, marker in zip(STALENESS, ("#0072B2", "#D55E00"), ("o", "s"), strict=True):
        ours = [(r.learners, median(r.exact_s)) for r in races if r.staleness == c]
        ours += [(a.learners, a.seconds) for a in large if a.staleness == c]
        axes.plot(*zip(*ours, strict=True), color=colour, marker=marker, lw=2, label=f"Exact, c = {c}")
        other = [
            (r.learners, median(r.exact_s) * median(r.ratios[HIGHS]))
            for r in races
            if r.staleness == c and HIGHS in r.ratios
        ]
        axes.plot(
            *zip(*other, strict=True),
            color=colour,
            marker=marker,
            mfc="white",
            ls="--",
            label=f"HiGHS, c = {c}",
        )
        stopped = [r for r in races if r.staleness == c and HIGHS in r.notes]
        for r in stopped:
            at = (r.learners, median(r.exact_s) * median(r.ratios[HIGHS]))
            axes.annotate("time limit", at, xytext=(8, -3), textcoords="offset points", fontsize=9)
        least = [(a.learners, a.base_s) for a in large if a.staleness == c]
        if least:
            label = f"capacities and a sort, c = {c}"
            axes.plot(*zip(*least, strict=True), color=colour, marker=marker, ms=3, lw=1, ls=":", label=label)
    axes.set(xscale="log", yscale="log", xlabel="learners K", ylabel="seconds")
    handles = sorted(axes.get_legend_handles_labels()[0], key=lambda line: str(line.get_label()))
    look.legend(figure, handles, "Exact against HiGHS, and against the least such a method must do", 2.2)
    look.headline(figure, "How long does it take to allocate, for how many learners?")
    look.save(figure, FIGURE.parent, FIGURE.name)


def main(arguments: list[str] | None = None) -> None:
    """Measure, print, and write unless in a hurry."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: small, prints only")
    parser.add_argument("--alone", nargs=3, type=int, metavar=("K", "C", "REPEATS"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.alone:
        print(json.dumps(asdict(alone(*options.alone))))
        return
    scale = QUICK if options.quick else Scale()
    failed: Failed = {}
    warm_up(scale)
    races = [race(k, c, scale, failed) for k in scale.sizes for c in STALENESS]
    large = [alone_elsewhere(k, c, scale.repeats) for k in scale.alone for c in STALENESS]
    text = document(races, large, failed, scale)
    print(text)
    if options.quick:
        return
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    raw = {"scale": asdict(scale), "races": [asdict(r) for r in races], "alone": [asdict(a) for a in large]}
    RESULTS.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    draw(races, large)
    write_section(PAGE, "solvers", text)


if __name__ == "__main__":
    main()
