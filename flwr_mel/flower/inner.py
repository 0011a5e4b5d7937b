"""What has to be known of the wrapped strategy, in both APIs: Flower's wrappers keep theirs in `strategy`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.common import Parameters

from flwr_mel._npy import read_npy
from flwr_mel._validate import Phrase, complain
from flwr_mel.flower.arrays import FINITE, Array, flaw
from flwr_mel.flower.average import Normalised
from flwr_mel.flower.inner_state import layers
from flwr_mel.orchestrator.averaging import Average

_FIRST = 32
#: Strategies of Flower whose models are not arrays in numpy's format, by name: some import what is not there.
_NO_ARRAYS = {
    "FedXgbBagging": "trees",
    "FedXgbCyclic": "trees",
    "FedXgbNnAvg": "trees",
    "FedAvgAndroid": "buffers of TensorFlow Lite",
}
#: Strategies of Flower that descend from FedAvg and do not average by weights.
_NO_AVERAGE = {"Bulyan", "FedMedian", "FedTrimmedAvg", "Krum", "MultiKrum", "QFedAvg"}
#: What Flower's adaptive clipping on the client reports.
_NORM_BIT = "norm_bit"


def check_inner(strategy: object, kind: type, other: str) -> None:
    """Refuse what cannot be wrapped, with the reason.

    Parameters
    ----------
    strategy : object
        To be wrapped.
    kind : type
        The API's own Strategy class.
    other : str
        The MelStrategy of the other API.
    """
    if not isinstance(strategy, kind):
        home = kind.__module__.rsplit(".", 1)[0]
        raise TypeError(
            f"inner_strategy must be a {home}.Strategy object, got {strategy!r}. For strategies of Flower's "
            f"other API use {other}."
        )
    for layer in layers(strategy):
        for name in sorted(_names(layer) & set(_NO_ARRAYS)):
            who = type(layer).__name__ + (f", a {name}" if name != type(layer).__name__ else "")
            got = Phrase(f"{who}, whose updates are {_NO_ARRAYS[name]}")
            rule = "a strategy whose updates are arrays"
            raise complain("inner_strategy", rule, got, "Use it without MelStrategy.")
        if getattr(layer, "accountant", None) is not None:
            rule = (
                "a strategy without a privacy accountant, which demands equal client weights, while "
                "MelStrategy weights by allocated samples"
            )
            remedy = "Leave the accountant out, or use it without MelStrategy; see docs/COMPOSITION.md."
            raise complain("inner_strategy", rule, Phrase(f"{type(layer).__name__} with one"), remedy)


def rule_of(strategy: object, asked: Average | str) -> Average | str:
    """Return how updates are averaged; refuse a rule that the wrapped strategy would undo.

    Parameters
    ----------
    strategy : object
        To be wrapped.
    asked : Average or str
        What the user says; "samples": what the wrapped strategy is made for.
    """
    told = [layer for layer in layers(strategy) if isinstance(layer, Normalised)]
    for layer in told:
        layer.wrapped = True
        if asked not in (Average.SAMPLES, layer.average):
            rule = f"{str(layer.average)!r} or left out around MelFedNova(average={str(layer.average)!r})"
            raise complain("average", rule, asked)
        asked = layer.average
    if asked == Average.SAMPLES:
        return Average.SAMPLES
    *_, inner = layers(strategy)
    names = _names(inner)
    if "FedAvg" not in names or names & _NO_AVERAGE:
        remedy = "Wrap FedAvg, FedProx, FedAvgM, FedAdam, FedYogi, FedAdagrad or MelFedNova for another rule."
        rule = f"'samples' around {type(inner).__name__}, which does not average updates by their weights"
        raise complain("average", rule, asked, remedy)
    return asked


def weight_key(strategy: object) -> str:
    """Return the name of the metric that the wrapped strategy weights by (Message API)."""
    for layer in layers(strategy):
        if isinstance(key := getattr(layer, "weighted_by_key", None), str):
            return key
    return "num-examples"


def needed_metrics(strategy: object) -> frozenset[str]:
    """Return the metrics without which the wrapped strategy fails (Message API)."""
    needed = set()
    for layer in layers(strategy):
        if isinstance(key := getattr(layer, "train_loss_key", None), str):
            needed.add(key)
        if "DifferentialPrivacyClientSideAdaptiveClipping" in _names(layer):
            needed.add(_NORM_BIT)
    return frozenset(needed)


class Undo:
    """Mends a strategy's state after it made a model that is refused, so that the next one can be right.

    What held the model, such as the weights that FedAdam starts from, is put back. Moments and momenta that
    are not finite any more begin at zero. Keeping them, too, would double their memory in every cycle.

    Parameters
    ----------
    strategy : object
        The strategy and all that it wraps.
    """

    def __init__(self, strategy: object) -> None:
        self._states = [vars(layer) for layer in layers(strategy) if hasattr(layer, "__dict__")]
        self._kept: list[dict[str, Any]] = []

    def prepare(self, model: Sequence[Array]) -> None:
        """Take note of what must not be lost, before the strategy aggregates.

        Parameters
        ----------
        model : sequence of arrays
            The one that went out.
        """
        self._kept = [
            {k: x for k, x in state.items() if not (found := arrays_in(x)) or _alike(found, model)}
            for state in self._states
        ]

    def __call__(self) -> None:
        """Mend it."""
        for state, kept in zip(self._states, self._kept, strict=True):
            for name, value in list(state.items()):
                if name in kept:
                    state[name] = kept[name]
                elif any(flaw(array, None, FINITE) for array in arrays_in(value)):
                    state[name] = _zeros(value)


def arrays_in(value: object) -> list[Array]:
    """Return views of the arrays that an attribute of a strategy holds, in whatever form it keeps them."""
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, Parameters):
        return [array for data in value.tensors for array in _readable(data)]
    if isinstance(value, FlowerArray):
        return _readable(value.data)
    if isinstance(value, Mapping):
        return [array for x in value.values() for array in arrays_in(x)]
    if isinstance(value, list | tuple):
        return [array for x in value for array in arrays_in(x)]
    return []


def _zeros(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return np.zeros_like(value)
    if isinstance(value, dict):
        return {key: _zeros(x) for key, x in value.items()}
    return [_zeros(x) for x in value] if isinstance(value, list) else None


def _readable(data: bytes) -> list[Array]:
    try:
        return [read_npy(data)]
    except ValueError:
        return []


def _alike(some: Sequence[Array], others: Sequence[Array]) -> bool:
    """Whether arrays have the same shapes and begin with the same numbers: comparing all takes too long."""
    return len(some) == len(others) and all(
        a.shape == b.shape and np.array_equal(a.flat[:_FIRST], b.flat[:_FIRST])
        for a, b in zip(some, others, strict=True)
    )


def _names(layer: object) -> set[str]:
    """Return the names of an object's class and of those it descends from."""
    return {kind.__name__ for kind in type(layer).__mro__}
