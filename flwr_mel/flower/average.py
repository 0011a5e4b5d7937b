"""The average of the updates: the paper's, and changes scaled before it for FedNova's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import complain
from flwr_mel.orchestrator.averaging import Average

Array = npt.NDArray[Any]


def weighted_average(updates: Sequence[Sequence[Array]], weights: Sequence[float]) -> list[Array]:
    """Average with weights d_k, Eq. (Eq_Sec03_GlobalAgg), summed in double precision.

    The same bits come out whichever Flower API brought the updates, as long as their order is the same.

    Parameters
    ----------
    updates : sequence of sequences of arrays
        Per learner the model's arrays.
    weights : sequence of numbers
        Samples per learner.
    """
    total = float(sum(weights))
    average = []
    for layer in zip(*updates, strict=True):
        kind = layer[0].dtype
        accumulated = np.zeros(layer[0].shape, np.complex128 if kind.kind == "c" else np.float64)
        for array, weight in zip(layer, weights, strict=True):
            accumulated += array.astype(accumulated.dtype) * (weight / total)
        # Of an array without dimensions numpy's functions make a plain number.
        exact = accumulated if kind.kind in "fc" else np.asarray(np.rint(accumulated))
        average.append(exact.astype(kind))
    return average


def scaled(new: Sequence[Array], old: Sequence[Array | None], factor: float) -> list[Array]:
    """Return an update with its change of the model multiplied, computed in double precision.

    Counters and other whole numbers, and the running statistics of batch normalisation, do not grow with the
    number of steps: they stay as they are. So do arrays that the model does not have.

    Parameters
    ----------
    new : sequence of arrays
        A learner's, in the order in which it sent them.
    old : sequence of arrays or None
        The model's, in the same order.
    factor : float
        tau_eff / s_k; 1: everything stays as it is, to the bit.
    """
    if factor == 1:
        return list(new)
    fixed = statistics(new)
    return [
        x if i in fixed or mine is None or mine.shape != x.shape else moved_by(x, mine, factor)
        for i, (x, mine) in enumerate(zip(new, old, strict=True))
    ]


def moved_by(new: Array, old: Array, factor: float) -> Array:
    """Return an array whose change of the model is multiplied, computed in double precision.

    Parameters
    ----------
    new, old : arrays
        A learner's and the model's, of one shape.
    factor : float
        Any.
    """
    wide = np.complex128 if new.dtype.kind == "c" else np.float64
    with np.errstate(invalid="ignore", over="ignore"):  # masks of -inf; what is too large is refused later
        start = old.astype(wide)
        moved = start + factor * (new.astype(wide) - start)
        return np.asarray(np.where(new == old, new, moved)).astype(new.dtype)


def statistics(arrays: Sequence[Array]) -> set[int]:
    """Return which arrays are no weights: whole numbers, and what torch's batch normalisation keeps.

    Its state is a mean, a variance and a counter of batches, in this order; the classic API has no names.
    """
    found = {i for i, x in enumerate(arrays) if x.dtype.kind not in "fc"}
    for i in sorted(found):
        if i >= 2 and arrays[i].dtype.kind in "iu" and arrays[i].ndim == 0:
            mean, variance = arrays[i - 2], arrays[i - 1]
            if mean.ndim == 1 and mean.shape == variance.shape:
                found |= {i - 2, i - 1}
    return found


class Normalised:
    """A strategy that is averaged by FedNova's rule when it is inside a MelStrategy, which knows the work.

    Parameters
    ----------
    average : str
        "nova" or "nova-held"; see `Average`.
    **settings
        Of FedAvg.
    """

    #: Set by the MelStrategy around it.
    wrapped = False

    def __init__(self, *, average: Average | str = Average.NOVA, **settings: Any) -> None:
        super().__init__(**settings)
        if average not in (Average.NOVA, Average.NOVA_HELD):
            raise complain("average", "'nova' or 'nova-held'", average, "For 'samples' use MelFedAvg.")
        self.average = Average(average)

    def check_wrapped(self) -> None:
        """Refuse to average without knowing who did how much."""
        if not self.wrapped:
            raise RuntimeError(
                f"{type(self).__name__} normalises by the work that each learner was given, which only a "
                "MelStrategy around it knows. Use MelStrategy(MelFedNova(...)), or FedAvg without it."
            )
