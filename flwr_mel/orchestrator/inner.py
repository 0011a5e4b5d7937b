"""What has to be known of the wrapped strategy, in both APIs: Flower's wrappers keep theirs in `strategy`."""

from __future__ import annotations

from collections.abc import Iterator


def layers(strategy: object) -> Iterator[object]:
    """Yield a strategy and, from outside to inside, those it wraps."""
    inner: object = strategy
    while inner is not None:
        yield inner
        inner = getattr(inner, "strategy", None)


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
        if getattr(layer, "accountant", None) is not None:
            raise ValueError(
                f"{type(layer).__name__} has a privacy accountant, which demands equal client weights; "
                "MelStrategy weights by allocated samples. Leave the accountant out, or use the DP strategy "
                "without MelStrategy; see docs/COMPOSITION.md."
            )


def weight_key(strategy: object) -> str:
    """Return the name of the metric that the wrapped strategy weights by (Message API)."""
    for layer in layers(strategy):
        if isinstance(key := getattr(layer, "weighted_by_key", None), str):
            return key
    return "num-examples"
