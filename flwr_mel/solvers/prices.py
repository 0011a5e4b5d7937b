"""Rows, prices and a search: the largest sum of epochs in a window, for large fleets and wide windows.

In the window [first, end] a learner has a row for each of its epochs tau, with capacity cap(tau). Let a sample
be worth p epochs. Without the floor, tau + p cap(tau) is convex in tau between the changes of the binding limit
(time, energy, data), so at any price the best row is the bottom of the window, its top, or next to one of the
at most two changes: **two to six rows per learner are enough, however wide the window is**.

The sum of the best scores, less the price of the demand, bounds the sum of epochs (weak duality), and floors
only lower it. The price is that of the linear relaxation, found by one sort of the steps from row to row.
A search goes through combinations of rows that lose less than what is still to be gained. It needs no more
rows: of two learners strictly between their rows, one can do an epoch more and the other one less without a loss
of capacity, by convexity. So one learner at a time is free to do any number of epochs, all others keep to rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import floor, inf, sqrt

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import FloatArray, IntArray
from flwr_mel.allocation.capacity import Capacities

#: From this many learners on a sample of them shows where the price is.
LARGE = 4096
#: The most rows of a learner that are looked at in a wide window, and all rows of a window in small fleets.
ROWS, _WHOLE = 6, 24
#: Learners whose rows are combined, and combinations kept, those that lose least.
_OPEN, _BEAM = 64, 256
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
        step = np.arange(ROWS)[:, None]
        short, low = top - first < ROWS, most - least < ROWS
        whole = short | low
        if whole.any():
            epochs = np.where(short, np.minimum(first + step, top), epochs)
            by_sample = np.maximum(most - step, least)
            epochs = np.where(low, np.minimum(self.capacities.epochs(by_sample), top), epochs)
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
    at, columns = np.zeros(len(open_), dtype=np.int64), np.arange(len(open_))
    steps = []
    worst = np.zeros(len(open_))
    while True:
        gain = epochs - epochs[at, columns]
        lost = caps[at, columns] - caps
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = np.where(gain > 0, lost / gain, inf)
        to = rates.argmin(axis=0)
        rate = rates[to, columns]
        some = np.flatnonzero(rate < inf)
        if not len(some):
            break
        # Never less than the step before, whatever rounding does.
        worst = np.maximum(worst, rate)
        steps.append((worst[some], some, to[some], lost[to[some], some]))
        at = np.where(rate < inf, to, at)
    spare = int(caps[0].sum()) - demand
    rate, learner, to, lost = (np.concatenate(x) for x in zip(*steps, strict=True)) if steps else 4 * (np.zeros(0, dtype=np.int64),)
    order = np.argsort(rate, kind="stable")
    taken = int(np.searchsorted(np.cumsum(lost[order]), spare, side="right"))
    at = np.zeros(len(open_), dtype=np.int64)
    at[learner[order[:taken]]] = to[order[:taken]]  # of several steps of a learner the last one counts
    rows[open_] = at
    return (1 / float(rate[order[taken]]) if taken < len(order) else 0.0), rows


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
    """

    def __init__(self, rows: Rows, window: Window, price: float, goal: int) -> None:
        self.rows, self.window, self.goal = rows, window, goal
        self.limit = bound_at(window, rows.demand, price)
        self.best, second = np.empty(len(rows), dtype=np.int64), np.empty(len(rows))
        for block in _blocks(window.epochs):
            score = window.epochs[:, block] + price * window.above[:, block]
            self.best[block] = best = score.argmax(axis=0)
            columns = np.arange(len(best))
            again = window.epochs[:, block] == window.epochs[:, block][best, columns]
            second[block] = score[best, columns] - np.where(again, -inf, score).max(axis=0)
        #: Learners with a choice, in wide windows all.
        near, self.missed = np.ones(len(rows), dtype=np.bool_), inf
        if window.whole.all():
            near = second <= self.limit - goal
            if len(rows) > LARGE:
                order = np.argpartition(second, LARGE)
                near[order[LARGE:]], self.missed = False, float(second[order[LARGE]])
        self.near, self.second = np.flatnonzero(near), second[near]
        self.whole, self.top = window.whole[near], np.minimum(rows.most[near], window.end)
        epochs, above, caps = (table[:, near] for table in (window.epochs, window.above, window.caps))
        score, best, columns = epochs + price * above, self.best[near], np.arange(len(self.near))
        loss = score[best, columns] - score
        loss[epochs == epochs[best, columns]] = inf  # the same row again
        loss[best, columns] = 0.0
        #: Of each row the epochs, the most and the real capacity, and the loss.
        self.options = np.stack([epochs, above, caps, loss])
        self.fixed = self.options[:, best, columns]
        sure = np.flatnonzero(~near)
        self.start = np.zeros(4)
        self.start[0] = window.epochs[self.best[sure], sure].sum()
        self.start[1:3] = window.caps[self.best[sure], sure].sum()

    def result(self) -> tuple[IntArray | None, int]:
        """Find epochs with a sum above the goal, None if there are none; also return what is then proven.

        Mostly the bound is met, or nearly. So little less than that is asked for, then less in growing steps.
        """
        best, goal = None, self.goal
        bound = target = floor(self.limit)
        step = 1 + (bound - goal) // 8
        while bound > goal:
            budget = self.limit - target
            found, most, missed = self._combine(budget)
            bound = min(bound, max(most, target - 1, floor(self.limit - min(missed, self.limit))))
            if found is not None and int(found.sum()) > goal:
                best, goal = found, int(found.sum())
            if missed <= budget or target <= goal + 1:
                break
            target, step = max(min(target - step, bound), goal + 1), 2 * step
        return best, bound

    def _combine(self, budget: float) -> tuple[IntArray | None, int, float]:
        """Return the best epochs within a budget of loss, a bound on them, and the least loss left out."""
        open_, missed, first = np.flatnonzero(self.second <= budget), self.missed, np.zeros((2, 1), dtype=np.int64)
        demand, whole = self.rows.demand, self.whole
        start = (self.start + self.fixed.sum(axis=1))[:, None]
        if len(open_) > _OPEN:
            open_ = open_[np.argsort(self.second[open_], kind="stable")]
            open_, more = open_[:_OPEN], open_[_OPEN:]
            lost = float(self.second[more[0]])
            if whole.all():  # one of them all may differ, so two are missed
                lost += float(self.second[more[1]]) if len(more) > 1 else inf
                i, j = np.nonzero(self.options[3][:, more] <= budget)
                j = more[j]
                first = np.concatenate([first, [i, j]], axis=1)
                start = np.concatenate([start, start + self.options[:, i, j] - self.fixed[:, j]], axis=1)
            missed = min(missed, lost)
        start = start - self.fixed[:, open_].sum(axis=1)[:, None]
        rest = np.ones(len(self.near), dtype=np.bool_)
        rest[open_] = False
        picks = [np.flatnonzero(self.options[3, :, k] <= budget) for k in open_]
        options = [self.options[:, some, k] for some, k in zip(picks, open_, strict=True)]
        forward = _Layers(start, options, budget)
        missed = min(missed, forward.missed)

        def epochs(chosen: list[int]) -> IntArray:
            rows = self.best.copy()
            rows[self.near[open_]] = [some[i] for some, i in zip(picks, chosen[1:], strict=True)]
            if chosen[0]:
                rows[self.near[first[1, chosen[0]]]] = first[0, chosen[0]]
            taus: IntArray = self.window.epochs[rows, np.arange(len(rows))]
            return taus

        if whole.all():
            sums = np.where(forward.states[-1][2] >= demand, forward.states[-1][0], 0.0)
            i = int(sums.argmax())
            return (epochs(forward.trace(i)) if sums[i] else None), int(sums[i]), missed
        backward = _Layers(np.zeros((4, 1)), options[::-1], budget)
        missed, n = min(missed, backward.missed), len(open_)
        most, best, chosen = 0.0, 0.0, None
        free = np.flatnonzero(rest & ~whole)
        for m in [*np.flatnonzero(~whole[open_]).tolist(), n]:
            # One learner is free: of those with a choice the m-th, at last any of the others.
            who = open_[m : m + 1] if m < n else free
            if m < n:
                states, parent, option, lost = _join(forward.states[m], backward.states[n - 1 - m], budget)
                missed = min(missed, lost)
            else:
                states = forward.states[n]
            bound, sums = self._free(states, who, self.fixed[:, who] * (m == n))
            most = max(most, float(bound.max(initial=0.0)))
            if sums.max(initial=0.0) > best:
                i, j = (int(x) for x in np.unravel_index(int(sums.argmax()), sums.shape))
                best = float(sums[i, j])
                if m < n:
                    behind = backward.trace(int(option[i]), n - 1 - m)[:0:-1]
                    chosen = [*forward.trace(int(parent[i]), m), 0, *behind], int(who[j])
                else:
                    chosen = forward.trace(i), int(who[j])
        if chosen is None:
            return None, int(most), missed
        taus, k = epochs(chosen[0]), chosen[1]
        others = int(self.rows.caps(taus).sum()) - int(self.rows.caps(taus)[k])
        one = self.rows.capacities.take(np.array([k]))
        taus[k] = min(int(one.epochs(max(demand - others, one.least))[0]), int(self.top[k]))
        good = taus[k] >= self.window.first and int(self.rows.caps(taus).sum()) >= demand
        return (taus if good else None), int(most), missed

    def _free(self, states: FloatArray, who: IntArray, own: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the sums of epochs if one of these learners does all that it can: a bound, and an estimate."""
        one = self.rows.capacities.take(self.near[who])
        data = np.minimum(one.most, self.rows.demand) * (1 + 1e-12)
        sums = []
        for carried in (1, 2):
            need = self.rows.demand - states[carried][:, None] + own[carried]
            reach = np.floor(one.reach(np.maximum(need, 1.0)) * (1 + 1e-12) + 1e-9)
            epochs = np.minimum(reach, self.top[who])
            good = (need <= data) & (epochs >= self.window.first)
            sums.append(np.where(good, states[0][:, None] - own[0] + epochs, 0.0))
        return sums[0], sums[1]


class _Layers:
    """Combinations of the rows of more and more learners.

    Parameters
    ----------
    start : array
        What is fixed: epochs, the most and the real capacity, and the loss.
    options : list of arrays
        Per learner, the same of its rows.
    budget : float
        The largest loss.
    """

    def __init__(self, start: FloatArray, options: list[FloatArray], budget: float) -> None:
        self.states, self.missed = [start], inf
        self._steps: list[tuple[IntArray, IntArray]] = []
        for own in options:
            states, parent, option, lost = _join(self.states[-1], own, budget)
            self.states.append(states)
            self._steps.append((parent, option))
            self.missed = min(self.missed, lost)

    def trace(self, i: int, layers: int | None = None) -> list[int]:
        """Return from where a combination comes: the start, and a row per learner."""
        rows = []
        for parent, option in self._steps[:layers][::-1]:
            rows.append(int(option[i]))
            i = int(parent[i])
        return [i, *rows[::-1]]


def _join(
    some: FloatArray, more: FloatArray, budget: float
) -> tuple[FloatArray, IntArray, IntArray, float]:
    """Combine all with all within the budget; return also from what, and the least loss of those left out.

    Those that another one exceeds in epochs and capacity are of no use.
    """
    every = (some[:, :, None] + more[:, None, :]).reshape(4, -1)
    within = np.flatnonzero(every[3] <= budget)
    order = within[np.lexsort((every[0, within], every[1, within]))[::-1]]
    sums, missed = every[0, order], inf
    front = np.empty(len(order), dtype=np.bool_)
    front[:1] = True
    np.greater(sums[1:], np.maximum.accumulate(sums)[:-1], out=front[1:])
    kept = order[front]
    if len(kept) > _BEAM:
        kept = kept[np.argpartition(every[3, kept], _BEAM)]
        missed = float(every[3, kept[_BEAM:]].min())
        kept = kept[:_BEAM]
    parent, option = np.divmod(kept, more.shape[1])
    return every[:, kept], parent, option, missed
