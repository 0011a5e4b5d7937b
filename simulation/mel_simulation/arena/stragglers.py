"""The setting of Flower's FedProx baseline: 1,000 learners with two digits each, nine of ten are stragglers.

``python -m mel_simulation.arena.stragglers --data-dir DIR --out results/stragglers.json``

Hyper-parameters are those of the baseline (Li et al., MLSys 2020, figure 1, as Flower's baselines/fedprox has
it): MNIST, logistic regression, samples per learner by a power law, 10 learners per round, 100 rounds, 10
epochs, batch 10, learning rate 0.03, mu = 1. A straggler has time for 1 to 9 epochs on its data. FedAvg drops
stragglers; FedProx takes what they have; ours allocates within the time that they have, by the same code as
everywhere. There is no clock: all rounds are as long as ten epochs of those who are no stragglers.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import numpy as np

from flwr_mel._files import atomically
from flwr_mel._validate import FloatArray, IntArray
from flwr_mel.allocation import AllocationProblem, allocate
from flwr_mel.costs import Coefficients
from flwr_mel.orchestrator.averaging import Average, Work, blend
from flwr_mel.solvers import Exact
from mel_simulation.paper.pages import markdown_table
from mel_simulation.scenario.data import Dataset, embedded, load

ROUNDS, PER_ROUND, EPOCHS, BATCH, RATE = 100, 10, 10, 10, 0.03
SEEDS = (0, 1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class Way:
    """A way to deal with stragglers.

    Parameters
    ----------
    drops : bool
        Whether stragglers are left out.
    mu : float
        Of the proximal term.
    share : float
        Of the samples that our allocation hands out; 0: no allocation, everybody does as many epochs as it
        has time for on all its data.
    average : Average
        The rule.
    """

    drops: bool = False
    mu: float = 0.0
    share: float = 0.0
    average: Average = Average.SAMPLES


WAYS = {
    "FedAvg, stragglers dropped": Way(drops=True),
    "partial work (FedProx, mu = 0)": Way(),
    "FedProx, mu = 1": Way(mu=1.0),
    "ours, half of the samples, d_k-weighted": Way(share=0.5),
    "ours, half of the samples, FedNova by d_k": Way(share=0.5, average=Average.NOVA),
    "FedNova, partial work (which ours is with all samples)": Way(share=1.0, average=Average.NOVA),
    "ours, half of the samples, d_k-weighted, mu = 1": Way(share=0.5, mu=1.0),
}


def power_law(labels: IntArray, learners: int, rng: np.random.Generator) -> list[IntArray]:
    """Give every learner two digits, and samples by a lognormal law, at least five of each digit.

    Parameters
    ----------
    labels : int array
        Of all samples.
    learners : int
        How many.
    rng : numpy.random.Generator
        Source of chance.
    """
    pools = [rng.permutation(np.flatnonzero(labels == digit)) for digit in range(10)]
    least = min(5, min(len(pool) for pool in pools) // (2 * -(-learners // 10)) or 1)
    sizes = rng.lognormal(0.0, 2.0, (learners, 2))
    owners: list[list[tuple[int, int]]] = [[] for _ in range(10)]
    for k in range(learners):
        for place, digit in enumerate((k % 10, (k + 1) % 10)):
            owners[digit].append((k, place))
    parts: list[list[IntArray]] = [[] for _ in range(learners)]
    for digit, pool in enumerate(pools):
        want = np.array([sizes[k, place] for k, place in owners[digit]])
        spare = len(pool) - least * len(want)
        counts = least + np.floor(spare * want / want.sum()).astype(np.int64)
        cuts = np.split(pool[: counts.sum()], np.cumsum(counts)[:-1])
        for (k, _), rows in zip(owners[digit], cuts, strict=True):
            parts[k].append(rows)
    return [np.concatenate(own) for own in parts]


def plan(way: Way, held: IntArray, able: IntArray) -> tuple[IntArray, IntArray]:
    """Return epochs and samples of a round's learners.

    Parameters
    ----------
    way : Way
        How.
    held : int array
        Samples that each holds.
    able : int array
        Epochs on all its data that each has time for.
    """
    if not way.share:
        return np.where(way.drops & (able < EPOCHS), 0, able), held
    # A round lasts one; a learner's time per sample and epoch follows from what it manages.
    nothing = np.zeros(len(held))
    costs = Coefficients(1 / (held * able * (1 + 1e-9)), nothing, nothing, nothing, nothing, nothing)
    problem = AllocationProblem(
        costs,
        1.0,
        total_samples=max(PER_ROUND, int(way.share * held.sum())),
        staleness=EPOCHS,
        max_samples=held,
        max_epochs=EPOCHS,
    )
    found = allocate(problem, Exact())
    return found.epochs, found.samples


def learn(
    weights: FloatArray, x: FloatArray, y: IntArray, epochs: int, mu: float, rng: np.random.Generator
) -> FloatArray:
    """Train logistic regression by SGD with a proximal term.

    Parameters
    ----------
    weights : float array, shape (features + 1, 10)
        Where it begins; the last line is the bias.
    x, y : arrays
        Samples with a last column of ones, labels.
    epochs : int
        Passes.
    mu : float
        Of the proximal term.
    rng : numpy.random.Generator
        Order of the samples.
    """
    w, target = weights.copy(), np.eye(10)[y]
    for _ in range(epochs):
        order = rng.permutation(len(y))
        for start in range(0, len(y), BATCH):
            rows = order[start : start + BATCH]
            logits = x[rows] @ w
            odds = np.exp(logits - logits.max(axis=1, keepdims=True))
            slope = x[rows].T @ (odds / odds.sum(axis=1, keepdims=True) - target[rows]) / len(rows)
            w -= RATE * (slope + mu * (w - weights))
    return w


def train(data: Dataset, way: Way, seed: int, learners: int = 1000, rounds: int = ROUNDS) -> list[float]:
    """Return the test accuracy after every round. Data, choice of learners and stragglers follow the seed.

    Parameters
    ----------
    data : Dataset
        MNIST.
    way : Way
        How stragglers are dealt with.
    seed : int
        One seed, one world for all ways.
    learners, rounds : int
        How many.
    """
    world = np.random.default_rng([seed, 21])
    parts = power_law(data.train_y.astype(np.int64), learners, world)
    test_x, test_y = _features(data.test_x), data.test_y
    w, curve = np.zeros((test_x.shape[1], 10)), []
    for number in range(rounds):
        who = np.sort(world.choice(learners, PER_ROUND, replace=False))
        late = world.permutation(PER_ROUND) < round(0.9 * PER_ROUND)
        able = np.where(late, world.integers(1, EPOCHS, PER_ROUND), EPOCHS)
        held = np.array([len(parts[k]) for k in who])
        epochs, samples = plan(way, held, able)
        updates, works = [], []
        for i in np.flatnonzero(epochs):
            rng = np.random.default_rng([seed, number, int(who[i])])
            mine = rng.choice(parts[who[i]], samples[i], replace=False)
            x, y = _features(data.train_x[mine]), data.train_y[mine].astype(np.int64)
            updates.append(learn(w, x, y, int(epochs[i]), way.mu, rng))
            works.append(Work(int(epochs[i]), int(samples[i]), int(held[i])))
        if updates:
            mix = blend(way.average, works)
            parts_of = zip(mix.weights, mix.factors, updates, strict=True)
            w = w + sum(a / sum(mix.weights) * f * (u - w) for a, f, u in parts_of)
        curve.append(float((np.argmax(test_x @ w, axis=1) == test_y).mean()))
    return curve


def _features(pixels: np.ndarray) -> FloatArray:
    return np.column_stack((pixels / 255.0, np.ones(len(pixels))))


def rounds_to(curve: Sequence[float], accuracy: float) -> int | None:
    """Return the first round, from 1, with at least this accuracy."""
    return next((i for i, found in enumerate(curve, 1) if found >= accuracy), None)


def table(results: dict[str, list[list[float]]]) -> str:
    """Return a Markdown table: accuracy at the end, rounds to 80 %."""
    head = ("", "accuracy after the last round", "mean of the last 10", "rounds to 80 %")
    rows = []
    for name, curves in results.items():
        last = [100 * c[-1] for c in curves]
        calm = [100 * mean(c[-10:]) for c in curves]
        to = [rounds_to(c, 0.8) for c in curves]
        reached = ", ".join("never" if r is None else str(r) for r in to)
        span = f"{mean(last):.1f} % ({min(last):.1f} to {max(last):.1f})"
        rows.append([name, span, f"{mean(calm):.1f} %", reached])
    return markdown_table(head, rows)


def main() -> None:
    """Compute all ways for all seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, help="directory of MNIST's idx files; default: the cache")
    parser.add_argument("--out", type=Path, default=Path("results/stragglers.json"))
    parser.add_argument("--embedded", action="store_true", help="the embedded digits and 100 learners")
    given = parser.parse_args()
    data = embedded() if given.embedded else load("mnist", given.data_dir, offline_ok=False)
    learners = 100 if given.embedded else 1000
    results: dict[str, list[list[float]]] = {}
    for name, way in WAYS.items():
        results[name] = []
        for seed in SEEDS:
            results[name].append(train(data, way, seed, learners))
            print(f"{name}, seed {seed}: {100 * results[name][-1][-1]:.1f} %", flush=True)
    about = {"learners": learners, "rounds": ROUNDS, "seeds": SEEDS, "notice": data.notice}
    atomically(given.out, lambda f: json.dump({"about": about, "curves": results}, f))
    print(table(results))


if __name__ == "__main__":
    main()
