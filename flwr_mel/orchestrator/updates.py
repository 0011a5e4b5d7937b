"""Checks of what learners send back: an update is used only if it fits the model and is finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = list[npt.NDArray[Any]]


class RefusedUpdate(ValueError):
    """An update that must not be averaged; the message is the reason on the record."""


def check_update(update: Sequence[npt.NDArray[Any]], model: Sequence[npt.NDArray[Any]]) -> Arrays:
    """Return the update in the model's types, or refuse it.

    Parameters
    ----------
    update, model : sequences of arrays
        The learner's arrays and the global ones, in the same order.
    """
    if len(update) != len(model):
        raise RefusedUpdate(f"{len(update)} arrays instead of {len(model)}")
    checked = []
    for i, (new, old) in enumerate(zip(update, model, strict=True)):
        if new.shape != old.shape:
            raise RefusedUpdate(f"array {i} has shape {new.shape} instead of {old.shape}")
        if new.dtype.kind != old.dtype.kind:
            raise RefusedUpdate(f"array {i} is of type {new.dtype} instead of {old.dtype}")
        with np.errstate(over="ignore"):
            same = new.astype(old.dtype, copy=False)
        if same.dtype.kind in "fc" and not np.isfinite(same).all():
            raise RefusedUpdate(f"array {i} has values that are not finite")
        checked.append(same)
    return checked


def check_weight(claimed: object, allocated: int) -> int:
    """Return the samples that count: those claimed, but never more than were allocated.

    Parameters
    ----------
    claimed : object
        What the learner says it trained on; None when it says nothing.
    allocated : int
        What the server allocated to it.
    """
    if claimed is None:
        return allocated
    if isinstance(claimed, bool) or not isinstance(claimed, int | float) or not np.isfinite(claimed):
        raise RefusedUpdate(f"claims {claimed!r} as its number of samples")
    if claimed < 1:
        raise RefusedUpdate(f"trained on no samples (claims {claimed:g} of {allocated})")
    return min(int(claimed), allocated)


def weighted_average(updates: Sequence[Sequence[npt.NDArray[Any]]], weights: Sequence[int]) -> Arrays:
    """Average with weights d_k, Eq. (Eq_Sec03_GlobalAgg), summed in double precision.

    The same bits come out whichever Flower API brought the updates, as long as their order is the same.

    Parameters
    ----------
    updates : sequence of sequences of arrays
        Per learner the model's arrays.
    weights : sequence of int
        Samples per learner.
    """
    total = float(sum(weights))
    average = []
    for layer in zip(*updates, strict=True):
        accumulated = np.zeros(layer[0].shape, dtype=np.float64)
        for array, weight in zip(layer, weights, strict=True):
            accumulated += array.astype(np.float64) * (weight / total)
        kind = layer[0].dtype
        average.append(accumulated.astype(kind) if kind.kind == "f" else np.rint(accumulated).astype(kind))
    return average
