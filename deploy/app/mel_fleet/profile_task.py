"""What `flwr-mel profile` times on a device: this app's training, on random samples of the app's own size."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np

from mel_fleet.model import initial_weights
from mel_fleet.model import train as sgd

_PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def train(samples: int, epochs: int) -> None:
    """Train once.

    Parameters
    ----------
    samples, epochs : int
        How much.
    """
    config = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["tool"]["flwr"]["app"]["config"]
    rng = np.random.default_rng(0)
    weights = initial_weights(config["features"], config["hidden"], config["classes"], rng)
    x = rng.integers(256, size=(samples, config["features"]), dtype=np.uint8)
    y = rng.integers(config["classes"], size=samples)
    sgd(weights, x, y, epochs, config["batch-size"], config["learning-rate"], rng)
