"""The loop of a strategy that has a `start` of its own, as Flower's advanced examples do.

It goes on being run on the strategy itself, with its files, loggers and attributes; for the time of the call
only the four methods of a round are ours, which call its own ones in turn.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from flwr.serverapp.strategy import Strategy

_ROUND = ("configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate")
#: In the order of Flower's `start`.
_ARGUMENTS = tuple(inspect.signature(Strategy.start).parameters)[1:]


class OwnLoop:
    """Runs a wrapped strategy's own `start`.

    Parameters
    ----------
    strategy : Strategy
        The wrapped one.
    """

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self._own: dict[str, Callable[..., Any]] = {}

    @property
    def exists(self) -> bool:
        """Whether the strategy has a `start` of its own."""
        return getattr(self._strategy.start, "__func__", None) is not Strategy.start

    @property
    def runs(self) -> bool:
        """Whether it is running."""
        return bool(self._own)

    def own(self, name: str) -> Any:
        """Return a method of the strategy, whoever stands in its place now.

        Parameters
        ----------
        name : str
            Which.
        """
        return self._own.get(name) or getattr(self._strategy, name)

    def run(self, outer: Strategy, *given: Any, **more: Any) -> Any:
        """Call the strategy's `start`, whose rounds are the outer's; what it does not take is left out.

        Parameters
        ----------
        outer : Strategy
            Has the methods of a round.
        *given
            The arguments of Flower's `start`, in their order.
        **more
            Arguments of its own.
        """
        takes = inspect.signature(self._strategy.start).parameters.values()
        every = any(p.kind is p.VAR_KEYWORD for p in takes)
        named = dict(zip(_ARGUMENTS, given, strict=True))
        named = {key: x for key, x in named.items() if every or key in {p.name for p in takes}}
        mine = vars(self._strategy)
        before = {name: mine[name] for name in _ROUND if name in mine}
        self._own = {name: getattr(self._strategy, name) for name in _ROUND}
        mine.update({name: getattr(outer, name) for name in _ROUND})
        try:
            return self._strategy.start(**named, **more)
        finally:
            self._own = {}
            for name in _ROUND:
                mine.pop(name, None)
            mine.update(before)
