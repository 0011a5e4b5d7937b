"""Checks of input values: every message names the field, the rule, the value and the remedy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

A = TypeVar("A", bound=np.ndarray[Any, Any])
FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]

#: Sample and epoch counts stay below this, so that the product of two of them is exact in float64
#: wherever the library multiplies them.
MAX_COUNT = 2**40


def complain(field: str, rule: str, value: object, remedy: str = "") -> ValueError:
    """Build the one form of error message the library uses for bad input."""
    text = f"{field} must be {rule}, got {_short(value)}"
    return ValueError(f"{text}. {remedy}" if remedy else text)


def _short(value: object) -> str:
    """Show a value in one line, whatever it is."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print integers of thousands of digits
        return f"a {type(value).__name__} of thousands of digits"
    text = " ".join(text.split())
    return text if len(text) <= 120 else f"{text[:80]} ... ({len(text):,} characters)"


def number(
    field: str,
    value: object,
    *,
    above: float | None = None,
    least: float | None = None,
    remedy: str = "",
) -> float:
    """Return `value` as a finite float, strictly above `above` or at least `least`."""
    rule = "a finite number"
    if above is not None:
        rule += f" > {above:g}"
    if least is not None:
        rule += f" >= {least:g}"
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise complain(field, rule, value, remedy)
    try:
        x = float(value)
    except OverflowError:
        raise complain(field, rule, value, remedy) from None
    if not math.isfinite(x) or (above is not None and x <= above) or (least is not None and x < least):
        raise complain(field, rule, value, remedy)
    return x


def count(field: str, value: object, *, least: int = 0, remedy: str = "") -> int:
    """Return `value` as an int between `least` and ``MAX_COUNT``; 3.0 passes, 3.5 and True do not."""
    rule = f"an integer from {least} to 2**40"
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise complain(field, rule, value, remedy)
    try:
        whole = isinstance(value, Integral) or float(value).is_integer()
    except OverflowError:
        whole = False
    if not whole:
        raise complain(field, rule, value, remedy)
    n: int = int(value)  # type: ignore[call-overload]
    if not least <= n <= MAX_COUNT:
        raise complain(field, rule, value, remedy)
    return n


def entries(field: str, value: object, length: int | None) -> list[Any] | np.ndarray[Any, Any]:
    """Return a one-dimensional sequence of entries of the asked length."""
    if isinstance(value, np.ndarray):
        if value.ndim != 1:
            raise complain(field, "one-dimensional", f"shape {value.shape}")
        given: list[Any] | np.ndarray[Any, Any] = value
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        given = list(value)
    else:
        raise complain(field, "a list, tuple or array of numbers", value)
    if length is not None and len(given) != length:
        raise complain(field, f"one value per learner ({length})", f"{len(given)} values")
    return given


def numbers(
    field: str,
    value: object,
    *,
    length: int | None = None,
    above: float | None = None,
    least: float | None = None,
) -> FloatArray:
    """Return a read-only float array of finite numbers, each checked as `number` does."""
    given = entries(field, value, length)
    if isinstance(given, np.ndarray) and given.dtype.kind in "fiu":
        with np.errstate(over="ignore"):  # a long double may not fit; it is refused as infinite
            array = given.astype(np.float64)
        bad = ~np.isfinite(array)
        if above is not None:
            bad |= array <= above
        if least is not None:
            bad |= array < least
        if bad.any():
            k = int(np.flatnonzero(bad)[0])
            number(f"{field}[{k}]", float(array[k]), above=above, least=least)
    else:
        array = np.array(
            [number(f"{field}[{k}]", x, above=above, least=least) for k, x in enumerate(given)],
            dtype=np.float64,
        )
    return frozen(array)


def counts(field: str, value: object, *, length: int | None = None, least: int = 0) -> IntArray:
    """Return a read-only int array, each entry checked as `count` does."""
    given = entries(field, value, length)
    if isinstance(given, np.ndarray) and given.dtype.kind in "iu":
        bad = (given < least) | (given > MAX_COUNT)
        if bad.any():
            k = int(np.flatnonzero(bad)[0])
            count(f"{field}[{k}]", int(given[k]), least=least)
        array = given.astype(np.int64)
    else:
        array = np.array(
            [count(f"{field}[{k}]", x, least=least) for k, x in enumerate(given)], dtype=np.int64
        )
    return frozen(array)


def frozen(array: A) -> A:
    """Make a fresh array read-only and return it."""
    array.setflags(write=False)
    return array
