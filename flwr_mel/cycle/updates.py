"""Checking and scaling updates. Arrays are views of what came over the network; checks copy nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from flwr_mel._npy import read_npy
from flwr_mel._text import printable

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]
Layout = Mapping[str, tuple[int, ...]]

#: Numbers that are looked at together, so that they stay in the processor's cache.
_CHUNK = 1 << 17
#: Entries along each axis that are compared first.
_HEAD = 8
# numpy has no bfloat16: such arrays are read as two opaque bytes, whose exponent is all ones if not finite.
_BFLOAT16, _EXPONENT = np.dtype("V2"), np.uint16(0x7F80)


class Rejected(ValueError):
    """An update that cannot be averaged, with the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(printable(reason, 300))


def decode(name: str, data: object) -> Array:
    """Return a view of one array of an update, or reject it.

    Parameters
    ----------
    name : str
        For the reason.
    data : bytes
        In numpy's .npy format.
    """
    try:
        return read_npy(data)
    except ValueError as error:
        raise Rejected(f"array {name[:60]} cannot be decoded: {error}") from None


def layout_of(arrays: Arrays) -> dict[str, tuple[int, ...]]:
    """Return the shapes by name."""
    return {name: array.shape for name, array in arrays.items()}


def expected_layout(model: Arrays, updates: Sequence[Arrays]) -> Layout:
    """Return the layout that updates must have: the model's, or if no update has that, the most common one.

    Projects that train adapters only, or begin with a placeholder, return other arrays than they received.

    Parameters
    ----------
    model : mapping of name to array
        Sent to the clients.
    updates : sequence of such mappings
        Received from them.
    """
    own = layout_of(model)
    found = [layout_of(update) for update in updates]
    if not found or own in found:
        return own
    votes = Counter(frozenset(layout.items()) for layout in found)
    best = votes.most_common(1)[0][0]
    return next(layout for layout in found if frozenset(layout.items()) == best)


def check(update: Arrays, expected: Layout, model: Arrays) -> None:
    """Reject an update with other arrays or shapes than expected, or with values that are not finite.

    Parameters
    ----------
    update : mapping of name to array
        Received from a client.
    expected : mapping of name to shape
        From `expected_layout`.
    model : mapping of name to array
        Sent to the clients: what is not finite there, such as a mask of -inf, may stay so.
    """
    if update.keys() != expected.keys():
        odd = ", ".join(sorted(update.keys() ^ expected.keys())[:3])
        raise Rejected(f"it has {len(update)} arrays instead of {len(expected)} (different: {odd[:120]})")
    for name, array in update.items():
        if array.shape != expected[name]:
            raise Rejected(f"array {name[:60]} has shape {array.shape} instead of {expected[name]}")
    wrong = not_finite(update, model)
    if wrong:
        raise Rejected(f"array {wrong[:60]} has values that are not finite")


def not_finite(arrays: Arrays, model: Arrays) -> str:
    """Return the first array with values that are not finite where the model's are; or ""."""
    for name, array in arrays.items():
        if not _finite(array):
            old = model.get(name)
            if old is None or old.shape != array.shape or old.dtype.kind not in "fc":
                return name
            if not bool(np.all(np.isfinite(array) | ~np.isfinite(old))):
                return name
    return ""


def same(update: Arrays, model: Arrays) -> bool:
    """Whether an update is the model itself, to the bit.

    Parameters
    ----------
    update, model : mapping of name to array
        Received and sent.
    """
    if not update or update.keys() != model.keys():
        return False
    # The last layers first: projects that freeze some train these.
    return all(_equal(array, model[name]) for name, array in reversed(list(update.items())))


def _equal(new: Array, old: Array) -> bool:
    """Whether two arrays are equal; trained ones mostly differ in the first numbers."""
    if new.shape != old.shape or new.dtype != old.dtype:
        return False
    head = (slice(_HEAD),) * new.ndim
    return np.array_equal(new[head], old[head]) and np.array_equal(new, old)


def _finite(array: Array) -> bool:
    """Whether all values are finite numbers."""
    if not array.size or array.dtype.kind in "biu":
        return True
    if array.dtype == _BFLOAT16:
        bits = array.view(np.uint16)
        return not any(((part & _EXPONENT) == _EXPONENT).any() for part in _chunks(bits))
    if array.dtype.kind == "c":
        return _finite(array.real) and _finite(array.imag)
    if array.dtype.kind != "f":
        raise Rejected(f"it has an array of type {array.dtype}, which cannot be averaged")
    if array.flags.forc and array.dtype.itemsize >= 4:
        flat = array.reshape(-1, order="A")
        with np.errstate(all="ignore"):
            # One pass: a finite sum of squares has finite terms. Very large values need a closer look.
            if np.isfinite(np.dot(flat, flat)):
                return True
    # A NaN is the least and the largest of its chunk.
    return all(np.isfinite(part.min()) and np.isfinite(part.max()) for part in _chunks(array))


def _chunks(array: Array) -> Iterator[Array]:
    """Yield parts that fit the processor's cache, so that looking twice costs little more than once."""
    if not array.flags.forc:
        yield array
        return
    flat = array.reshape(-1, order="A")
    for start in range(0, flat.size, _CHUNK):
        yield flat[start : start + _CHUNK]


def scaled(update: Arrays, model: Arrays, factor: float) -> Arrays:
    """Return an update with its change of the model multiplied, computed in double precision.

    Counters and the running statistics of batch normalisation do not grow with the number of steps: they stay
    as they are. So do arrays that the model does not have.

    Parameters
    ----------
    update, model : mappings of name to array
        Received and sent.
    factor : float
        1: everything stays as it is, to the bit.
    """
    if factor == 1:
        return update
    fixed = _statistics(update)
    return {
        name: x
        if name in fixed or name not in model or model[name].shape != x.shape
        else _moved(x, model[name], factor)
        for name, x in update.items()
    }


def _moved(new: Array, old: Array, factor: float) -> Array:
    """Return an array whose change of the model is multiplied."""
    wide = np.complex128 if new.dtype.kind == "c" else np.float64
    with np.errstate(invalid="ignore", over="ignore"):  # masks of -inf
        start = old.astype(wide)
        moved = start + factor * (new.astype(wide) - start)
        return np.asarray(np.where(new == old, new, moved)).astype(new.dtype)


def _statistics(arrays: Arrays) -> set[str]:
    """Return the arrays that are no weights: whole numbers, and the state of torch's batch normalisation.

    Its state is a mean, a variance and a counter of batches, in this order; the classic API has no names.
    """
    names, values = list(arrays), list(arrays.values())
    found = {i for i, x in enumerate(values) if x.dtype.kind not in "fc"}
    for i in sorted(found):
        if i >= 2 and values[i].dtype.kind in "iu" and values[i].ndim == 0:
            mean, variance = values[i - 2], values[i - 1]
            if mean.ndim == 1 and mean.shape == variance.shape:
                found |= {i - 2, i - 1}
    return {names[i] for i in found}


def norm(update: Arrays, model: Arrays) -> float:
    """Return the size of an update's change of the model; running statistics and counters do not count."""
    fixed, total = _statistics(update), 0.0
    for name, new in update.items():
        old = model.get(name)
        if name in fixed or old is None or old.shape != new.shape:
            continue
        with np.errstate(invalid="ignore", over="ignore"):
            change = (
                np.abs(new.astype(np.float64) - old.astype(np.float64)) if new.dtype.kind == "f" else None
            )
            change = np.abs(new - old) if change is None else change
            total += float(np.square(np.nan_to_num(change, nan=0.0)).sum())
    return float(np.sqrt(total))


def oversized(norms: Sequence[float], works: Sequence[float], ratio: float) -> list[float]:
    """Return by which factor each update is scaled down; 1: it is not too large.

    An update may be `ratio` times as large as the median, times sqrt(work / median work) between 1 and 4.

    Parameters
    ----------
    norms, works : sequences of float
        Size of the change and samples processed, per learner.
    ratio : float
        `Robust.max_norm_ratio`.
    """
    if len(norms) < 3:
        return [1.0] * len(norms)
    middle, usual = median(norms), median(works)
    factors = []
    for size, work in zip(norms, works, strict=True):
        allowed = ratio * middle * min(max((work / usual) ** 0.5, 1.0), 4.0)
        factors.append(middle / size if size > allowed > 0 else 1.0)
    return factors
