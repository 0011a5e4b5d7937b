"""An oracle that shares no code with the library: the documented rule, asked by bisection and enumeration.

A limit is kept when the float64 value of ``c2 * (tau * d) + c1 * d + c0`` does not exceed it. Here that is
evaluated in plain Python floats, one learner at a time.
"""

from __future__ import annotations

import numpy as np

from flwr_mel import AllocationProblem, Coefficients

KINDS = ("identical", "near", "giant", "dying", "alone", "random")


def cost_s(problem: AllocationProblem, k: int, tau: int, d: int) -> float:
    c = problem.coefficients
    return float(c.c2[k]) * float(tau * d) + float(c.c1[k]) * float(d) + float(c.c0[k])


def cost_j(problem: AllocationProblem, k: int, tau: int, d: int) -> float:
    c = problem.coefficients
    return float(c.g2[k]) * float(tau * d) + float(c.g1[k]) * float(d) + float(c.g0[k])


def keeps(problem: AllocationProblem, k: int, tau: int, d: int) -> bool:
    return (
        d <= int(problem.max_samples[k])
        and cost_s(problem, k, tau, d) <= float(problem.deadline_s[k])
        and cost_j(problem, k, tau, d) <= float(problem.energy_limit_j[k])
    )


def largest(works, high: int) -> int:
    """The largest number from 1 to `high` that works, 0 if none does."""
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if works(middle) else (low, middle - 1)
    return low


def columns(problem: AllocationProblem) -> list[list[int]]:
    """cap_k(tau) up to d for tau = 1, 2, ... as long as the smallest batch fits."""
    found = []
    for k in range(len(problem)):
        caps: list[int] = []
        for tau in range(1, problem.max_epochs + 1):
            cap = largest(lambda n, k=k, tau=tau: keeps(problem, k, tau, n), problem.total_samples)
            if cap < problem.min_samples:
                break
            caps.append(cap)
        found.append(caps)
    return found


def best_epochs(problem: AllocationProblem, *, subsets: bool = False) -> int | None:
    """The largest sum of epochs, by a look at every combination of epochs; None if there is none."""
    able = [caps for caps in columns(problem) if caps]
    if not able:
        return None
    choices = [np.arange(0 if subsets else 1, len(caps) + 1) for caps in able]
    taus = np.stack(np.meshgrid(*choices, indexing="ij")).reshape(len(able), -1)
    carried = sum(np.array([0, *caps])[tau] for caps, tau in zip(able, taus, strict=True))
    taking_part = (taus > 0).sum(axis=0)
    spread = taus.max(axis=0) - np.where(taus > 0, taus, 10**9).min(axis=0)
    good = (carried >= problem.total_samples) & (spread <= problem.staleness) & (taking_part > 0)
    good &= taking_part * problem.min_samples <= problem.total_samples
    return int(taus.sum(axis=0)[good].max()) if good.any() else None


def costs_of(rng: np.random.Generator, kind: str, time_s: float) -> Coefficients:
    """A small fleet of a kind that has gone wrong before, or might."""
    k = 1 if kind == "alone" else int(rng.integers(2, 5))
    c2 = 10.0 ** rng.uniform(-3.5, -1.5, k)
    c1 = np.where(rng.random(k) < 0.4, 0.0, 10.0 ** rng.uniform(-4, -2, k))
    c0 = np.where(rng.random(k) < 0.3, 0.0, rng.uniform(0, 0.5, k) * time_s)
    g2 = np.where(rng.random(k) < 0.2, 0.0, 10.0 ** rng.uniform(-3, -1, k))
    g1 = np.where(rng.random(k) < 0.6, 0.0, 10.0 ** rng.uniform(-3, -1, k))
    g0 = np.where(rng.random(k) < 0.5, 0.0, rng.uniform(0, 0.5, k))
    if kind == "identical":
        c2, c1, c0, g2, g1, g0 = (np.full(k, a[0]) for a in (c2, c1, c0, g2, g1, g0))
        if rng.random() < 0.7:
            # Round numbers: quotients that are integers on paper.
            c2[:], c1[:] = rng.choice([1e-3, 1.6e-3, 2e-3, 3e-3, 7e-3]), 0.0
            c0[:] = rng.choice([0.0, 0.3, 0.9, 1.1])
            g2[:], g1[:], g0[:] = rng.choice([0.0, 1e-3, 0.01, 0.3]), 0.0, rng.choice([0.0, 0.1, 0.7])
    if kind == "near":
        c0 = time_s * (1 - 10.0 ** rng.uniform(-14, -2, k))
        # What is left is a few hundred samples' worth.
        c2 = (time_s - c0) / rng.uniform(5, 500, k) + 1e-300
        c1 = np.where(rng.random(k) < 0.5, 0.0, c2 * rng.uniform(0, 2, k))
    if kind == "giant":
        c2[0], c1[0], c0[0], g2[0], g1[0], g0[0] = 1e-12 * time_s, 0.0, 0.0, 1e-15, 0.0, 0.0
    if kind == "dying":
        weak = rng.random(k) < 0.6
        c2 = np.where(weak, time_s / rng.uniform(1, 12, k), c2)
        c0 = np.where(weak & (rng.random(k) < 0.5), time_s, c0)
    return Coefficients(c2, c1, c0, g2, g1, g0)


def random_problem(rng: np.random.Generator, kind: str, samples: int = 300) -> AllocationProblem:
    """A problem small enough for every oracle here, with every kind of limit."""
    time_s = float(rng.choice([1.0, 10.0, 100.0, rng.uniform(0.5, 50)]))
    costs = costs_of(rng, kind, time_s)
    k = len(costs)
    least = int(rng.integers(1, max(2, samples // (6 * k))))
    energy: list[float | None] | None = None
    if rng.random() < 0.5:
        # From hopeless to plenty, sometimes the fixed cost itself or a whole number of samples.
        n, tau = rng.integers(1, samples, k), rng.integers(1, 6, k)
        exact = costs.g2 * (tau * n) + costs.g1 * n + costs.g0
        wide = costs.g0 + 10.0 ** rng.uniform(-2, 2, k)
        energy = [
            None if u < 0.2 else max(float(e if u < 0.7 else w), 1e-9)
            for u, e, w in zip(rng.random(k), exact, wide, strict=True)
        ]
    most = rng.integers(1, samples, k).tolist() if rng.random() < 0.3 else None
    deadlines = time_s * rng.choice([0.2, 0.7, 1.0, 3.0], k) if rng.random() < 0.3 else time_s
    return AllocationProblem(
        costs,
        deadlines,
        energy,
        total_samples=int(rng.integers(k * least, max(samples, k * least) + 1)),
        staleness=int(rng.integers(0, 5)),
        min_samples=least,
        max_samples=most,
        max_epochs=int(rng.integers(1, 13)),
    )
