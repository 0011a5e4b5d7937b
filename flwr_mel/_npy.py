"""Arrays in numpy's .npy format from outside: nothing is allocated, evaluated or unpickled unchecked.

`numpy.load` makes room for the shape that the header claims before it looks for the data, opens archives that
it takes for .npz files, and evaluates the header as a Python literal. Here the header must have the plain
form that numpy itself writes, and the data must have exactly the bytes that it claims.
"""

from __future__ import annotations

import io
import math
import re
from typing import Any

import numpy as np
import numpy.typing as npt

#: numpy has no bfloat16, the upper half of a float32: it reads such arrays as two opaque bytes.
BFLOAT16 = np.dtype("V2")
_MAGIC = b"\x93NUMPY"
#: Format versions by how many bytes the header's length takes.
_LENGTH_BYTES = {b"\x01\x00": 2, b"\x02\x00": 4, b"\x03\x00": 4}
# 64 dimensions of 18 digits and all the words around them are shorter.
_LONGEST_HEADER = 2048
_NUMBER = rb"(?:0|[1-9][0-9]{0,17})"
# Not wider than Python's own grammar: what is accepted here must mean the same to numpy.load.
_HEADER = re.compile(
    rb"\{'descr': *'([<>|=]?[biufcSUmMV][0-9]{1,9}(?:\[[0-9]{0,9}[a-zA-Z]{1,2}\])?)', *"
    rb"'fortran_order': *(True|False), *"
    rb"'shape': *\((|" + _NUMBER + rb", *|" + _NUMBER + rb"(?:, *" + _NUMBER + rb"){1,63},? *)\),? *\} *\n?"
)


def read_npy(data: object) -> npt.NDArray[Any]:
    """Return a read-only view of the array in `data`; raise ValueError with the reason if there is none.

    Parameters
    ----------
    data : bytes
        As `numpy.save` writes them, without pickles and without records.
    """
    if not isinstance(data, bytes):
        raise ValueError(f"not bytes but {type(data).__name__}")  # noqa: TRY004 - one error for callers
    wide = _LENGTH_BYTES.get(data[6:8])
    if data[:6] != _MAGIC or wide is None:
        raise ValueError("not in numpy's .npy format")
    start = 8 + wide
    end = start + int.from_bytes(data[8:start], "little")
    found = _HEADER.fullmatch(data[start:end]) if end <= min(len(data), start + _LONGEST_HEADER) else None
    if found is None:
        raise ValueError("its .npy header is not that of a plain array")
    try:
        dtype = np.dtype(found[1].decode("ascii"))
    except TypeError:
        raise ValueError(f"no such type: {found[1].decode('ascii')}") from None
    shape = tuple(int(n) for n in found[3].replace(b",", b" ").split())
    size = math.prod(shape) * dtype.itemsize
    if not dtype.itemsize or size != len(data) - end:
        raise ValueError(f"its .npy header claims {size} bytes, but {len(data) - end} follow")
    return np.ndarray(shape, dtype, buffer=data, offset=end, order="F" if found[2] == b"True" else "C")


def write_npy(array: npt.NDArray[Any]) -> bytes:
    """Return an array in numpy's .npy format, without pickle.

    Parameters
    ----------
    array : ndarray
        Not of objects.
    """
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def wide(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array of numbers in double precision, as a copy."""
    if array.dtype == BFLOAT16:
        array = np.left_shift(array.view(np.uint16), 16, dtype=np.uint32).view(np.float32)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def narrow(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return what `wide` returned in the nearest values of a type."""
    with np.errstate(invalid="ignore", over="ignore"):
        if dtype == BFLOAT16:
            bits = np.asarray(array, np.float32).view(np.uint32)
            return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16).view(BFLOAT16)
        # numpy's functions turn an array without dimensions into a plain number.
        return np.asarray(array if dtype.kind in "fc" else np.rint(array)).astype(dtype)
