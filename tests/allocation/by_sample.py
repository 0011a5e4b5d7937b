"""Small problems with integer capacities, and optima by a dynamic programme over single samples.

Nothing is shared with the solvers: no price, no lemma, no window argument beyond "all epochs lie in some
window". Costs are multiples of 1/8, so that capacities are integers that a rounding error cannot move.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from flwr_mel import AllocationProblem, Coefficients

NONE = -np.inf


def draw(rng: np.random.Generator, samples: int = 64) -> AllocationProblem:
    """Draw two to four learners with limits that bind, and a demand from impossible to easy."""
    k = int(rng.integers(2, 5))
    c2 = rng.choice([0.125, 0.25, 0.5, 1.0], k)
    c0 = rng.choice([0.0, 0.0, 0.125, 1.0], k)
    g2, g1 = rng.choice([0.0, 0.125, 0.25, 1.0], k), rng.choice([0.0, 0.0, 0.125], k)
    g0 = rng.choice([0.125, 1.0, 2.0], k)
    time_s = float(rng.choice([0.5, 2.0, 5.0, 10.0]))
    return AllocationProblem(
        Coefficients(c2, np.zeros(k), c0, g2, g1, g0),
        time_s,
        None if rng.random() < 0.6 else rng.choice([2.0, 5.0, 20.0], k),
        total_samples=int(rng.integers(8, samples)),
        staleness=int(rng.integers(0, 4)),
        min_samples=int(rng.integers(1, 9)),
        max_samples=rng.integers(1, 36, k) if rng.random() < 0.7 else None,
        max_epochs=int(rng.integers(1, 5)),
    )


def draw_wide(rng: np.random.Generator) -> AllocationProblem:
    """Draw one to six learners with fast devices: hundreds of epochs, and a wide cap or none."""
    k = int(rng.integers(1, 7))
    two = rng.choice([2.0**-9, 2.0**-7, 2.0**-5, 0.125, 0.5], k)
    least = int(rng.choice([1, 1, 2, 5]))
    samples = int(rng.integers(k * least, 64))
    return AllocationProblem(
        Coefficients(
            two * rng.choice([1.0, 1.25, 1.5], k),
            two * rng.choice([0.0, 0.0, 3.0, 20.0], k),
            rng.choice([0.0, 0.125, 1.0], k),
            rng.choice([0.0, 2.0**-8, 2.0**-6, 0.125], k),
            rng.choice([0.0, 0.0, 0.0625], k),
            rng.choice([0.0, 0.125], k),
        ),
        float(rng.choice([0.5, 2.0, 5.0])),
        None if rng.random() < 0.5 else rng.choice([1.0, 2.0, 5.0], k),
        total_samples=max(samples, least),
        staleness=None if rng.random() < 0.4 else int(10 ** rng.uniform(0.5, 3)),
        min_samples=least,
        max_samples=rng.integers(1, 64, k) if rng.random() < 0.4 else None,
        max_epochs=int(rng.choice([60, 1000])) if rng.random() < 0.5 else None,
    )


def own_epochs(problem: AllocationProblem) -> np.ndarray:
    """The most epochs of each learner (columns) on 0, 1, 2, ... samples, 0 where none fits; by bisection."""
    c, batch = problem.coefficients, np.arange(problem.total_samples + 1)[:, None]
    low, high = np.zeros((2, len(batch), len(problem)), dtype=np.int64)
    high[:] = min(problem.max_epochs, 10**7)
    while (low < high).any():
        tau = (low + high + 1) // 2
        fits = c.c2 * (tau * batch) + c.c1 * batch + c.c0 <= problem.deadline_s
        fits &= c.g2 * (tau * batch) + c.g1 * batch + c.g0 <= problem.energy_limit_j
        low, high = np.where(fits, tau, low), np.where(fits, high, tau - 1)
    return np.where((batch <= problem.max_samples) & (batch >= problem.min_samples), low, 0)


def most_epochs(problem: AllocationProblem) -> float:
    """The largest sum of epochs in any window, however wide; minus infinity if there is no allocation."""
    own, d = own_epochs(problem), problem.total_samples
    own = own[:, own.any(axis=0)]
    if not own.size:
        return NONE
    # A window begins or ends at the most epochs of one learner on one batch.
    starts = np.unique([*own[own > 0], *np.maximum(own[own > 0] - problem.staleness, 1)])
    return max(
        _window(list(np.where(own >= t, np.minimum(own, t + problem.staleness), NONE).T), d, leave_out=False)
        for t in starts[starts <= own.max(axis=0).min()]
    )


def fixed(problem: AllocationProblem, tau: np.ndarray, time_s: float | np.ndarray) -> np.ndarray:
    """The largest batches at given epochs within a cycle time, 0 where the smallest batch does not fit.

    By counting; they are the one row of a table.
    """
    c, batch = problem.coefficients, np.arange(1, problem.total_samples + 1)[:, None]
    fits = (c.c2 * (tau * batch) + c.c1 * batch + c.c0 <= time_s) & (batch <= problem.max_samples)
    fits &= c.g2 * (tau * batch) + c.g1 * batch + c.g0 <= problem.energy_limit_j
    count = fits.sum(axis=0)
    return np.where(count >= problem.min_samples, count, 0)[None, :]


def table(problem: AllocationProblem) -> np.ndarray:
    """cap_k(tau) for tau = 1, 2, ... (rows)."""
    epochs = [np.full(len(problem), tau) for tau in range(1, problem.max_epochs + 1)]
    return np.concatenate([fixed(problem, tau, problem.deadline_s) for tau in epochs])


def best(problem: AllocationProblem, gain, *, leave_out: bool, caps: np.ndarray | None = None) -> float:
    """The largest sum of gain(k, tau, batches) over all allocations; minus infinity if there is none."""
    caps = table(problem) if caps is None else caps
    d, able = problem.total_samples, np.flatnonzero(caps[0])
    if not len(able):
        return NONE
    batch = np.arange(d + 1)
    return max(
        _window([_values(caps[:, k], k, first, problem, gain, batch) for k in able], d, leave_out=leave_out)
        for first in range(1, len(caps) + 1)
    )


def _values(cap, k, first, problem, gain, batch):
    """The best value of learner k on every batch, with epochs from the window."""
    value = np.full(len(batch), NONE)
    for tau in range(first, min(first + problem.staleness, len(cap)) + 1):
        fits = (batch >= problem.min_samples) & (batch <= cap[tau - 1])
        value[fits] = np.maximum(value[fits], gain(k, tau, batch[fits]))
    return value


def _window(values, d, *, leave_out):
    """Add learner after learner: samples so far -> largest value."""
    sums = np.full(2 * d + 1, NONE)  # the first d entries stand for fewer than no samples
    sums[d] = 0.0
    for value in values:
        # ways[s, n]: s samples, n of them for this learner.
        ways = sliding_window_view(sums, d + 1)[:, ::-1] + value
        after = ways.max(axis=1)
        sums[d:] = np.maximum(after, sums[d:]) if leave_out else after
    return float(sums[-1])
