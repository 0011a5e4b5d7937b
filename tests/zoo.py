"""Random allocation problems of every kind, small enough for oracles and hard enough to bend."""

from __future__ import annotations

import numpy as np

from flwr_mel import AllocationProblem, Coefficients, Workload, paper_fleet

KINDS = ("pl", "fl", "energy", "data", "equal", "nice", "wild")


def random_problem(rng: np.random.Generator, learners: int, kind: str, staleness: int) -> AllocationProblem:
    """A problem whose total is a random share of what the learners carry at one epoch."""
    k = learners
    c2 = rng.choice([1.87e-4, 4.7e-4, 8.0e-4, 1.6e-3], k) * rng.uniform(0.8, 1.2, k)
    c1 = rng.uniform(1e-4, 1e-3, k)
    c0 = rng.uniform(0.1, 1.0, k)
    g2 = rng.uniform(1e-4, 5e-3, k)
    g1, g0 = np.zeros(k), rng.uniform(0, 0.2, k)
    energy: object = None
    most: object = None
    if kind in ("fl", "data"):
        c1 = np.zeros(k)
    if kind in ("energy", "wild"):
        energy = rng.uniform(0.5, 12.0, k)
        g1 = rng.uniform(0, 1e-3, k)
    if kind in ("data", "wild"):
        most = rng.integers(20, 6000, k)
    if kind == "equal":
        c2, c1, c0, g2, g1, g0 = (np.full(k, float(a[0])) for a in (c2, c1, c0, g2, g1, g0))
        energy = float(rng.uniform(2, 12))
    if kind == "nice":  # round numbers: quotients hit integers exactly
        c2, c1, c0 = rng.choice([0.001, 0.002, 0.005], k), np.zeros(k), np.zeros(k)
        g2, g0 = rng.choice([0.001, 0.01], k), np.zeros(k)
        energy = rng.choice([5.0, 10.0], k)
    coefficients = Coefficients(c2, c1, c0, g2, g1, g0)
    time_s = float(rng.uniform(2, 12)) if kind != "nice" else 10.0
    least = int(rng.integers(1, 20))
    probe = AllocationProblem(
        coefficients,
        time_s,
        energy,
        total_samples=10**7,
        max_samples=most,
        min_samples=least,
        staleness=staleness,
    )
    from tests.rivals import capacity

    cap = capacity(probe, 1)
    room = int(cap[cap >= least].sum())
    total = max(int(room * rng.uniform(0.1, 1.02)), k * least)
    return probe.replace(total_samples=total)


def problem_of(c2, time_s=5.0, **limits) -> AllocationProblem:
    """A problem by hand; of the costs, only c2 must be given."""
    zero = [0.0] * len(c2)
    costs = {name: limits.pop(name, zero) for name in ("c1", "c0", "g2", "g1", "g0")}
    return AllocationProblem(Coefficients(c2, **costs), time_s, **limits)


def paper_problem(
    seed: int, time_s: float, energy_j: float, staleness: int, learners: int = 20, *, pl: bool = True
):
    fleet = paper_fleet(np.random.default_rng(seed), learners, energy_j=energy_j)
    return AllocationProblem.from_devices(
        fleet,
        Workload.mlp((784, 300, 124, 60, 10), ship_data=pl),
        cycle_time_s=time_s,
        total_samples=3000 * learners,
        staleness=staleness,
        min_samples=100,
    )
