"""One checkpoint in one file: an npz archive of arrays and one text. Its checksums show damage.

There is no pickle: what is not in `_FORMS` cannot be kept, and a foreign file cannot run code.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord
from flwr.common import Parameters

from flwr_mel._files import atomically
from flwr_mel.cycle.step import Slope

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

_FORMAT = 1
#: Process and directory of each lock. The files stay open until the process ends.
_LOCKED: set[tuple[int, Path]] = set()


def lock(directory: Path) -> None:
    """Keep other processes out while this one lives: Flower may start a ServerApp a second time.

    Parameters
    ----------
    directory : Path
        Of the checkpoints.
    """
    key = (os.getpid(), directory.resolve())
    if fcntl is None or key in _LOCKED:
        return
    file = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise RuntimeError(
            f"another process is using the checkpoints in {directory}. Stop it, or give another directory"
        ) from None
    _LOCKED.add(key)


def write(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint whole or not at all.

    Parameters
    ----------
    path : Path
        Replaced if it exists.
    content : dict
        Of what `pack` takes.
    """
    arrays: list[npt.NDArray[Any]] = []
    text = json.dumps(pack({"format": _FORMAT, **content}, arrays)).encode()
    members = {"text": np.frombuffer(zlib.compress(text, 1), np.uint8)}
    members |= {f"array{i}": x for i, x in enumerate(arrays)}
    atomically(path, lambda file: np.savez(file, **members), "wb")  # type: ignore[arg-type]


def read(path: Path) -> dict[str, Any]:
    """Return the content of a checkpoint; a damaged file raises whatever it causes.

    Parameters
    ----------
    path : Path
        From `write`.
    """
    with path.open("rb") as file, np.load(file, allow_pickle=False) as members:
        arrays = [members[f"array{i}"] for i in range(len(members.files) - 1)]
        node = json.loads(zlib.decompress(members["text"].tobytes()))
    if node["format"] != _FORMAT:
        raise ValueError(f"it has format {node['format']} instead of {_FORMAT}")
    content: dict[str, Any] = unpack(node, arrays)
    return content


def pack(value: Any, arrays: list[npt.NDArray[Any]]) -> Any:
    """Return a value as JSON carries it, with its arrays in the list; raise TypeError if it cannot be kept.

    Parameters
    ----------
    value : object
        None, bool, int, float, str, a type of `_FORMS`, or a list or dict of such. Subclasses are not taken.
    arrays : list
        Arrays are appended to it.
    """
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [pack(x, arrays) for x in value]
    if kind is dict and "$" not in value and all(type(key) is str for key in value):
        return {key: pack(x, arrays) for key, x in value.items()}
    kind = np.generic if isinstance(value, np.generic) else kind
    word = next((word for word, form in _FORMS.items() if form[0] is kind), None)
    if word is None:
        raise TypeError(f"a {kind.__qualname__} cannot be kept in a checkpoint")
    parts = _FORMS[word][1](value)
    if not isinstance(parts, np.ndarray):
        return {"$": word, "of": pack(parts, arrays)}
    # numpy's format would pickle objects, and read types of other packages back as bytes.
    if parts.dtype.hasobject or np.dtype(parts.dtype.str) != parts.dtype:
        raise TypeError(f"an array of {parts.dtype} cannot be kept in a checkpoint")
    arrays.append(parts)
    return {"$": word, "of": len(arrays) - 1}


def unpack(node: Any, arrays: list[npt.NDArray[Any]]) -> Any:
    """Return what `pack` was given.

    Parameters
    ----------
    node : object
        From `pack`.
    arrays : list
        To which it refers.
    """
    if isinstance(node, list):
        return [unpack(x, arrays) for x in node]
    if not isinstance(node, dict):
        return node
    if "$" not in node:
        return {key: unpack(x, arrays) for key, x in node.items()}
    word, parts = node["$"], node["of"]
    return _FORMS[word][2](arrays[parts] if word in _ARRAYS else unpack(parts, arrays))


def _generator(state: dict[str, Any]) -> np.random.Generator:
    """Return a generator that continues from a state."""
    kind = getattr(np.random, state["bit_generator"])
    if not (isinstance(kind, type) and issubclass(kind, np.random.BitGenerator)):
        raise TypeError(f"numpy has no bit generator {state['bit_generator']!r:.50}")
    made = kind()
    made.state = state
    return np.random.Generator(made)


#: Types that JSON does not have: type, how it is taken apart, how it is put together.
_FORMS: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "array": (np.ndarray, lambda x: x, lambda x: x),
    "scalar": (np.generic, np.asarray, lambda x: x[()]),
    "bytes": (bytes, lambda x: np.frombuffer(x, np.uint8), lambda x: x.tobytes()),
    "tuple": (tuple, list, tuple),
    "dict": (dict, lambda x: [list(pair) for pair in x.items()], dict),
    "ArrayRecord": (
        ArrayRecord,
        lambda x: {key: np.asarray(array.numpy()) for key, array in x.items()},
        lambda x: ArrayRecord({key: Array(array) for key, array in x.items()}),
    ),
    "Parameters": (
        Parameters,
        lambda x: [list(x.tensors), x.tensor_type],
        lambda x: Parameters(*x),
    ),
    "Slope": (Slope, vars, lambda x: Slope(**x)),
    "Generator": (np.random.Generator, lambda x: dict(x.bit_generator.state), _generator),
}
_ARRAYS = ("array", "scalar", "bytes")
