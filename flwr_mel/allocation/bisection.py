"""Bisection: the one way in which monotone questions are settled, over integers to the last one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import FloatArray, IntArray


def largest(low: int, high: int, works: Callable[[int], bool]) -> int:
    """Return the largest integer in [low, high] that works, given that `low` does.

    Parameters
    ----------
    low, high : int
        The range.
    works : callable
        True up to some number, False from there on.
    """
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if works(middle) else (low, middle - 1)
    return low


def least(low: int, high: int, works: Callable[[int], bool]) -> int:
    """Return the smallest integer in [low, high] that works, given that `high` does.

    Parameters
    ----------
    low, high : int
        The range.
    works : callable
        False below some number, True from there on.
    """
    return -largest(-high, -low, lambda n: works(-n))


def largest_each(
    low: IntArray, high: IntArray, works: Callable[[IntArray], npt.NDArray[np.bool_]]
) -> IntArray:
    """Return the largest integers from `low` to `high` that work, given that those of `low` do.

    Parameters
    ----------
    low, high : int arrays
        The ranges.
    works : callable
        As for `largest`, entry by entry.
    """
    while (low < high).any():
        middle = (low + high + 1) // 2
        good = works(middle)
        low, high = np.where(good, middle, low), np.where(good, high, middle - 1)
    return low


def largest_real(
    low: float | FloatArray,
    high: float | FloatArray,
    works: Callable[[FloatArray], bool | npt.NDArray[np.bool_]],
    *,
    tolerance: float = 0.0,
    halvings: int = 100,
) -> FloatArray:
    """Close in from below on the largest numbers in [low, high] that work, given that those of `low` do.

    Parameters
    ----------
    low, high : floats or float arrays
        The ranges.
    works : callable
        As for `largest`, entry by entry.
    tolerance : float
        As a share of `high`: a range that is no wider is not halved any more.
    halvings : int
        At most so many.
    """
    low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    for _ in range(halvings):
        if (high - low <= tolerance * high).all():
            break
        middle = 0.5 * (low + high)
        good = works(middle)
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    return low


def enclose(
    low: float, high: float, works: Callable[[float], bool], close: Callable[[float, float], bool]
) -> tuple[float, float]:
    """Halve a range at whose upper end something works until its ends are close; return both.

    Parameters
    ----------
    low, high : float
        The range.
    works : callable
        False up to some number, True from there on.
    close : callable
        Whether two ends are close enough.
    """
    while not close(low, high):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if works(middle) else (middle, high)
    return low, high
