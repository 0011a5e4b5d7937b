"""State of the wrapped strategy, whatever its class: FedAdam's moments, FedAvgM's momentum, clipping norms.

State is every attribute that holds arrays, and every plain one that is not any more what the constructor
made of it. Plain attributes that stay as they were are settings and remain the user's.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.common import Parameters
from flwr.server.strategy import Strategy

from flwr_mel.checkpoint.trees import Arrays, pack

log = logging.getLogger("flwr.mel")

_HAS_ARRAYS = "arrays"


def layers(strategy: object) -> Iterator[object]:
    """Yield a strategy and, from outside to inside, those it wraps."""
    inner: object = strategy
    while inner is not None:
        yield inner
        inner = getattr(inner, "strategy", None)


class InnerState:
    """Takes and restores the state of a strategy and of those it wraps.

    Parameters
    ----------
    strategy : object
        As its constructor left it.
    """

    def __init__(self, strategy: object) -> None:
        self._layers = list(layers(strategy))
        self._settings = [{name: _mark(*tree) for name, tree in _trees(x)} for x in self._layers]

    @property
    def api(self) -> str:
        """Which of Flower's APIs the strategy is of."""
        return "classic" if isinstance(self._layers[0], Strategy) else "message"

    @property
    def classes(self) -> list[str]:
        """Full names of the classes, from outside to inside."""
        return [f"{type(x).__module__}.{type(x).__qualname__}" for x in self._layers]

    def snapshot(self) -> list[dict[str, tuple[str, Any]]]:
        """Return the state by layer and name: arrays and plain types."""
        return [
            {
                name: tree
                for name, tree in _trees(layer)
                if (mark := _mark(*tree)) is not None and (mark == _HAS_ARRAYS or mark != before.get(name))
            }
            for layer, before in zip(self._layers, self._settings, strict=True)
        ]

    def has_arrays(self, snapshot: list[dict[str, tuple[str, Any]]]) -> list[str]:
        """Return the names of what holds arrays in a snapshot.

        Parameters
        ----------
        snapshot : list of dict
            From `snapshot`.
        """
        return [name for layer in snapshot for name, tree in layer.items() if _mark(*tree) == _HAS_ARRAYS]

    def restore(self, snapshot: list[dict[str, tuple[str, Any]]]) -> None:
        """Put the state back.

        Parameters
        ----------
        snapshot : list of dict
            From `snapshot`.
        """
        for layer, kept in zip(self._layers, snapshot, strict=True):
            for name, (kind, value) in kept.items():
                if callable(getattr(type(layer), name, None)):
                    log.warning("%s.%s of the checkpoint is a method here: left out", type(layer), name)
                elif kind == "generator":
                    # In place: others may hold the same generator.
                    getattr(layer, name).bit_generator.state = value
                else:
                    setattr(layer, name, _value(kind, value))


def _trees(layer: object) -> Iterator[tuple[str, tuple[str, Any]]]:
    for name, value in getattr(layer, "__dict__", {}).items():
        yield name, _tree(value)


def _tree(value: Any) -> tuple[str, Any]:
    """Return Flower's own containers as plain ones, with the word that tells what they were."""
    if isinstance(value, ArrayRecord):
        return "arrays", {key: np.asarray(array.numpy()) for key, array in value.items()}
    if isinstance(value, Parameters):
        return "parameters", [value.tensor_type, list(value.tensors)]
    if isinstance(value, np.random.Generator):
        return "generator", value.bit_generator.state
    return "plain", value


def _value(kind: str, value: Any) -> Any:
    if kind == "arrays":
        return ArrayRecord({key: Array(array) for key, array in value.items()})
    if kind == "parameters":
        return Parameters(value[1], value[0])
    return value


def _mark(kind: str, tree: Any) -> str | None:
    """Return what a plain value is compared by, a word for whatever has arrays, None for other objects."""
    arrays: Arrays = []
    try:
        text = json.dumps(pack(tree, arrays))
    except TypeError:
        return None
    return _HAS_ARRAYS if arrays or kind != "plain" else text
