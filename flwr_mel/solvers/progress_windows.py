"""Windows of epochs for the progress objective: everybody's options, and a price that bounds their value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import IntArray, complain
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.solvers.knapsack import WORST, total

#: Rows of a table that bounds a range of windows together.
_GRID = 48

#: Up to this many rows are counted one by one.
_FEW = 12

#: Scores stay below this.
_LARGEST = 2**60


class Point(NamedTuple):
    """An allocation and its value sum_k tau_k d_k^2."""

    value: int
    epochs: IntArray
    samples: IntArray


@dataclass(frozen=True, slots=True)
class Terms:
    """What all windows share: limits, whether learners may be left out, denominator and range of prices."""

    demand: int
    staleness: int
    optional: bool
    least: int
    most: int
    scale: int
    lowest: int
    highest: int


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Epochs from `first` on, one row each, and everybody's options: both ends of every interval.

    `caps` falls from row to row and is d_l - 1 where a row is out of reach.
    """

    first: int
    caps: IntArray
    batch: IntArray
    value: IntArray
    allowed: npt.NDArray[np.bool_]

    def epochs(self, learner: npt.NDArray[np.intp] | int, batch: IntArray) -> IntArray:
        """Return the most epochs of the window that fit; below `first` if none does."""
        if len(self.caps) > _FEW and batch.shape != np.shape(learner):
            columns = batch.reshape(len(batch), -1).T
            rows = np.stack(
                [
                    _reach(self.caps[:, k], own)
                    for k, own in zip(np.atleast_1d(learner), columns, strict=True)
                ],
                -1,
            )
            return self.first - 1 + rows.reshape(batch.shape)
        epochs = np.full(batch.shape, self.first - 1, dtype=np.int64)
        for row in self.caps:
            epochs += row[learner] >= batch
        return epochs

    def scores(self, scale: int, price: int) -> IntArray:
        """Return what every option is worth at a price."""
        score = scale * self.value
        score -= price * self.batch
        np.copyto(score, WORST, where=~self.allowed)
        return score


def _reach(caps: IntArray, batch: IntArray) -> IntArray:
    """Count the capacities, which fall, that are at least a batch."""
    return np.asarray(len(caps) - np.searchsorted(caps[::-1], batch), dtype=np.int64)


class Priced(NamedTuple):
    """A window's bound on sum tau_k d_k^2, the price that proves it, and the options it picks."""

    bound: int
    price: int
    under: npt.NDArray[np.intp]
    over: npt.NDArray[np.intp]


def terms_of(capacities: Capacities, demand: int, staleness: int, top: int, optional: bool) -> Terms:
    """Collect what all windows up to `top` epochs share.

    Parameters
    ----------
    capacities : Capacities
        The learners.
    demand, staleness, top : int
        d, c and the most epochs of any window.
    optional : bool
        Whether learners may be left out.
    """
    others = 0 if optional else (len(capacities) - 1) * capacities.least
    most = min(demand - others, int(capacities.at(1).max()))
    if top * most * max(most, demand) > _LARGEST // 4:
        raise complain("total_samples", 'small enough that objective="progress" is exact in 64 bits', demand)
    # A steeper price than these changes nobody's choice; at very large d the lowest one is cut off.
    scale = min(max(_LARGEST // (top * most**3), 1), 1024)
    lowest = -min(scale * top * most * most, _LARGEST // most)
    highest = 2 * scale * top * most + 1
    return Terms(demand, staleness, optional, capacities.least, most, scale, lowest, highest)


def build(capacities: Capacities, terms: Terms, low: int, high: int) -> Window:
    """Build the options of the windows that start from `low` to `high`, taken together."""
    most = capacities.most_epochs
    last = min(high + terms.staleness, int(most.max()))
    if low == high and (last - low + 1) * len(capacities) > 20_000_000:
        rule = "small enough for a table of learners times epochs"
        raise complain("staleness", rule, terms.staleness, "Lower it, or set max_epochs.")
    if low == high or last - low < _GRID:
        taus = np.arange(low, last + 1)
        caps = capacities.table(low, last)
    else:
        # A bucket of epochs has the capacity of its first and the value of its last.
        taus = np.unique(np.linspace(low, last, _GRID).astype(np.int64))
        caps = np.array([capacities.at(int(tau)) for tau in taus])
    upto = np.minimum(np.append(taus[1:] - 1, last)[:, None], most)
    caps = np.where(taus[:, None] <= most, np.minimum(caps, terms.most), capacities.least - 1)
    left = np.vstack([caps[1:], np.full_like(caps[:1], capacities.least - 1)]) + 1
    batch, allowed = np.vstack([caps, left]), np.vstack([left <= caps] * 2)
    value = np.vstack([upto, upto]) * batch * batch
    if terms.optional:
        nothing = np.zeros_like(caps[:1])
        batch, value = np.vstack([batch, nothing]), np.vstack([value, nothing])
        allowed = np.vstack([allowed, nothing == 0])
    return Window(low, caps, batch, value, allowed)


def price_of(window: Window, terms: Terms) -> Priced:
    """Find the price at which the learners' own choices come to about d samples, by bisection.

    By weak duality sum_k max_j (v_jk - price d_jk) + price d bounds the window at any price.
    """
    everybody = np.arange(window.batch.shape[1])

    def choose(price: int) -> tuple[npt.NDArray[np.intp], int, int]:
        score = window.scores(terms.scale, price)
        pick = score.argmax(axis=0)
        bound = total(score[pick, everybody]) + price * terms.demand
        return pick, total(window.batch[pick, everybody]), bound // terms.scale

    low, high = (0, terms.highest) if choose(0)[1] > terms.demand else (terms.lowest - 1, 0)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if choose(middle)[1] <= terms.demand else (middle, high)
    under, _, bound = choose(high)
    over, reached, other = choose(low)
    if reached < terms.demand:
        over = np.where(window.allowed, window.batch, -1).argmax(axis=0)
    return Priced(min(bound, other), low if other < bound else high, under, over)
