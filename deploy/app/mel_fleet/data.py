"""Data on disk: x.npy and y.npy in one directory, opened without reading them. Drawn ones in simulations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Pair = tuple[npt.NDArray[Any], npt.NDArray[Any]]
#: Flower tells it to devices that it simulates.
_PARTITION = "partition-id"
#: Samples of a simulated device, and of the server's test data.
_DRAWN, _DRAWN_TEST = 400, 1000


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


def load_own(node_config: Mapping[str, Any], config: Mapping[str, Any]) -> Pair:
    """Return a device's own data: from its data-dir, or, for a simulated one that has none, drawn.

    Parameters
    ----------
    node_config, config : mapping
        The device's, and the run's.
    """
    directory = str(node_config.get("data-dir", ""))
    if not directory and _PARTITION in node_config:
        return draw(config, 1 + int(node_config[_PARTITION]), _DRAWN)
    return load(directory)


def draw_test(config: Mapping[str, Any]) -> Pair:
    """Draw test data for a simulation."""
    return draw(config, 0, _DRAWN_TEST)


def draw(config: Mapping[str, Any], part: int, samples: int) -> Pair:
    """Draw samples around one centre per class; the centres are the same in every part.

    Parameters
    ----------
    config : mapping
        The run's: features, classes, seed.
    part : int
        Parts have nothing in common.
    samples : int
        How many.
    """
    features, classes, seed = (int(config[key]) for key in ("features", "classes", "seed"))
    centres = np.random.default_rng(seed).standard_normal((classes, features))
    rng = np.random.default_rng([seed, part])
    y = rng.integers(classes, size=samples)
    x = centres[y] + rng.standard_normal((samples, features))
    # As long as pictures of grey values are, whatever the number of features.
    return (x * 4 / np.sqrt(features)).astype(np.float32), y


def load_test(directory: str) -> Pair | None:
    """Open the test data; None if there are none."""
    if not directory or not (Path(directory) / "test-x.npy").is_file():
        return None
    return load(directory, "test-")
