"""The wrapped strategy: what can be wrapped, and what is inside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flwr_mel._validate import Phrase, complain
from flwr_mel.cycle.options import Average

#: Strategies of Flower whose updates are not arrays in numpy's format, by name: some cannot be imported here.
_NO_ARRAYS = {
    "FedXgbBagging": "trees",
    "FedXgbCyclic": "trees",
    "FedXgbNnAvg": "trees",
    "FedAvgAndroid": "buffers of TensorFlow Lite",
}
#: Strategies of Flower that do not average by weights.
_NO_AVERAGE = {"Bulyan", "FedMedian", "FedTrimmedAvg", "Krum", "MultiKrum", "QFedAvg"}
#: Strategies of Flower that step every array as if it were a weight.
_STEPPING = {"FedAdagrad", "FedAdam", "FedYogi"}

#: Strategies of Flower, and ours, that take a step of their own beyond the average.
_OWN_STEP = {"FedAvgM", "FedOpt", "QFedAvg", "SlopeStep"}


def layers(strategy: object) -> Iterator[object]:
    """Yield a strategy and, from outside to inside, those that it wraps as its `strategy`."""
    inner: object = strategy
    while inner is not None:
        yield inner
        inner = inner.__dict__.get("strategy") if hasattr(inner, "__dict__") else None


def weight_key(strategy: object) -> str:
    """Return the metric that the wrapped strategy weights by (Message API)."""
    keys = (getattr(layer, "weighted_by_key", None) for layer in layers(strategy))
    return next((key for key in keys if isinstance(key, str)), "num-examples")


def replaced_weights(strategy: object) -> str:
    """Return the metric under which clients report weights of their own, which are replaced; "" if none."""
    key = weight_key(strategy)
    return "" if "sample" in key.lower() or "example" in key.lower() else key


def _names(layer: object) -> set[str]:
    """Return the names of an object's class and of those that it descends from."""
    return {kind.__name__ for kind in type(layer).__mro__}


def averages(strategy: object) -> bool:
    """Whether a strategy, as far as can be seen, only averages: no layer of it takes a step of its own."""
    return all(not _names(layer) & (_OWN_STEP | set(_NO_ARRAYS)) for layer in layers(strategy))


def weighs(strategy: object) -> bool:
    """Whether the innermost strategy averages updates by their weights."""
    *_, inner = layers(strategy)
    return "FedAvg" in _names(inner) and not _names(inner) & _NO_AVERAGE


def check_strategy(strategy: object, kind: type, other: str, ours: type) -> None:
    """Reject what cannot be wrapped, with the reason.

    Parameters
    ----------
    strategy : object
        To be wrapped.
    kind : type
        The API's own class of strategies.
    other : str
        Where the other API's MelStrategy is.
    ours : type
        What must not be wrapped twice.
    """
    home = kind.__module__.rsplit(".", 1)[0]
    if isinstance(strategy, type):
        got = Phrase(f"the class {strategy.__name__}")
        raise complain("strategy", "a strategy object", got, f"Write MelStrategy({strategy.__name__}(...)).")
    if isinstance(strategy, ours):
        raise complain(
            "strategy", "a Flower strategy or one of your own", Phrase("a MelStrategy"), "Wrap it once."
        )
    if not isinstance(strategy, kind):
        rule = f"a {home}.Strategy object"
        raise complain("strategy", rule, strategy, f"For strategies of Flower's other API use {other}.")
    for layer in layers(strategy):
        if isinstance(layer, ours):
            raise complain("strategy", "a strategy without a MelStrategy inside", strategy, "Wrap it once.")
        for name in sorted(_names(layer) & set(_NO_ARRAYS)):
            got = Phrase(f"{type(layer).__name__}, whose updates are {_NO_ARRAYS[name]}")
            raise complain(
                "strategy", "a strategy whose updates are arrays", got, "Use it without MelStrategy."
            )
        if getattr(layer, "accountant", None) is not None:
            rule = "a strategy without a privacy accountant, as it needs equal weights and d_k are unequal"
            got = Phrase(f"{type(layer).__name__} with an accountant")
            raise complain("strategy", rule, got, "Leave the accountant out, or use it without MelStrategy.")


def check_average(strategy: object, average: Average) -> None:
    """Reject an average that the wrapped strategy would undo.

    Parameters
    ----------
    strategy : object
        To be wrapped.
    average : Average
        As asked for.
    """
    *_, inner = layers(strategy)
    if average is not Average.SAMPLES and not weighs(strategy):
        rule = f"'samples' around {type(inner).__name__}, which does not average updates by their weights"
        raise complain("average", rule, str(average), "Wrap FedAvg, FedProx, FedAvgM, FedAdam or the like.")


def steps_statistics(strategy: object, names: Iterable[str]) -> bool:
    """Whether the wrapped strategy steps the running statistics of BatchNorm.

    Parameters
    ----------
    strategy : object
        A subclass that averages them has a name of its own.
    names : iterable of str
        Of the model's arrays.
    """
    *_, inner = layers(strategy)
    return type(inner).__name__ in _STEPPING and any(name.endswith("running_var") for name in names)
