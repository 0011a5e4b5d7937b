"""Windows of epochs whose options are batches.

Fix a window [t, t + c] and everybody's epochs in it. Learner k may have from d_l to cap_k(tau_k) samples, and
its worth tau d^2 is convex in them. Of two learners strictly inside one could give samples to the other, and
in one of the two directions nothing is lost. So some optimum has all but one at the least batch or at their
capacities, which are the options: c + 2 for everybody. The one takes what is left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flwr_mel._validate import IntArray, Phrase, complain
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.solvers.options import LARGEST, Bools, Index, Options
from flwr_mel.solvers.worth import Worth

#: Rows of a table that bounds a range of windows together; up to `_FEW` rows are counted one by one.
_GRID, _FEW = 48, 12

#: Learners times rows of one window.
_LARGEST_WINDOW = 20_000_000


@dataclass(frozen=True, slots=True)
class Terms:
    """What all windows share: what is maximised, limits, and whether learners may be left out.

    `most` is the largest useful batch, `largest` what no worth exceeds.
    """

    worth: Worth
    demand: int
    staleness: int
    optional: bool
    least: int
    most: int
    largest: int


def terms_of(
    capacities: Capacities, demand: int, staleness: int, top: int, worth: Worth, *, optional: bool
) -> Terms:
    """Collect what all windows up to `top` epochs share."""
    others = 0 if optional else (len(capacities) - 1) * capacities.least
    most = min(demand - others, int(capacities.at(1).max()))
    largest = worth.largest(top, most)
    if largest * max(most, demand) > most * LARGEST // 4:
        raise complain("total_samples", 'small enough that objective="progress" is exact in 64 bits', demand)
    return Terms(worth, demand, staleness, optional, capacities.least, most, largest)


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Epochs from `first` on, one row each, and everybody's options.

    `caps` falls from row to row and is d_l - 1 where a row is out of reach.
    """

    first: int
    caps: IntArray
    options: Options

    def epochs(self, learner: Index | int, batch: IntArray) -> IntArray:
        """Return the most epochs of the window that fit; below `first` if none does."""
        return self.first - 1 + _reach(self.caps, learner, batch)


def _reach(caps: IntArray, learner: Index | int, batch: IntArray) -> IntArray:
    """Count the capacities, which fall, that are at least a batch."""
    if len(caps) > _FEW and batch.shape != np.shape(learner):
        columns = batch.reshape(len(batch), -1).T
        mine = (
            len(caps) - np.searchsorted(caps[::-1, k], own)
            for k, own in zip(np.atleast_1d(learner), columns, strict=True)
        )
        return np.stack([*mine], -1).astype(np.int64).reshape(batch.shape)
    count = np.zeros(batch.shape, dtype=np.int64)
    for row in caps:
        count += row[learner] >= batch
    return count


def build(capacities: Capacities, terms: Terms, low: int, high: int) -> Window:
    """Build the options of the windows that start from `low` to `high`, taken together.

    Parameters
    ----------
    capacities : Capacities
        The learners.
    terms : Terms
        What all windows share.
    low, high : int
        The windows. A range is a bound: a group of epochs has the capacity of its first and the worth of its
        last.
    """
    most = capacities.most_epochs
    last = min(high + terms.staleness, int(most.max()))
    if low == high and (last - low + 1) * len(capacities) > _LARGEST_WINDOW:
        rule = "small enough for a table of learners times epochs"
        raise complain("staleness", rule, terms.staleness, Phrase("Lower it, or set {}.", "max_epochs"))
    if low == high or last - low < _GRID:
        taus = np.arange(low, last + 1)
        caps = capacities.table(low, last)
    else:
        taus = np.unique(np.linspace(low, last, _GRID).astype(np.int64))
        caps = np.array([capacities.at(int(tau)) for tau in taus])
    np.minimum(caps, terms.most, out=caps)
    if most.min() < last:
        caps = np.where(taus[:, None] <= most, caps, capacities.least - 1)
    upto = np.minimum(np.append(taus[1:] - 1, last)[:, None], most)
    batch, epochs, allowed = _ends(caps, upto, terms)
    value = terms.worth.best(slice(None), low, epochs, batch)
    if terms.optional:  # nothing at all, for nothing
        nothing = np.zeros_like(batch[:1])
        batch, value = np.vstack([nothing, batch]), np.vstack([nothing, value])
        allowed = np.vstack([nothing == 0, allowed])
    return Window(low, caps, Options(batch, value, allowed, terms.most, terms.largest))


def _ends(caps: IntArray, upto: IntArray, terms: Terms) -> tuple[IntArray, IntArray, Bools]:
    """Return the least batch, and the capacity at every number of epochs, from the smallest on, each once."""
    batch = np.empty((len(caps) + 1, caps.shape[1]), dtype=np.int64)
    batch[0] = terms.least
    np.maximum(caps[::-1], terms.least, out=batch[1:])
    allowed = np.empty(batch.shape, dtype=np.bool_)
    np.greater_equal(caps[0], terms.least, out=allowed[0])
    np.greater(batch[1:], batch[:-1], out=allowed[1:])
    return batch, np.concatenate([upto[-1:], upto[::-1]]), allowed
