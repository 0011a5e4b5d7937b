"""Objectives of batches, with proof: the progress S = sum_k tau_k d_k^2 / d, and what has its shape.

A learner passes tau_k d_k samples and counts d_k / d in the average, so S is the progress of the averaged
model as far as it follows from samples passed. Only sum_k tau_k d_k^2 is computed here, in integers.

Windows below the synchronous optimum allow larger batches, so all t count. Ranges of windows are bounded
together and split, best first. In a single window an allocation is made of the relaxation, and then the gap
is closed (`flwr_mel.solvers.inside`).

In a large fleet a sample of it says what every window's price is about, and one price bounds all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from flwr_mel._validate import IntArray
from flwr_mel.allocation.bisection import largest
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.screening import spread
from flwr_mel.solvers.batches import Terms, Window, build, terms_of
from flwr_mel.solvers.inside import EACH, Closing, polish
from flwr_mel.solvers.knapsack import synchronous
from flwr_mel.solvers.options import (
    LARGE,
    WORST,
    Price,
    Relaxed,
    bound_at,
    ranked,
    relax,
    sample,
    sliding,
    total,
)
from flwr_mel.solvers.worth import Point, Worth, best_handed_out

#: Windows, or ranges of them, looked at before the rest is left to its bound.
_VISITS = 600

#: Windows of a large fleet that are bounded together.
_TOGETHER = 64

#: Entries the dynamic programmes of one call may write: a second or so.
WORK = 400_000_000

#: Entries of a table looked at in one go.
_BLOCK = 65_536

#: The stage of nodes whose bound is that of their own price.
_PRICED = 1


def maximise(
    capacities: Capacities,
    demand: int,
    staleness: int,
    start: Point | None = None,
    *,
    optional: bool = False,
    work: int = WORK,
    worth: Worth | None = None,
) -> tuple[Point, int, int]:
    """Find the allocation with the largest sum of worths, by default sum_k tau_k d_k^2.

    Parameters
    ----------
    capacities : Capacities
        Learners that can all do one epoch, and together carry the demand.
    demand, staleness : int
        d and c.
    start : Point, optional
        An allocation to improve on.
    optional : bool
        Whether learners may be left out.
    work : int
        Entries the dynamic programmes may write; beyond that the bound stays open.
    worth : Worth, optional
        What is maximised instead of the progress.

    Returns
    -------
    best : Point
        Never worse than `start`.
    bound : int
        No allocation has a larger value.
    windows : int
        How many windows were closed by a dynamic programme.
    """
    worth = Worth() if worth is None else worth
    last = last_window(capacities, demand, staleness, optional=optional)
    top = min(last + staleness, int(capacities.most_epochs.max()))
    terms = terms_of(capacities, demand, staleness, top, worth, optional=optional)
    if start is None and len(capacities) <= LARGE:
        start = together(capacities, demand, worth)
    search = _Search(capacities, terms, start, work)
    large = len(capacities) > LARGE and last <= _TOGETHER
    nodes = search.all_windows(last) if large else search.parts(1, last)
    bound, _ = best_first(nodes, search.expand, lambda: search.best.value, _VISITS)
    if search.best.value == WORST:  # nothing fitted what the relaxation left over
        search.best = together(capacities, demand, worth)
    return search.best, max(bound, search.open, search.best.value), search.closed


def last_window(capacities: Capacities, demand: int, staleness: int, *, optional: bool) -> int:
    """Return the last t whose window may hold an allocation that no earlier window holds."""
    most = capacities.most_epochs
    if optional:
        last = largest(1, int(most.max()), lambda t: total(capacities.at(t)[most >= t]) >= demand)
    else:
        last = synchronous(capacities, demand)
    # A window that reaches beyond everybody's epochs holds all later ones.
    return min(last, max(1, int(most.max()) - staleness))


def together(capacities: Capacities, demand: int, worth: Worth) -> Point:
    """Let all learners do as many epochs as all can, with the best of the hand-outs.

    If their least batches need more than the demand, only the strongest take part.
    """
    seats = demand // capacities.least
    if seats < len(capacities):
        who = np.sort(np.argsort(capacities.at(1), kind="stable")[len(capacities) - seats :])
        _, epochs, samples = together(capacities.take(who), demand, worth.take(who))
        return worth.point(spread(epochs, len(capacities), who), spread(samples, len(capacities), who))
    tau = synchronous(capacities, demand)
    epochs = np.full(len(capacities), tau, dtype=np.int64)
    return best_handed_out(worth, demand, capacities.at(tau), capacities.least, epochs)


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


class _Search(Together):
    """The best allocation so far, and what is left open; `expand` serves `best_first`."""

    def __init__(self, capacities: Capacities, terms: Terms, start: Point | None, work: int) -> None:
        super().__init__({}, self._at_price)
        self.capacities, self.terms, self.work = capacities, terms, work
        none = np.zeros(0, dtype=np.int64)
        self.best = Point(WORST, none, none) if start is None else start
        self.open, self.closed = WORST, 0
        self.last: tuple[int, int, Window, Price]  # the range looked at last, which is often closed next

    def parts(self, low: int, high: int) -> Iterator[Node]:
        """Cut a range in two, or a short one into its windows, each with its own price."""
        step = 1 if high - low < 8 else (high - low + 1) // 2
        for first in range(low, high + 1, step):
            yield self._priced(first, min(first + step - 1, high))

    def _priced(self, low: int, high: int) -> Node:
        """Bound a range of windows by its own price; a single one is searched for an allocation as well."""
        window = build(self.capacities, self.terms, low, high)
        relaxed, bound, second = self._price(window)
        self.last = (low, high, window, relaxed.price)
        if low == high and bound > self.best.value:
            self.best = polish(window, self.terms, relaxed, second, bound, self.best) or self.best
        return Node(bound, low, high, _PRICED)

    def _price(self, window: Window) -> tuple[Relaxed, int, IntArray]:
        """Relax a window; also return the bound, and what everybody's second choice loses at its price."""
        relaxed = relax(window.options, self.terms.demand)
        price = relaxed.price.within(self.terms.most, self.terms.largest)
        _, best, second = ranked(window.options, price)
        return relaxed._replace(price=price), bound_at(total(best), price, self.terms.demand), second

    def expand(self, node: Node) -> Iterator[Node]:
        """Return what is left of a node after a closer look."""
        low, high = node.low, node.high
        if low < high:
            yield from self.parts(low, high)
        elif node.stage == _PRICED:
            if not self._close(low):
                self.open = max(self.open, node.bound)
        else:
            again = self.lowered(node) or self._priced(low, low)
            yield again._replace(bound=min(again.bound, node.bound))

    def _close(self, low: int) -> bool:
        """Search a window exactly; False if that is not affordable."""
        if len(self.capacities) * EACH > self.work:
            return False
        at, upto, window, price = self.last
        if (at, upto) != (low, low):
            window = build(self.capacities, self.terms, low, low)
            price = self._price(window)[0].price
        closing = Closing(window, self.terms, price, self.best, self.work)
        self.closed += 1
        self.best, self.work = closing.run(), closing.work
        return closing.complete

    def all_windows(self, last: int) -> list[Node]:
        """Bound all windows of a large fleet by the price of the one that a sample finds most promising."""
        few, terms = sample(len(self.capacities)), self.terms
        share = terms.demand * len(few) // len(self.capacities)
        part = _Search(
            self.capacities.take(few), replace(terms, demand=share, worth=terms.worth.take(few)), None, 0
        )
        promise = {}
        for t in range(1, last + 1):
            relaxed, promise[t], _ = part._price(build(part.capacities, part.terms, t, t))
            self.prices[t] = relaxed.price
        self.bounds = dict.fromkeys(promise, 2**62)
        self.tighten(self.prices.pop(max(promise, key=lambda t: promise[t])))
        return [Node(b, t, t) for t, b in self.bounds.items()]

    def _at_price(self, price: Price) -> dict[int, int]:
        """Bound all windows by a price, block by block."""
        terms, caps, most = self.terms, self.capacities, self.capacities.most_epochs
        top = min(max(self.bounds) + terms.staleness, int(most.max()))
        rows = [caps.at(tau) for tau in range(1, top + 1)]
        tau = np.arange(1, top + 1, dtype=np.int64)[:, None]
        sums = dict.fromkeys(self.bounds, 0)
        size = max(_BLOCK // top, 1)
        for at in range(0, len(caps), size):
            block = slice(at, at + size)
            worth = terms.worth.take(block)
            batch = np.minimum(np.stack([row[block] for row in rows]), terms.most)
            score = price.q * worth.of(slice(None), tau, batch) - price.p * batch
            batch[:] = terms.least
            least = price.q * worth.of(slice(None), tau, batch) - price.p * batch
            np.maximum(score, least, out=score)
            if most[block].min() < top:
                np.copyto(score, WORST, where=tau > most[block])
            best = sliding(score, terms.staleness + 1)
            for t in sums:
                sums[t] += total(np.maximum(best[t - 1], 0) if terms.optional else best[t - 1])
        return {t: bound_at(score_, price, terms.demand) for t, score_ in sums.items()}
