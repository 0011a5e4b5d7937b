"""A robust fit of the cost model to single runs: cost = x2 * epochs * samples + x1 * samples + x0."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flwr_mel._validate import FloatArray

Three = tuple[float, float, float]


def design(points: Sequence[tuple[int, int]]) -> FloatArray:
    """Return one row (epochs * samples, samples, 1) per run.

    Parameters
    ----------
    points : sequence of (epochs, samples)
        One per run.
    """
    return np.array([(float(epochs) * samples, samples, 1.0) for epochs, samples in points])


def fit(points: Sequence[tuple[int, int]], costs: Sequence[float]) -> Three:
    """Find the non-negative x2, x1, x0 with the least sum of relative absolute errors.

    Least absolute errors are the regression's median: a run that something else slowed down does not pull
    them. Errors count relative to the median of their own point, so that short runs, which alone tell x0
    and x1, are heard beside long ones, but not below a twentieth of the largest: what disturbs a run does not
    shrink with it. With non-negative unknowns it is a small linear program.

    Parameters
    ----------
    points : sequence of (epochs, samples)
        One per run; the same point may come again.
    costs : sequence of float
        Seconds or joules of the runs.
    """
    # Devices that only read their profile do without its import.
    from scipy.optimize import linprog  # noqa: PLC0415

    given = np.asarray(costs, dtype=np.float64)
    typical = typical_costs(points, given)
    weight = 1.0 / (typical + max(float(typical.max()), 1e-300) / 20)
    rows = design(points)
    scale = rows.max(axis=0)
    left = rows / scale * weight[:, None]
    right = given * weight
    slack = np.eye(len(given))
    answer = linprog(
        np.concatenate([np.zeros(3), np.ones(len(given))]),
        A_ub=np.block([[left, -slack], [-left, -slack]]),
        b_ub=np.concatenate([right, -right]),
        method="highs",
    )
    if answer.x is None:
        raise RuntimeError(f"the fit of {len(given)} runs failed: {answer.message}")
    x2, x1, x0 = (max(float(x), 0.0) for x in answer.x[:3] / scale)
    return x2, x1, x0


def typical_costs(points: Sequence[tuple[int, int]], costs: FloatArray) -> FloatArray:
    """Return for every run the median of the runs at its point.

    Parameters
    ----------
    points : sequence of (epochs, samples)
        One per run.
    costs : array
        Their costs.
    """
    same = [np.array([other == point for other in points]) for point in points]
    return np.array([np.median(costs[mask]) for mask in same])


def mad(values: Sequence[float]) -> float:
    """Return the median absolute deviation from the median.

    Parameters
    ----------
    values : sequence of float
        At least one.
    """
    return float(np.median(np.abs(np.asarray(values) - np.median(values))))
