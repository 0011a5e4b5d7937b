"""A network with one hidden layer in numpy: small devices need nothing else installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Weights: TypeAlias = list[npt.NDArray[np.float32]]
Samples: TypeAlias = npt.NDArray[Any]


def initial_weights(config: Mapping[str, Any]) -> Weights:
    """Draw the starting point from the seed."""
    features, hidden, classes = (int(config[key]) for key in ("features", "hidden", "classes"))
    rng = np.random.default_rng(int(config["seed"]))
    first = rng.standard_normal((features, hidden)) * np.sqrt(2.0 / features)
    second = rng.standard_normal((hidden, classes)) * np.sqrt(2.0 / hidden)
    return [
        first.astype(np.float32),
        np.zeros(hidden, np.float32),
        second.astype(np.float32),
        np.zeros(classes, np.float32),
    ]


def sgd(
    weights: Weights, x: Samples, y: Samples, epochs: int, batch: int, rate: float, rng: np.random.Generator
) -> tuple[Weights, float]:
    """Do `epochs` of stochastic gradient descent; return the new weights and the last epoch's loss."""
    loss = 0.0
    for _ in range(epochs):
        order, loss = rng.permutation(len(y)), 0.0
        for start in range(0, len(y), batch):
            rows = order[start : start + batch]
            gradients, total = _gradients(weights, _scaled(x[rows]), y[rows])
            loss += total
            weights = [w - np.float32(rate) * g for w, g in zip(weights, gradients, strict=True)]
    return weights, loss / max(len(y), 1)


def evaluate(weights: Weights, x: Samples, y: Samples) -> tuple[float, float]:
    """Return loss and accuracy."""
    _, probabilities = _forward(weights, _scaled(x))
    right = probabilities[np.arange(len(y)), y]
    return float(-np.log(right + 1e-12).mean()), float((probabilities.argmax(axis=1) == y).mean())


def _scaled(x: Samples) -> npt.NDArray[np.float32]:
    """Scale bytes, which are grey values, to 0 ... 1."""
    return x.astype(np.float32) / np.float32(255) if x.dtype == np.uint8 else x.astype(np.float32)


def _forward(
    weights: Weights, x: npt.NDArray[np.float32]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return the hidden layer and the probabilities of the classes."""
    hidden = np.maximum(x @ weights[0] + weights[1], 0)
    scores = hidden @ weights[2] + weights[3]
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, powers / powers.sum(axis=1, keepdims=True)


def _gradients(weights: Weights, x: npt.NDArray[np.float32], y: Samples) -> tuple[Weights, float]:
    """Return the gradients of the mean loss of a batch, and the sum of the losses."""
    hidden, probabilities = _forward(weights, x)
    loss = -np.log(probabilities[np.arange(len(y)), y] + 1e-12).sum()
    probabilities[np.arange(len(y)), y] -= 1
    errors = probabilities / np.float32(len(y))
    back = (errors @ weights[2].T) * (hidden > 0)
    return [x.T @ back, back.sum(axis=0), hidden.T @ errors, errors.sum(axis=0)], float(loss)
