"""A strategy around ours, such as Flower's DP wrappers: every update must pass through it."""

from __future__ import annotations

import sys

from flwr.serverapp.strategy import Strategy


def around(strategy: Strategy) -> Strategy | None:
    """Return the strategy that calls this one as its own inner strategy; None if there is none.

    Nobody tells a strategy that it is wrapped, so that the callers are looked at: one of them is a strategy
    that holds this one.

    Parameters
    ----------
    strategy : Strategy
        Whose method is being called.
    """
    frame = sys._getframe().f_back
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, Strategy) and any(held is strategy for held in vars(caller).values()):
            return caller
        frame = frame.f_back
    return None
