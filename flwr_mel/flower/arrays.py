"""One array of an update beside the model's: may it be averaged? Nothing is copied or cast to find out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from flwr_mel._npy import read_npy
from flwr_mel.flower.reasons import RefusedUpdate

Array = npt.NDArray[Any]
Arrays = list[Array]
#: Which array: its name, after its record's name where a reply has several records.
Key = tuple[str, ...]
#: Doubles of numpy's, not of Python's: beside an array of halves those would be rounded to infinity.
Bounds = tuple[np.float64, np.float64]

#: Larger values are refused: squared and summed over a model they overflow single precision, in which many
#: strategies compute norms and second moments. One overflow there would outlive the cycle.
LARGEST = np.float64(1e15)
FINITE: Bounds = (np.finfo(np.float64).min, np.finfo(np.float64).max)
#: Numbers that are looked at together, so that they stay in the processor's cache.
CHUNK = 1 << 17
# bfloat16 is no type of numpy's: its arrays are saved and read back as two opaque bytes. Without the sign
# such bytes are ordered as the numbers are.
_BFLOAT16 = np.dtype("V2")
_BFLOAT16_LARGEST = int(np.float32(LARGEST).view(np.uint32) >> 16)
_MAGNITUDE = np.uint16(0x7FFF)


def word(key: Key) -> str:
    """Call an array by its name in a reason."""
    return f"array {'/'.join(key)[:60]}"


def decode(name: str, data: object) -> Array:
    """Return a view of one array of an update, or refuse it.

    Parameters
    ----------
    name : str
        What to call it in the reason.
    data : bytes
        In numpy's .npy format.
    """
    try:
        return read_npy(data)
    except ValueError as error:
        raise RefusedUpdate(f"{name[:70]} cannot be decoded: {error}") from None


def kind(dtype: np.dtype[Any]) -> str:
    """Return what an array holds: whole numbers, fractions, ..., or its type where numpy cannot average."""
    return {"u": "i"}.get(dtype.kind, dtype.kind) if dtype.kind in "biufc" else dtype.str


def bounds(dtype: np.dtype[Any]) -> Bounds:
    """Return the range of values that can be averaged in this type."""
    if dtype.kind in "iu":
        whole = np.iinfo(dtype)
        return max(-LARGEST, np.float64(whole.min)), min(LARGEST, np.float64(whole.max))
    largest = min(LARGEST, np.float64(np.finfo(dtype).max)) if dtype.kind == "f" else LARGEST
    return -largest, largest


def flaw(new: Array, old: Array | None, within: Bounds, *, trusted: bool = False) -> str:
    """Say what is wrong with an array's values; "" if nothing is.

    A value out of bounds is right where the model's own is: masks hold -inf, or the least number there is.

    Parameters
    ----------
    new : array
        To be checked.
    old : array, optional
        The model's.
    within : tuple of two floats
        Least and largest value.
    trusted : bool
        Whether the server computed it: the difference of two infinities is no number.
    """
    if not new.size:
        return ""
    if new.dtype == _BFLOAT16:
        largest = max(int((x & _MAGNITUDE).max()) for x in _chunks(new.view(np.uint16)))
        return f"are not finite or larger than {LARGEST:g}" if largest > _BFLOAT16_LARGEST else ""
    if new.dtype.kind == "b":  # numpy takes any byte for a bool
        return "are neither true nor false" if new.view(np.uint8).max() > 1 else ""
    if new.dtype.kind not in "iufc":
        return ""
    with np.errstate(invalid="ignore", over="ignore"):
        for part, mine in _parts(new, old):
            # NaN is neither above nor below, and what is not finite is out of all bounds.
            fits = all(within[0] <= x.min() and x.max() <= within[1] for x in _chunks(part))
            if not fits and not _excused(part, mine, within, trusted=trusted):
                return _words(part, within)
    return ""


def _parts(new: Array, old: Array | None) -> Iterator[tuple[Array, Array | None]]:
    """Yield real and imaginary part, with the model's if it can be compared."""
    mine = old if old is not None and old.shape == new.shape and old.dtype.kind in "iufc" else None
    if new.dtype.kind != "c":
        yield new, mine
        return
    yield new.real, None if mine is None else mine.real
    yield new.imag, None if mine is None else mine.imag


def _chunks(array: Array) -> Iterator[Array]:
    """Yield parts that fit the processor's cache, so that looking twice costs little more than once."""
    if not array.flags.forc:
        yield array
        return
    flat = array.reshape(-1, order="A")
    for start in range(0, flat.size, CHUNK):
        yield flat[start : start + CHUNK]


def _excused(new: Array, old: Array | None, within: Bounds, *, trusted: bool) -> bool:
    """Whether the model's values are out of bounds wherever the new ones are, on the same side."""
    if old is None:
        return False
    for x, mine in np.nditer([new, old], ["external_loop", "buffered"], buffersize=CHUNK):
        fits = (x >= within[0]) & (x <= within[1])
        same = ((x > within[1]) & (mine > LARGEST)) | ((x < within[0]) & (mine < -LARGEST))
        lost = ~np.isfinite(x) & (~np.isfinite(mine) if trusted else np.isnan(mine))
        if not (fits | same | lost).all():
            return False
    return True


def _words(array: Array, within: Bounds) -> str:
    if array.dtype.kind == "f" and not all(np.isfinite(x).all() for x in _chunks(array)):
        return "are not finite"
    if within[1] == LARGEST and within[0] == -LARGEST:
        return f"are larger than {LARGEST:g}"
    return f"do not fit the model: they must be from {within[0]:g} to {within[1]:g}"


def check_update(update: Sequence[Array], model: Sequence[Array]) -> Arrays:
    """Return the update as it is, or refuse it.

    Parameters
    ----------
    update, model : sequences of arrays
        The learner's arrays and the global ones, in the same order.
    """
    if len(update) != len(model):
        raise RefusedUpdate(f"{len(update)} arrays instead of {len(model)}")
    for i, (new, old) in enumerate(zip(update, model, strict=True)):
        key = (str(i),)
        if new.shape != old.shape:
            raise RefusedUpdate(f"{word(key)} has shape {new.shape} instead of {old.shape}")
        check_array(key, new, old, {kind(old.dtype)}, old.dtype)
    return list(update)


def check_array(key: Key, new: Array, old: Array | None, kinds: set[str], usual: np.dtype[Any]) -> None:
    """Refuse an array whose values cannot be averaged with the others'.

    Parameters
    ----------
    key : tuple of str
        Its name.
    new : array
        The learner's.
    old : array, optional
        The model's, if it has such an array.
    kinds : set of str
        What it may hold, see `kind`.
    usual : numpy type
        Its values must fit this one.
    """
    if kind(new.dtype) not in kinds:
        raise RefusedUpdate(f"{word(key)} is of type {new.dtype} instead of {usual}")
    if wrong := flaw(new, old, bounds(usual)):
        raise RefusedUpdate(f"{word(key)} has values that {wrong}")


def shapes(arrays: Mapping[Key, Array]) -> dict[Key, tuple[int, ...]]:
    """Return the shapes by name."""
    return {key: array.shape for key, array in arrays.items()}
