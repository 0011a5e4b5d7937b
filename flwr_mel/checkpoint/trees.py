"""Nested lists, tuples and dicts of arrays and plain values, as JSON beside a list of arrays.

No pickle anywhere: what can be read back is what is named here.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Arrays: TypeAlias = list[npt.NDArray[Any]]
Node: TypeAlias = list[Any]

_PLAIN = (type(None), bool, int, float, str)


def pack(value: Any, arrays: Arrays) -> Node:
    """Return `value` in a form that JSON can carry; its arrays are appended to `arrays`.

    Parameters
    ----------
    value : object
        None, bool, int, float, str, bytes, numpy arrays and scalars, and lists, tuples and dicts of them.
        Types are kept exactly, so subclasses are refused.
    arrays : list of arrays
        Where the arrays go; the result refers to them by position.

    Raises
    ------
    TypeError
        If there is anything else in it.
    """
    kind = type(value)
    if kind in _PLAIN:
        return ["plain", value]
    if kind is np.ndarray or isinstance(value, np.generic):
        return ["array" if kind is np.ndarray else "scalar", _put(np.asarray(value), arrays)]
    if kind is bytes:
        return ["bytes", _put(np.frombuffer(value, np.uint8), arrays)]
    if kind is list or kind is tuple:
        return [kind.__name__, [pack(x, arrays) for x in value]]
    if kind is dict:
        return ["dict", [[pack(key, arrays), pack(x, arrays)] for key, x in value.items()]]
    raise TypeError(f"a {kind.__module__}.{kind.__qualname__} cannot be kept in a checkpoint")


def _put(array: npt.NDArray[Any], arrays: Arrays) -> int:
    # Types that numpy's file format would pickle, or would read back as something else.
    if array.dtype.hasobject or np.dtype(array.dtype.str) != array.dtype:
        raise TypeError(f"an array of type {array.dtype} cannot be kept in a checkpoint")
    arrays.append(array)
    return len(arrays) - 1


def unpack(node: Node, arrays: Arrays) -> Any:
    """Turn `pack`'s form back into the value.

    Parameters
    ----------
    node : list
        From `pack`.
    arrays : list of arrays
        The ones it refers to.
    """
    kind, value = node
    match kind:
        case "plain":
            return value
        case "array" | "scalar" | "bytes":
            array = arrays[value]
            return array if kind == "array" else array[()] if kind == "scalar" else array.tobytes()
        case "list" | "tuple":
            entries = [unpack(x, arrays) for x in value]
            return entries if kind == "list" else tuple(entries)
        case "dict":
            return {unpack(key, arrays): unpack(x, arrays) for key, x in value}
    raise ValueError(f"unknown kind of entry {kind!r}")
