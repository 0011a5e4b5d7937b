"""Windows of epochs, and the one way to search them: best bound first.

Every allocation lies in a window [t, t + c]. Windows, or ranges of them, have bounds; that with the largest
is looked at next, and what is below the best allocation found is never looked at. What remains open when the
search ends is what the certificate says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from flwr_mel._validate import IntArray, Phrase, complain
from flwr_mel.allocation.bisection import largest
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.solvers.options import LARGE, Price, sample, total

#: Entries (learners times epochs) a table of capacities may have: 1.6 GB.
_LARGEST_TABLE = 200_000_000

#: Entries of a table that is looked at whole.
_SMALL = 4096


class Node(NamedTuple):
    """Windows that begin from `low` to `high`, a bound on what they hold, and how far they were looked at."""

    bound: int
    low: int
    high: int
    stage: int = 0


def best_first(
    nodes: Iterable[Node], expand: Callable[[Node], Iterable[Node]], known: Callable[[], int], visits: int
) -> tuple[int, int]:
    """Expand nodes by falling bound, of equals later windows first, while a bound exceeds what is known.

    Parameters
    ----------
    nodes : iterable of Node
        What holds all windows.
    expand : callable
        From a node to what is left of it: parts of it, or itself with a smaller bound or a higher stage.
    known : callable
        The value of the best allocation found.
    visits : int
        Nodes expanded before the rest is left to its bound.

    Returns
    -------
    bound, visited : int
        No window holds more than this, and how many nodes were expanded.
    """
    heap = [(-node.bound, -node.low, node) for node in nodes]
    heapify(heap)
    visited = 0
    while heap and -heap[0][0] > known() and visited < visits:
        node = heappop(heap)[2]
        visited += 1
        for part in expand(node):
            heappush(heap, (-part.bound, -part.low, part))
    return max(known(), -heap[0][0] if heap else known()), visited


class Together:
    """Windows that one price bounds together, and the prices that a sample of the fleet suggests for them.

    Parameters
    ----------
    bounds : mapping of int to int
        What is known of the windows.
    at_price : callable
        From a price to bounds of all windows.
    """

    def __init__(self, bounds: Mapping[int, int], at_price: Callable[[Price], Mapping[int, int]]) -> None:
        self.bounds, self.at_price = dict(bounds), at_price
        self.prices: dict[int, Price] = {}

    def tighten(self, price: Price) -> None:
        """Lower the bounds of all windows by what a price proves."""
        for t, bound in self.at_price(price).items():
            self.bounds[t] = min(self.bounds[t], bound)

    def lowered(self, node: Node) -> Node | None:
        """Return a window's node with a smaller bound, if it has one, or if its own price proves one."""
        if self.bounds[node.low] == node.bound and node.low in self.prices:
            self.tighten(self.prices.pop(node.low))
        bound = self.bounds[node.low]
        return node._replace(bound=bound) if bound < node.bound else None


def synchronous(capacities: Capacities, demand: int) -> int:
    """Return the largest tau with which everybody together carries the demand; 1 must do.

    Parameters
    ----------
    capacities : Capacities
        Learners that all take part.
    demand : int
        d.
    """
    low, high = 1, int(capacities.most_epochs.min())

    def enough(tau: int) -> bool:
        return total(capacities.at(tau)) >= demand

    # One table of a small fleet costs less than the looks of a bisection.
    if (high - low + 1) * len(capacities) <= _SMALL:
        enough_rows = capacities.table(low, high).sum(axis=1) >= demand
        return int(np.count_nonzero(enough_rows)) or low
    # A sample of a large fleet tells nearly where the answer is; two or three looks settle it.
    if len(capacities) > LARGE:
        few = capacities.take(sample(len(capacities)))
        share = demand * len(few) / len(capacities)
        guess = largest(low, high, lambda tau: bool(few.relaxed(tau).sum() >= share))
        step = 1
        while low < high and step <= 8:
            probe = min(max(guess, low + 1), high)
            if enough(probe):
                low, guess = probe, probe + step
            else:
                high, guess = probe - 1, probe - step
            step *= 2
    return largest(low, high, enough)


def last_window(capacities: Capacities, demand: int, staleness: int, *, optional: bool) -> int:
    """Return the last t whose window may hold an allocation that no earlier window holds."""
    most = capacities.most_epochs
    if optional:
        last = largest(1, int(most.max()), lambda t: total(capacities.at(t)[most >= t]) >= demand)
    else:
        last = synchronous(capacities, demand)
    # A window that reaches beyond everybody's epochs holds all later ones.
    return min(last, max(1, int(most.max()) - staleness))


def useful_table(capacities: Capacities, first: int, last: int, demand: int) -> IntArray:
    """Return cap_k(tau) for tau = first..last, at most the demand, one row per tau.

    Capacity beyond the demand is of no use, and without it the bounds are tighter.

    Parameters
    ----------
    capacities : Capacities
        Of the learners.
    first, last : int
        The epochs the windows span.
    demand : int
        d.
    """
    width = last - first + 1
    # Scores are at most twice epochs times samples.
    if width * len(capacities) > _LARGEST_TABLE or width * demand > 2**59:
        rule = "small enough for a table of learners times epochs"
        raise complain("staleness", rule, last - first, Phrase("Lower it, or set {}.", "max_epochs"))
    table = capacities.table(first, last)
    np.minimum(table, demand, out=table)
    return table
