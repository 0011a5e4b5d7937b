"""How large an update is beside the others': the norm of what it changes of the model.

One that is many times as large as the others' moves the average by itself, whatever its weight is. Honest
updates differ, too: with the steps that were done, by about the square root of their number once the
gradients of single batches are mostly noise. So the bound is a multiple of the middle one's size, times the
square root of the work over the middle one's work, within limits, where that is more than 1. What is larger
is cut back to the middle one's size, in its own direction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from flwr_mel.flower.arrays import CHUNK, Array
from flwr_mel.flower.average import moved_by

#: More work than the middle one's counts up to this square.
_MOST_FOR_WORK = 4.0
#: Of fewer learners there is no middle one.
_FEWEST = 3


def change(new: Sequence[Array], old: Sequence[Array | None]) -> float:
    """Return the norm of what an update changes; whole numbers, such as counters, are not looked at.

    Parameters
    ----------
    new : sequence of arrays
        A learner's.
    old : sequence of arrays or None
        The model's, in the same order; None where it has no such array.
    """
    squares = 0.0
    for x, mine in zip(new, old, strict=True):
        if mine is not None and comparable(x, mine):
            squares += _square(x, mine)
    return float(np.sqrt(squares))


def comparable(new: Array, old: Array) -> bool:
    """Whether an array's change of the model is a number that can be scaled."""
    return new.shape == old.shape and new.dtype.kind in "fc" and old.dtype.kind in "fc"


def _square(new: Array, old: Array) -> float:
    """Return the squared norm of a difference, in parts that fit the processor's cache."""
    wide = np.result_type(new.dtype, old.dtype, np.float32)
    found, buffer = 0.0, np.empty(min(CHUNK, new.size), wide)
    a, b = new.reshape(-1), old.reshape(-1)
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, new.size, CHUNK):
            part = buffer[: min(CHUNK, new.size - start)]
            np.subtract(a[start : start + CHUNK], b[start : start + CHUNK], out=part)
            square = float(np.vdot(part, part).real)
            # The difference of two infinities, as in masks, is none.
            found += square if np.isfinite(square) else _finite_square(part)
    return found


def _finite_square(part: Array) -> float:
    finite = part[np.isfinite(part)].astype(np.complex128 if part.dtype.kind == "c" else np.float64)
    return float(np.vdot(finite, finite).real)


def beside_the_usual(norms: Mapping[str, float], works: Mapping[str, float]) -> dict[str, float]:
    """Return how many times as large as usual everybody's update is; empty: nobody can tell.

    Parameters
    ----------
    norms : mapping of str to float
        How large everybody's is.
    works : mapping of str to float
        Epochs times samples.
    """
    sizes = np.array(list(norms.values()))
    if len(norms) < _FEWEST or not (middle := float(np.median(sizes))) > 0:
        return {}
    work = np.array([max(works[node], 1.0) for node in norms])
    usual = middle * np.clip(np.sqrt(work / np.median(work)), 1.0, _MOST_FOR_WORK)
    return dict(zip(norms, (sizes / usual).tolist(), strict=True))


def too_large(norms: Mapping[str, float], works: Mapping[str, float], ratio: float) -> dict[str, float]:
    """Return the factors by which updates are cut back, below 1; nobody else's is in it.

    They are cut back to the middle one's size: what is beyond all that work explains has lost the benefit of
    the doubt.

    Parameters
    ----------
    norms, works : mappings of str to float
        As for `beside_the_usual`.
    ratio : float
        How many times as large as usual an update may be.
    """
    middle = float(np.median(list(norms.values()))) if norms else 0.0
    times = beside_the_usual(norms, works)
    return {node: middle / norms[node] for node, size in times.items() if size > ratio}


def cut_back(new: Sequence[Array], old: Sequence[Array | None], factor: float) -> list[Array]:
    """Return an update with its change of the model made smaller.

    Running statistics are cut back, too: between two variances there is always a variance.

    Parameters
    ----------
    new : sequence of arrays
        A learner's.
    old : sequence of arrays or None
        The model's.
    factor : float
        Below 1.
    """
    return [
        x if mine is None or not comparable(x, mine) else moved_by(x, mine, factor)
        for x, mine in zip(new, old, strict=True)
    ]


def cut_words(factor: float) -> str:
    """Say that an update was cut back, for the record.

    Parameters
    ----------
    factor : float
        From `too_large`.
    """
    return f"sent an update {1 / factor:.3g} times as large as the middle one: it was cut back to that"
