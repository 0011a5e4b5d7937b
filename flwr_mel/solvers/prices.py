"""Rows, prices and a search: the largest sum of epochs in a window, for large fleets and wide windows.

In the window [first, end] a learner has a row for each of its epochs tau, with capacity cap(tau). Let a
sample be worth p epochs. Without the floor, tau + p cap(tau) is convex in tau between the changes of the
binding limit (time, energy, data), so at any price the best row is the bottom of the window, its top, or next
to one of the at most two changes: **two to six rows per learner are enough, however wide the window is**.

The sum of the best scores, less the price of the demand, bounds the sum of epochs (weak duality), and floors
only lower it. The price is that of the linear relaxation, found by one sort of the steps from row to row.
A search goes through combinations of rows that lose less than what is still to be gained. It needs no more
rows: of two learners strictly between their rows, one can do an epoch more and the other one less without a
loss of capacity, by convexity. So at most one learner is between its rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import floor, inf, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import FloatArray, IntArray
from flwr_mel.allocation.capacity import Capacities

#: From this many learners on a sample of them shows where the price is.
LARGE = 4096
#: Rows of a learner in a wide window. A window with fewer epochs than the second number is looked at whole,
#: unless the fleet is large. So are learners with few capacities in it: the third number, shared by all.
ROWS, _WHOLE, _SAMPLES = 6, 24, 2000
#: Learners whose rows are combined, and combinations kept. From a quarter of these on they are merged, which
#: raises the bound by this share.
_OPEN, _BEAM, _THIN = 64, 4096, 5e-3
#: Stretches between the rows of a learner, and combinations that are made into allocations.
_PARTS, _TRIED = 128, 3
#: Entries looked at in one go: what fits into a processor's cache.
_BLOCK = 65_536


@dataclass(frozen=True, eq=False)
class Window:
    """The rows of all learners, one column each.

    Parameters
    ----------
    first, end : int
        The least and the most epochs.
    epochs, caps : int arrays
        Of the rows.
    above : array
        Numbers that the capacities do not exceed, and between rows neither.
    whole : bool array
        Which learners have all their rows here.
    """

    first: int
    end: int
    epochs: IntArray
    caps: IntArray
    above: IntArray | FloatArray
    whole: npt.NDArray[np.bool_]


class Rows:
    """Rows of any window, for capacities up to the demand: more is of no use.

    Parameters
    ----------
    capacities : Capacities
        Learners that can all do one epoch.
    demand : int
        d.
    """

    def __init__(self, capacities: Capacities, demand: int) -> None:
        self.capacities, self.demand, self.most = capacities, demand, capacities.most_epochs

    def __len__(self) -> int:
        return len(self.most)

    def caps(self, epochs: int | IntArray) -> IntArray:
        """Return the capacities."""
        return np.minimum(self.capacities.at(epochs), self.demand)

    @cached_property
    def _last(self) -> IntArray:
        return self.caps(self.most)

    @cached_property
    def _turns(self) -> IntArray:
        """The last epochs before another limit binds, and the first ones after."""
        turns = np.nan_to_num(self.capacities.turns(self.demand), nan=0.0, posinf=0.0, neginf=0.0)
        before = np.clip(turns, 0, self.most).astype(np.int64)
        return np.concatenate([before, before + 1])

    def window(self, first: int, end: int) -> Window:
        """Return the rows of a window whose first row all learners can do."""
        top = np.minimum(self.most, end)
        if end - first < (ROWS if len(self) > LARGE else _WHOLE):
            taus = np.arange(first, end + 1)[:, None]
            epochs = np.minimum(self.most, taus)
            caps = np.minimum([self.capacities.at(tau) for tau in range(first, end + 1)], self.demand)
            np.copyto(caps, self._last, where=epochs < taus)
            return Window(first, end, epochs, caps, caps, np.ones(len(self), dtype=np.bool_))
        bottom = np.full(len(self), first)
        epochs = np.clip(np.stack([bottom, *self._turns, top]), first, top)
        above = np.minimum(self.capacities.above(epochs), self.demand)
        least, most = self.caps(top), self.caps(first)
        # Few epochs, or few samples: then all of them.
        many = ROWS if len(self) > LARGE else _WHOLE
        samples = most - least <= top - first
        count = np.where(samples, most - least, top - first)
        whole = count < np.where(samples, max(many, _SAMPLES // len(self)), many)
        if whole.any():
            step = np.arange(max(int(count[whole].max()) + 1, ROWS))[:, None]
            epochs = np.concatenate([epochs, np.broadcast_to(top, (len(step) - ROWS, len(self)))])
            above = np.minimum(self.capacities.above(epochs), self.demand)
            epochs = np.where(whole & ~samples, np.minimum(first + step, top), epochs)
            by_sample = np.minimum(self.capacities.epochs(np.maximum(most - step, least)), top)
            epochs = np.where(whole & samples, by_sample, epochs)
        caps = self.caps(epochs)
        return Window(first, end, epochs, caps, np.where(whole, caps, np.maximum(above, caps)), whole)

    def filled(self, epochs: IntArray, end: int) -> IntArray:
        """Raise epochs by what is carried beyond the demand, the learner that can rise most first."""
        caps = self.caps(epochs)
        top = np.minimum(self.most, end)
        epochs = np.minimum(self.capacities.epochs(caps), top)
        for _ in range(ROWS):
            spare = int(caps.sum()) - self.demand
            reach = np.minimum(self.capacities.epochs(np.maximum(caps - spare, self.capacities.least)), top)
            k = int((reach - epochs).argmax())
            if reach[k] <= epochs[k]:
                break
            epochs[k] = reach[k]
            caps = self.caps(epochs)
        return epochs


def find_price(epochs: IntArray, caps: IntArray, demand: int) -> tuple[float, IntArray]:
    """Return the price of the linear relaxation, and the learners' rows (indices) that carry the demand.

    The first row must carry it. From row to row the steps with the least capacity lost per epoch come first:
    they lead along the upper concave hull.
    """
    learners = epochs.shape[1]
    rows, open_ = np.zeros(learners, dtype=np.int64), np.arange(learners)
    if learners > LARGE and (found := _enclosed(epochs, caps, demand)) is not None:
        rows, open_ = found
        settled = np.ones(learners, dtype=np.bool_)
        settled[open_] = False
        demand -= int(caps[rows, np.arange(learners)][settled].sum())
        epochs, caps = epochs[:, open_], caps[:, open_]
    rate, learner, to, _, lost = hull(epochs, caps)
    spare = int(caps[0].sum()) - demand
    taken = int(np.searchsorted(np.cumsum(lost), spare, side="right"))
    at = np.zeros(len(open_), dtype=np.int64)
    at[learner[:taken]] = to[:taken]  # of several steps of a learner the last one counts
    rows[open_] = at
    return (1 / float(rate[taken]) if taken < len(rate) else 0.0), rows


def hull(epochs: IntArray, caps: FloatArray | IntArray) -> tuple[FloatArray, ...]:
    """Return the steps along the learners' upper concave hulls, those that lose least per epoch first.

    Of each step the loss per epoch, the learner, the row that it leads to, the epochs gained and the capacity
    lost.
    """
    at, columns = np.zeros(epochs.shape[1], dtype=np.int64), np.arange(epochs.shape[1])
    worst, steps = np.zeros(len(columns)), [np.zeros((5, 0))]
    while True:
        gain, lost = epochs - epochs[at, columns], caps[at, columns] - caps
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = np.where(gain > 0, lost / gain, inf)
        to = rates.argmin(axis=0)
        rate = rates[to, columns]
        some = np.flatnonzero(rate < inf)
        if not len(some):
            break
        worst = np.maximum(worst, rate)  # never less than the step before, whatever rounding does
        there = to[some], some
        steps.append(np.stack([worst[some], some, to[some], gain[there], lost[there]]))
        at = np.where(rate < inf, to, at)
    every = np.concatenate(steps, axis=1)
    rate, learner, to, gain, lost = every[:, np.argsort(every[0], kind="stable")]
    return rate, learner.astype(np.int64), to.astype(np.int64), gain, lost


def _enclosed(epochs: IntArray, caps: IntArray, demand: int) -> tuple[IntArray, IntArray] | None:
    """Narrow the price of a large fleet down by a sample; return rows, and whose rows are still open.

    None if the sample misleads.
    """
    few = sample(epochs.shape[1])
    part, n = (epochs[:, few], caps[:, few]), len(few)
    share = demand * n // epochs.shape[1]
    _, rows = find_price(*part, share)
    spread = int(4 * part[1][rows, np.arange(n)].std() * sqrt(n))  # four standard deviations
    if part[1][0].sum() < share + spread:
        return None
    low, high = (find_price(*part, share + shift)[0] for shift in (-spread, spread))
    (under, too_few), (over, enough) = (best_rows(epochs, caps, price) for price in (low, high))
    if not too_few < demand <= enough:
        return None
    return over, np.flatnonzero(under != over)


def best_rows(epochs: IntArray, caps: IntArray, price: float) -> tuple[IntArray, int]:
    """Return every learner's best row at a price, and what they carry."""
    rows, carried = np.empty(epochs.shape[1], dtype=np.int64), 0
    for block in _blocks(epochs):
        rows[block] = (epochs[:, block] + price * caps[:, block]).argmax(axis=0)
        carried += int(caps[:, block][rows[block], np.arange(len(rows[block]))].sum())
    return rows, carried


def bound_at(window: Window, demand: int, price: float) -> float:
    """Bound the sum of epochs by a price: the sum of best scores, less the demand's."""
    score = sum(
        float((window.epochs[:, block] + price * window.above[:, block]).max(axis=0).sum())
        for block in _blocks(window.epochs)
    )
    return score - price * demand + 1e-12 * score + 1e-9  # more than what rounding can hide


def _blocks(table: IntArray) -> list[slice]:
    """Return slices of as many columns as fit into the cache."""
    size = max(_BLOCK // len(table), 1)
    return [slice(at, at + size) for at in range(0, table.shape[1], size)]


def sample(learners: int) -> IntArray:
    """Pick learners evenly from a large fleet, always the same ones."""
    return np.linspace(0, learners - 1, LARGE // 2).astype(np.int64)


class Search:
    """A search through combinations of rows of one window.

    Parameters
    ----------
    rows : Rows
        Of the learners.
    window : Window
        Where to look.
    price : float
        At which combinations lose against the best rows.
    goal : int
        A sum that is known.
    """

    def __init__(self, rows: Rows, window: Window, price: float, goal: int) -> None:
        self.rows, self.window, self.goal = rows, window, goal
        self.limit = bound_at(window, rows.demand, price)
        self.top = np.minimum(rows.most, window.end)
        score, columns = window.epochs + price * window.above, np.arange(len(rows))
        best = score.argmax(axis=0)
        #: What each row loses against the best, infinite for the best row again, and the least of it.
        self.loss = score[best, columns] - score
        self.loss[window.epochs == window.epochs[best, columns]] = inf
        self.second = self.loss.min(axis=0)
        self.loss[best, columns] = 0.0
        #: Epochs and the most capacity of the rows, and of the best ones.
        self.options = np.stack([window.epochs, window.above])
        self.fixed = self.options[:, best, columns]

    def result(self) -> tuple[IntArray | None, int]:
        """Find epochs with a sum above the goal, None if there are none; also return what is then proven.

        Combines the rows of learners one after the other; the relaxation bounds what the others add. At
        most one learner is between its rows, on a stretch of epochs: it counts the epochs of the end of the
        stretch and the capacity of its beginning.
        """
        goal, demand, who = self.goal, self.rows.demand, np.arange(len(self.rows))
        budget, first, (epochs, above) = self.limit - goal - 1, self.window.first, self.options
        ends = first + (np.arange(_PARTS + 1)[:, None] * (self.top - first + 1)) // _PARTS
        between = np.minimum(self.rows.capacities.above(ends[:-1]), demand)
        within = (ends[:-1] < ends[1:]) & ~self.window.whole
        fixed = self.second > budget
        left, open_ = ~fixed, np.flatnonzero(~fixed)
        open_ = open_[np.argsort(-np.ptp(epochs[:, open_], axis=0), kind="stable")]
        _, learner, _, gains, losses = hull(epochs, above)
        sets = [np.zeros((5, 1)), np.zeros((5, 0))]
        sets[0][[0, 1, 4]] = self.fixed[[0, 1, 0]][:, fixed].sum(axis=1)[:, None]
        width, self.missed, self.thinned = _THIN * goal / max(len(open_), 1), 0.0, False
        layers, bounds = [], [np.zeros(0), np.zeros(0)]
        for k in [
            *open_[:_OPEN].tolist(),
            -1,
        ]:  # at last the fixed ones, of which one may be between its rows
            rows, own = np.flatnonzero(self.loss[:, k] <= budget), np.zeros((5, 1))
            if k >= 0:
                left[k] = False
                own = np.zeros((5, len(rows)))
                own[[0, 1, 4]] = self.options[[0, 1, 0]][:, rows, k]
            at, one = np.nonzero(within & (who == k if k >= 0 else fixed))
            free = np.stack([ends[at + 1, one] - 1, between[at, one], one, at, ends[at, one]])
            if k < 0:
                free[[0, 1, 4]] -= self.fixed[[0, 1, 0]][:, one]
            room, more = (np.concatenate([[0.0], np.cumsum(x[left[learner]])]) for x in (losses, gains))
            base = epochs[0, left].sum(), above[0, left].sum() - demand * (1 - 1e-12)
            split = sets[1].shape[1] * own.shape[1]
            both = np.concatenate([_joined(sets[1], own), _joined(sets[0], free)], axis=1)
            kept = [self._kept(every, *base, room, more, width) for every in (_joined(sets[0], own), both)]
            sets, bounds = [x[0] for x in kept], [x[2] for x in kept]
            layers.append((k, rows, own.shape[1], one, ends[at, one], [x[1] for x in kept], split))
        if not left.any() and not self.thinned:  # only the epochs of the learner between its rows are open
            one, at = sets[1][2:4].astype(np.int64)
            need = np.maximum(demand - sets[1][1] + between[at, one], 1.0)
            reach = np.floor(self.rows.capacities.take(one).reach(need) * (1 + 1e-12) + 1e-9)
            bounds[1] = bounds[1] - np.maximum(ends[at + 1, one] - 1 - np.maximum(reach, ends[at, one]), 0)
        best = None
        for flag in (0, 1):
            for i in np.argsort(-bounds[flag])[:_TRIED].tolist():
                taus = self._repaired(self._traced(layers, flag, i), left)
                if taus is not None and int(taus.sum()) > goal:
                    best, goal = taus, int(taus.sum())
        return best, max(goal, floor(max(self.missed, *(b.max(initial=0.0) for b in bounds))))

    def _kept(
        self, every: FloatArray, base: float, spare: float, room: FloatArray, more: FloatArray, width: float
    ) -> tuple[FloatArray, IntArray, FloatArray]:
        """Return the states that may lead above the goal, their places, and bounds on what they lead to."""
        left = every[1] + spare
        most = every[0] + base + np.interp(left, room, more)
        good = np.flatnonzero((left >= 0) & (most >= self.goal + 1))
        states, places = _front(every[:, good], width)
        places, self.thinned = good[places], self.thinned or bool((states[0] != every[0, good[places]]).any())
        bounds = most[places] + states[0] - every[0, places]
        if len(places) > _BEAM:
            order = np.argpartition(-bounds, _BEAM)
            self.missed = max(self.missed, float(bounds[order[_BEAM:]].max()))
            order = order[:_BEAM]
            return states[:, order], places[order], bounds[order]
        return states, places, bounds

    def _traced(self, layers: list[Any], flag: int, i: int) -> IntArray:
        """Return the epochs that led to a state, the least where nothing is chosen."""
        fixed = self.second > self.limit - self.goal - 1
        taus: IntArray = np.where(fixed, self.fixed[0], self.window.first).astype(np.int64)
        for k, rows, size, one, begins, parents, split in layers[::-1]:
            i = int(parents[flag][i])
            if flag and i >= split:
                i, pick = divmod(i - split, len(one))
                flag, taus[one[pick]] = 0, begins[pick]
            else:
                i, pick = divmod(i, size)
                if k >= 0:
                    taus[k] = self.window.epochs[rows[pick], k]
        return taus

    def _repaired(self, taus: IntArray, left: npt.NDArray[np.bool_]) -> IntArray | None:
        """Choose rows for the learners left open; then one learner carries what floors have lost."""
        rows, window, caps = self.rows, self.window, self.rows.caps(taus)
        need = rows.demand - int(caps[~left].sum())
        if left.any() and int(caps[left].sum()) >= need:
            epochs = window.epochs[:, left]
            _, chosen = find_price(epochs, window.caps[:, left], need)
            taus[left] = epochs[chosen, np.arange(len(chosen))]
            caps = rows.caps(taus)
        short = rows.demand - int(caps.sum())
        if short > 0:
            lower = rows.capacities.epochs(np.minimum(caps + short, rows.demand))
            lower = np.where(rows.caps(np.maximum(lower, 1)) >= caps + short, lower, 0)
            k = int(np.where(lower >= window.first, lower - taus, -(2**60)).argmax())
            if lower[k] < window.first:
                return None
            taus[k] = lower[k]
        return taus


def _joined(some: FloatArray, more: FloatArray) -> FloatArray:
    """Add all to all."""
    joined: FloatArray = (some[:, :, None] + more[:, None, :]).reshape(len(some), -1)
    return joined


def _front(states: FloatArray, width: float) -> tuple[FloatArray, IntArray]:
    """Return the states that no other one surely exceeds in epochs and capacity, and their places.

    Of many, only the one with the most capacity in each interval of epochs, with the most epochs there.
    """
    order = np.lexsort((states[0], states[1]))[::-1]
    front = np.ones(len(order), dtype=np.bool_)
    np.greater(states[0, order[1:]], np.maximum.accumulate(states[4, order])[:-1], out=front[1:])
    order = order[front]
    if len(order) > _BEAM // 4 and width > 1:
        interval = np.floor(states[0, order] / width)
        interval, kept = np.unique(interval, return_index=True)
        order = order[kept]
        states = states[:, order]
        states[0] = np.floor((interval + 1) * width)
        return states, order
    return states[:, order], order
