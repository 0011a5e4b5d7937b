"""Data on disk: x.npy and y.npy in one directory, opened without reading them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Pair = tuple[npt.NDArray[Any], npt.NDArray[Any]]


def load(directory: str, prefix: str = "") -> Pair:
    """Open `prefix`x.npy (samples by features; uint8 or float) and `prefix`y.npy (class numbers).

    Parameters
    ----------
    directory : str
        Where they are.
    prefix : str
        "" for training data, "test-" for test data.
    """
    paths = [Path(directory) / f"{prefix}{name}.npy" for name in ("x", "y")]
    for path in paths:
        if not directory or not path.is_file():
            raise FileNotFoundError(f"no {path.name} in data-dir {directory!r}: give the directory with it")
    x, y = (np.load(path, mmap_mode="r", allow_pickle=False) for path in paths)
    if x.ndim != 2 or y.ndim != 1 or len(x) != len(y) or y.dtype.kind not in "iu":
        raise ValueError(
            f"{paths[0]} must be samples by features and {paths[1]} one integer per sample, got {x.shape} "
            f"and {y.shape} of {y.dtype}"
        )
    return x, y


def load_test(directory: str) -> Pair | None:
    """Open the test data; None if there are none."""
    if not directory or not (Path(directory) / "test-x.npy").is_file():
        return None
    return load(directory, "test-")
