"""Checks of what learners send back: an update is used only if it fits the model and is finite."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from flwr_mel._npy import read_npy
from flwr_mel._validate import number

Arrays = list[npt.NDArray[Any]]
Shape = frozenset[tuple[str, str]]
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# How Flower ends the words it puts around a client's exception.
_WRAPPING = re.compile(r"'>(\)\. It originated during client-side execution of a message\.)?$")
_LONGEST_REASON = 300
#: Larger values are refused: squared and summed over a model they overflow single precision, in which many
#: strategies compute norms and second moments. One overflow there would outlive the cycle.
_LARGEST = 1e15
_MOST_METRICS, _LONGEST_METRIC = 10_000, 100_000
#: How many sets of metrics are tried before only those that everybody reports count.
_MOST_TRIES = 32


class RefusedUpdate(ValueError):
    """An update that must not be averaged; the message is the reason on the record."""

    def __init__(self, reason: str) -> None:
        super().__init__(printable(reason))


def printable(text: str) -> str:
    """Make a stranger's words fit for one line of a log: no escapes or line ends, and not too many."""
    short = text if len(text) <= _LONGEST_REASON else f"{text[: _LONGEST_REASON - 3]}..."
    if short.isprintable():
        return short
    return "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in short)


def brief(reason: str) -> str:
    """Shorten what the engine says of a failure, often a whole traceback, to its last line."""
    end = reason[-10 * _LONGEST_REASON :]
    lines = [line.strip() for line in _COLOURS.sub("", end).splitlines() if line.strip()]
    return printable(_WRAPPING.sub("", lines[-1]) if lines else "no reason given")


def decode(name: str, data: object, mine: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Decode one array of an update, or refuse it.

    Parameters
    ----------
    name : str
        What to call it in the reason.
    data : bytes
        In numpy's .npy format.
    mine : array
        The global model's.
    """
    if isinstance(data, bytes) and len(data) > 2 * mine.nbytes + 4096:
        raise RefusedUpdate(f"{name[:60]} has {len(data)} bytes instead of {mine.nbytes}")
    try:
        return read_npy(data)
    except ValueError as error:
        raise RefusedUpdate(f"{name[:60]} cannot be decoded: {error}") from None


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
        kind = old.dtype.kind
        if new.dtype.kind != kind or (kind not in "biufc" and new.dtype != old.dtype):
            raise RefusedUpdate(f"array {i} is of type {new.dtype} instead of {old.dtype}")
        with np.errstate(over="ignore", invalid="ignore"):
            same = new.astype(old.dtype, copy=False)
            if flaw := _flaw(same, new):
                raise RefusedUpdate(f"array {i} has values that {flaw}")
        checked.append(same)
    return checked


def _flaw(array: npt.NDArray[Any], sent: npt.NDArray[Any]) -> str:
    """Say what is wrong with an array's values; "" if nothing is."""
    kind = array.dtype.kind
    if not array.size or kind not in "biufc":
        return ""
    if kind == "b":  # numpy takes any byte for a bool
        return "are neither true nor false" if array.view(np.uint8).max() > 1 else ""
    if kind in "fc" and not np.isfinite(array).all():
        return "are not finite"
    peak = np.abs(array).max() if kind == "c" else max(abs(float(array.max())), abs(float(array.min())))
    if peak > _LARGEST:
        return f"are larger than {_LARGEST:g}"
    return "" if kind in "fc" or array is sent or np.array_equal(array, sent) else f"do not fit {array.dtype}"


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
    except ValueError as error:
        raise RefusedUpdate(f"claims no usable number of samples: {error}") from None
    if samples < 1:
        raise RefusedUpdate(f"trained on no samples (claims {samples:g} of {allocated})")
    return min(int(samples), allocated)


def check_metrics(metrics: Mapping[str, object]) -> None:
    """Refuse a reply whose metrics are too many to be handled.

    Parameters
    ----------
    metrics : mapping
        What one learner reported.
    """
    if len(metrics) > _MOST_METRICS:
        raise RefusedUpdate(f"reports {len(metrics):,} metrics, more than {_MOST_METRICS:,}")
    longest = max((len(x) for x in metrics.values() if isinstance(x, list)), default=0)
    if longest > _LONGEST_METRIC:
        raise RefusedUpdate(f"reports a metric of {longest:,} numbers, more than {_LONGEST_METRIC:,}")


def odd_metrics(metrics: Mapping[str, Mapping[str, object]]) -> tuple[set[str], dict[str, str]]:
    """Find the learners whose metrics cannot be averaged with the others'.

    Flower refuses a whole round when one reply has other metrics than the rest. The largest set of names and
    kinds that more than half of the learners report counts, and a learner that lacks some of it is odd.
    Where no set has a majority, only what everybody reports counts and nobody is odd. So nobody can have
    another refused by reporting more or less. Metrics that are not finite count as not reported: they would
    spoil the average.

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
    if not metrics:
        return set(), {}
    shapes = {node: _shape(said) for node, said in metrics.items()}
    common = _common(list(shapes.values()))
    odd = {}
    for node, shape in shapes.items():
        if lacking := sorted(key for key, _ in common - shape):
            odd[node] = printable(f"its metrics do not fit the others': {', '.join(lacking[:3])}")
    return {key for key, _ in common}, odd


def _shape(said: Mapping[str, object]) -> Shape:
    """Return the names and kinds of what can be averaged."""
    kinds = ((key, _kind(value)) for key, value in said.items())
    return frozenset((key, kind) for key, kind in kinds if kind)


def _kind(value: object) -> str:
    """Return what a metric is; "" if no average can take it."""
    if isinstance(value, list):
        return f"{len(value)} numbers" if all(_kind(x) == "number" for x in value) else ""
    if not isinstance(value, int | float):
        return type(value).__name__
    try:
        # Within the square root of what a float holds, so that weighted sums stay finite.
        return "number" if abs(float(value)) < 1e150 else ""
    except OverflowError:
        return ""


def _common(shapes: Sequence[Shape]) -> Shape:
    """Return the largest of the sets that more than half have, or else what all have."""
    counts = Counter(key for shape in shapes for key in shape)
    usual = {key for key, n in counts.items() if 2 * n > len(shapes)}
    tries = sorted({s for s in shapes if s <= usual}, key=lambda s: (-len(s), sorted(s)))
    for tried in tries[:_MOST_TRIES]:
        if 2 * sum(tried <= shape for shape in shapes) > len(shapes):
            return tried
    return frozenset(key for key, n in counts.items() if n == len(shapes))


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
