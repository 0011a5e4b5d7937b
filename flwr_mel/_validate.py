"""Checks of input values: every message names the field, the rule, the value and the remedy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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


class Phrase(str):
    """Words of an error in which fields are named, so that each place can call them by its own names.

    Otherwise a plain text, with the fields as the library calls them. As the value of an error it is
    shown without quotes: it describes what was received.

    Parameters
    ----------
    template : str
        Ours, never the user's; ``{}`` stands for a field.
    *fields : str
        In the order of the template. What is no field's name stays as it is.
    """

    template: str
    fields: tuple[str, ...]

    def __new__(cls, template: str, *fields: str) -> Phrase:
        """Name the fields as the library does."""
        phrase = super().__new__(cls, template.format(*fields) if fields else template)
        phrase.template, phrase.fields = template, fields
        return phrase

    def told(self, names: Mapping[str, str]) -> str:
        """Return the text with fields called by other names."""
        if not self.fields:
            return str(self)
        return self.template.format(*(names.get(field, field) for field in self.fields))

    def __getnewargs__(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.template, *self.fields)


#: Shown as the value of what was not given.
NOTHING = Phrase("nothing")
#: What to do about a limit that is refused, in Python, in files and on the command line.
NO_LIMIT_REMEDY = "Leave it out for no limit (None in Python)."


class InputError(ValueError):
    """Input that breaks a rule: which field, which rule, what was received, what to do.

    Raised from an `OSError` (its ``__cause__``) when the input may be right and the machine is in the way.

    Parameters
    ----------
    field : str
        As the library calls it.
    rule : str
        What it must be.
    value : object
        What was received.
    remedy : str
        What to do, in sentences.
    where : str
        The place, if it is not an argument: a file and line, a device. Its fields keep their names.
    index : int, optional
        Which entry, if the field is a list.
    """

    def __init__(
        self,
        field: str,
        rule: str,
        value: object,
        remedy: str = "",
        where: str = "",
        index: int | None = None,
    ) -> None:
        super().__init__(field, rule, value, remedy, where, index)
        self.field, self.rule, self.value = field, rule, value
        self.remedy, self.where, self.index = remedy, where, index

    def __str__(self) -> str:
        return self.told({})

    def __reduce__(self) -> tuple[Any, ...]:
        # Values may be anything; what travels between processes is plain.
        plain = isinstance(self.value, str | int | float | bool | None)
        value = self.value if plain else Phrase(_short(self.value))
        return type(self), (self.field, self.rule, value, self.remedy, self.where, self.index)

    def told(self, names: Mapping[str, str]) -> str:
        """Return the message with fields called by other names, such as options.

        Parameters
        ----------
        names : mapping
            From fields to names. Fields that are not in it, and those of a file, keep theirs.
        """
        names = {} if self.where else names
        name = names.get(self.field, self.field) + ("" if self.index is None else f"[{self.index}]")
        text = f"{name} must be {_named(self.rule, names)}, got {_short(self.value)}"
        text += f". {_named(self.remedy, names)}" if self.remedy else ""
        return f"{self.where}: {text}" if self.where else text


def complain(
    field: str, rule: str, value: object, remedy: str = "", *, where: str = "", index: int | None = None
) -> InputError:
    """Build the one form of error that the library uses for bad input."""
    return InputError(field, rule, value, remedy, where, index)


def _named(text: str, names: Mapping[str, str]) -> str:
    return text.told(names) if isinstance(text, Phrase) else text


def _short(value: object) -> str:
    """Show a value in one line, whatever it is."""
    try:
        text = str(value) if isinstance(value, Phrase) else repr(value)
    except ValueError:  # Python refuses to print integers of thousands of digits
        return f"a {type(value).__name__} of thousands of digits"
    text = " ".join(text.split())
    # Descriptions are ours, and may hold a long path.
    if len(text) <= (1000 if isinstance(value, Phrase) else 120):
        return text
    return f"{text[:80]} ... ({len(text):,} characters)"


def number(
    field: str,
    value: object,
    *,
    above: float | None = None,
    least: float | None = None,
    remedy: str = "",
    index: int | None = None,
) -> float:
    """Return `value` as a finite float, strictly above `above` or at least `least`."""
    # Plain numbers, which nearly all are, need no question of an abstract class.
    real = type(value) is float or type(value) is int
    if real or (not isinstance(value, bool | np.bool_) and isinstance(value, Real)):
        try:
            x = float(value)  # type: ignore[arg-type]
        except OverflowError:
            x = math.inf
        if math.isfinite(x) and (above is None or x > above) and (least is None or x >= least):
            return x
    rule = "a finite number"
    if above is not None:
        rule += f" > {above:g}"
    if least is not None:
        rule += f" >= {least:g}"
    raise complain(field, rule, value, remedy, index=index)


def count(field: str, value: object, *, least: int = 0, remedy: str = "", index: int | None = None) -> int:
    """Return `value` as an int between `least` and ``MAX_COUNT``; 3.0 passes, 3.5 and True do not."""
    rule = f"an integer from {least} to 2**40"
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise complain(field, rule, value, remedy, index=index)
    try:
        whole = isinstance(value, Integral) or float(value).is_integer()
    except OverflowError:
        whole = False
    if not whole:
        raise complain(field, rule, value, remedy, index=index)
    n: int = int(value)  # type: ignore[call-overload]
    if not least <= n <= MAX_COUNT:
        raise complain(field, rule, value, remedy, index=index)
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
    remedy: str = "",
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
            number(field, float(array[k]), above=above, least=least, remedy=remedy, index=k)
    else:
        array = np.array(
            [number(field, x, above=above, least=least, remedy=remedy, index=k) for k, x in enumerate(given)],
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
            count(field, int(given[k]), least=least, index=k)
        array = given.astype(np.int64)
    else:
        array = np.array([count(field, x, least=least, index=k) for k, x in enumerate(given)], dtype=np.int64)
    return frozen(array)


def frozen(array: A) -> A:
    """Make a fresh array read-only and return it."""
    array.setflags(write=False)
    return array
