"""The idx format of MNIST: four files of bytes behind a short header, plain or gzipped."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import NOTHING, InputError

Bytes: TypeAlias = npt.NDArray[np.uint8]

#: File names without ``.gz``: training images and labels, test images and labels.
FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
SIDE = 28
CLASSES = 10


class DataError(InputError):
    """The data are missing, damaged or not what they should be; the message says what to do.

    Parameters
    ----------
    text : str
        The whole message.
    """

    def __init__(self, text: str) -> None:
        super().__init__("data", text, NOTHING)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.rule,)

    def told(self, names: Mapping[str, str]) -> str:  # noqa: ARG002
        """Return the message, which names no field."""
        return self.rule


def locate(directory: Path, name: str) -> Path | None:
    """Return ``name.gz`` or ``name`` in `directory`, the first that exists."""
    # Checksums are published for the gzipped files: these first.
    candidates = (directory / f"{name}.gz", directory / name)
    return next((path for path in candidates if path.is_file()), None)


def missing(directory: Path) -> list[str]:
    """Return the names out of `FILES` that `directory` has neither plain nor gzipped."""
    return [name for name in FILES if locate(directory, name) is None]


def payload(path: Path) -> bytes:
    """Return a file's content, unpacked if its name ends in ``.gz``."""
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rb") as stream:
                return stream.read()
        return path.read_bytes()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(path, f"it does not unpack: {error}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}. Check its permissions.") from error


def images(content: bytes, path: Path) -> Bytes:
    """Parse an image file into shape (n, 784); `path` is for the messages."""
    shape = _header(content, path, dimensions=3)
    if shape[1:] != (SIDE, SIDE):
        raise _damaged(path, f"images are {shape[1]}x{shape[2]}, not {SIDE}x{SIDE}")
    return np.frombuffer(content, np.uint8, offset=16).reshape(shape[0], SIDE * SIDE)


def labels(content: bytes, path: Path) -> Bytes:
    """Parse a label file into shape (n,); `path` is for the messages."""
    _header(content, path, dimensions=1)
    array = np.frombuffer(content, np.uint8, offset=8)
    if int(array.max()) >= CLASSES:
        raise _damaged(path, f"it has the label {int(array.max())}, labels are 0 to {CLASSES - 1}")
    return array


def _header(content: bytes, path: Path, dimensions: int) -> tuple[int, ...]:
    """Check magic number, dimensions and byte count; return the shape."""
    size = 4 + 4 * dimensions
    if len(content) < size:
        raise _damaged(path, f"it has {len(content)} bytes, less than its header")
    magic, *shape = struct.unpack(f">{1 + dimensions}I", content[:size])
    expected = 0x0800 + dimensions  # 0x08 stands for unsigned bytes
    if magic != expected:
        raise _damaged(path, f"its magic number is 0x{magic:08x}, not 0x{expected:08x}")
    if not shape[0]:
        raise _damaged(path, "it is empty")
    if len(content) - size != math.prod(shape):
        got = len(content) - size
        raise _damaged(path, f"its header promises {math.prod(shape)} bytes of data, it has {got}")
    return tuple(shape)


def _damaged(path: Path, reason: str) -> DataError:
    return DataError(f"{path} is damaged or misnamed: {reason}. Delete it and fetch it again.")
