"""Checks of what learners send back: an update is used only if it fits the model and is finite."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import number

Arrays = list[npt.NDArray[Any]]
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# How Flower ends the words it puts around a client's exception.
_WRAPPING = re.compile(r"'>(\)\. It originated during client-side execution of a message\.)?$")
_LONGEST_REASON = 300


class RefusedUpdate(ValueError):
    """An update that must not be averaged; the message is the reason on the record."""


def brief(reason: str) -> str:
    """Shorten what the engine says of a failure, often a whole traceback, to its last line."""
    lines = [line.strip() for line in _COLOURS.sub("", reason).splitlines() if line.strip()]
    last = _WRAPPING.sub("", lines[-1]) if lines else "no reason given"
    return last if len(last) <= _LONGEST_REASON else f"{last[: _LONGEST_REASON - 3]}..."


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
    try:
        samples = number("samples", claimed)
    except ValueError:
        raise RefusedUpdate(f"claims {str(claimed)[:40]} as its number of samples") from None
    if samples < 1:
        raise RefusedUpdate(f"trained on no samples (claims {samples:g} of {allocated})")
    return min(int(samples), allocated)


def odd_metrics(metrics: Mapping[str, Mapping[str, object]]) -> tuple[set[str], dict[str, str]]:
    """Find the learners whose metrics cannot be averaged with the others'.

    Flower refuses a whole round when one reply has other metrics than the rest. The most common set of names
    and lengths counts; a learner that lacks some of it is odd.

    Parameters
    ----------
    metrics : mapping of node to mapping
        What each learner reported.

    Returns
    -------
    keys : set of str
        The common names; drop all others.
    odd : dict of node to str
        The reason, per odd learner.
    """
    shapes = {
        node: {(key, len(value) if isinstance(value, list) else -1) for key, value in said.items()}
        for node, said in metrics.items()
    }
    if not shapes:
        return set(), {}
    # Ties go to the larger set, then to the names: the same choice whoever answers first.
    votes = Counter(frozenset(shape) for shape in shapes.values())
    common = max(votes, key=lambda shape: (votes[shape], len(shape), sorted(shape)))
    odd = {}
    for node, shape in shapes.items():
        if lacking := sorted(key for key, _ in common - shape):
            odd[node] = f"its metrics do not fit the others': {', '.join(lacking[:3])}"
    return {key for key, _ in common}, odd


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
