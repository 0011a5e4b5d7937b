"""Data: x.npy and y.npy in a directory, opened without reading them into memory, or synthetic samples."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Context

Pair = tuple[npt.NDArray[Any], npt.NDArray[Any]]
#: As the run's data-dir: made-up samples for the server and for all devices.
SYNTHETIC = "synthetic"


def own_data(context: Context) -> Pair:
    """Return a device's own samples."""
    if context.run_config["data-dir"] == SYNTHETIC:
        part = 1 + int(context.node_config.get("partition-id", context.node_id))
        return synthetic(context.run_config, part, 400)
    return load(str(context.node_config.get("data-dir", "")), "node config")


def server_data(config: Mapping[str, Any]) -> Pair:
    """Return the samples that the server sends to devices."""
    if config["data-dir"] == SYNTHETIC:
        return synthetic(config, 1, 4000)
    return load(str(config["data-dir"]), "run config")


def test_data(config: Mapping[str, Any]) -> Pair | None:
    """Return the server's test data; None if it has none."""
    directory = str(config["data-dir"])
    if directory == SYNTHETIC:
        return synthetic(config, 0, 1000)
    if not directory or not (Path(directory) / "test-x.npy").is_file():
        return None
    return load(directory, "run config", "test-")


def load(directory: str, source: str, prefix: str = "") -> Pair:
    """Open x.npy (samples by features; uint8 or float) and y.npy (class numbers)."""
    paths = [Path(directory) / f"{prefix}{name}.npy" for name in ("x", "y")]
    for path in paths:
        if not directory or not path.is_file():
            raise FileNotFoundError(
                f"data-dir of the {source} must be a directory with {path.name}, got {directory!r}. "
                f'For made-up data, run with data-dir="{SYNTHETIC}"'
            )
    x, y = (np.load(path, mmap_mode="r", allow_pickle=False) for path in paths)
    if x.ndim != 2 or y.ndim != 1 or len(x) != len(y) or y.dtype.kind not in "iu":
        raise ValueError(
            f"{paths[0]} must be samples by features and {paths[1]} one integer per sample, got {x.shape} "
            f"and {y.shape} of {y.dtype}"
        )
    return x, y


def synthetic(config: Mapping[str, Any], part: int, samples: int) -> Pair:
    """Draw samples around one centre per class; all parts have the same centres."""
    features, classes, seed = (int(config[key]) for key in ("features", "classes", "seed"))
    centres = np.random.default_rng(seed).standard_normal((classes, features))
    rng = np.random.default_rng([seed, part])
    y = rng.integers(classes, size=samples)
    x = centres[y] + rng.standard_normal((samples, features))
    # Scaled to the length of an image of grey values, whatever the number of features.
    return (x * 4 / np.sqrt(features)).astype(np.float32), y
