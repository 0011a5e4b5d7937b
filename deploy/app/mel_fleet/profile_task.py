"""What ``flwr-mel profile`` times on a device: this app's training, on synthetic samples of its own size."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np

from mel_fleet.data import synthetic
from mel_fleet.model import initial_weights, sgd

_PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def train(samples: int, epochs: int) -> None:
    """Train once."""
    config = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["tool"]["flwr"]["app"]["config"]
    x, y = synthetic(config, 1, samples)
    rng = np.random.default_rng(0)
    sgd(initial_weights(config), x, y, epochs, config["batch-size"], config["learning-rate"], rng)
