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
