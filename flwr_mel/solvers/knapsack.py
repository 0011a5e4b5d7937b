"""The largest sum of epochs: a knapsack in each of at most c + 1 windows.

Let s be the synchronous optimum, the largest tau with sum_k cap_k(tau) >= d. Every allocation lies in a
window [t, t + c]. If t > s, not even all learners at t carry d. If t < s - c, all learners at s are better.
So t is one of c + 1 numbers. Inside a window a learner has a row, tau_k - t, and the question is: which rows
have the largest sum while the capacities still come to d?

`all_windows` answers it for small fleets, by a dynamic programme over (window, sum of rows) -> largest
capacity. `flwr_mel.solvers.prices` answers it for large fleets and wide windows.
"""

from __future__ import annotations

import heapq
from itertools import pairwise
from math import floor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from flwr_mel._validate import FloatArray, IntArray
from flwr_mel.allocation.bisection import largest
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.solvers.prices import LARGE, Rows, Search, Window, bound_at, find_price, sample

#: Learners and steps of the dynamic programme over all windows at once: a few milliseconds.
_FEW, _SMALL = 64, 4_000_000
#: Its steps when the search by windows has not met its bound.
_LATE = 12_000_000
#: Steps of a programme that also counts the participants.
_MOST_STEPS = 30_000_000
#: Windows that are bounded one by one, bounds in all, and how many of them a search counts for 32 learners.
_APART, _VISITS, _SEARCH = 8, 200, 5
#: In large fleets a wide window is not searched when its bound is as near as this share.
_CLOSE = 1e-3
#: In tables: a row that the learner cannot reach.
NEVER = -1


class Best(NamedTuple):
    """Epochs of all learners, and a proven bound on their sum."""

    epochs: IntArray
    bound: int

    @property
    def sum_epochs(self) -> int:
        """What is maximised."""
        return int(self.epochs.sum())


def best_epochs(capacities: Capacities, demand: int, staleness: int) -> Best:
    """Find the largest sum of epochs with which learners that all take part carry the demand.

    Parameters
    ----------
    capacities : Capacities
        Learners that carry the demand at one epoch each.
    demand, staleness : int
        d and c.
    """
    learners, low, top = len(capacities), int(capacities.most_epochs.min()), int(capacities.most_epochs.max())
    end, whole = min(low + staleness, top), None
    if end * learners <= LARGE:  # one table costs less than two
        whole = capacities.table(1, end)
        sync = int(np.count_nonzero(whole[:low].sum(axis=1) >= demand)) or 1
    else:
        sync = synchronous(capacities, demand)
    first = max(1, sync - staleness)
    last = min(sync, max(1, top - staleness))  # later windows are parts of this one
    windows, width = last - first + 1, min(staleness, top - first) + 1
    steps = windows * width * learners * (learners * (width - 1) + 1) // 2
    found, affordable = None, _SMALL if learners <= _FEW else 0
    if steps > affordable:
        found = _by_window(Rows(capacities, demand), first, last, width - 1, np.full(learners, sync))
        affordable = _LATE if found.bound > found.sum_epochs else 0
    if found is None or steps <= affordable:
        end = last + width - 1
        table = capacities.table(first, end) if whole is None else whole[first - 1 : end]
        table = np.minimum(table, demand)
        table[np.arange(first, first + len(table))[:, None] > capacities.most_epochs] = NEVER
        rows, bound = all_windows(table, demand, windows)
        found = Best(first + rows, first * learners + bound)
    return found


def _by_window(rows: Rows, first: int, last: int, more: int, best: IntArray) -> Best:
    """Look at the windows with the largest bound, closer and closer, until no bound exceeds the best sum.

    Many windows are at first bounded together, as one wide window, and split where the bound is largest.
    """
    most, proven, visits = int(rows.most.max()), 0, _VISITS
    apart = last - first < _APART
    cells: list[
        tuple[int, int, int, int]
    ] = []  # minus the bound, windows after the first, first and last window

    def split(bound: int, a: int, b: int, parts: int) -> None:
        ends = sorted({int(t) for t in np.linspace(a, b, parts)})
        for t, after in zip(ends, [*ends[1:], b + 1], strict=True):
            heapq.heappush(cells, (bound, 0, t, t))
            if t + 1 < after:
                heapq.heappush(cells, (bound, after - t - 2, t + 1, after - 1))

    split(-int(rows.most.sum()), first, last, _APART if apart else 3)
    guesses = _guesses(rows, first, last, more) if len(rows) > LARGE and apart else {}
    if guesses:  # the window with the largest bound in a sample is the first
        cells.sort(key=lambda cell: -guesses[cell[2]][1])
        guesses.pop(cells[0][2])
        cells[0] = (cells[0][0] - 1, *cells[0][1:])
    priced: dict[tuple[int, int], tuple[Window, float] | None] = {}
    while cells and -cells[0][0] > best.sum() and visits > 0:
        bound, size, a, b = heapq.heappop(cells)
        found, limit, visits = None, -bound, visits - 1
        if (a, b) not in priced:
            window = rows.window(a, min(b + more, most))
            if a in guesses:
                price, _ = guesses.pop(a)
            else:
                price, chosen = find_price(window.epochs, window.caps, rows.demand)
                priced[a, b], found = (window, price), window.epochs[chosen, np.arange(len(rows))]
            limit = min(limit, floor(bound_at(window, rows.demand, price)))
        elif (look := priced[a, b]) is not None:
            window, price = look
            if len(rows) <= _FEW or (not size and limit > best.sum() * (1 + _CLOSE)):
                found, limit = Search(rows, window, price, int(best.sum())).result()
                visits -= _SEARCH * (1 + len(rows) // 32)
            limit, priced[a, b] = min(limit, -bound), None
            if not size:
                proven, limit = max(proven, limit), 0
        else:
            split(bound, a, b, 3)
            limit = 0
        if limit > best.sum():
            heapq.heappush(cells, (-limit, size, a, b))
        if found is not None and int(np.ptp(found)) <= more:
            found = rows.filled(found, int(found.min()) + more)
            best = found if found.sum() > best.sum() else best
    return Best(best, max(proven, int(best.sum()), -cells[0][0] if cells else 0))


def _guesses(rows: Rows, first: int, last: int, more: int) -> dict[int, tuple[float, float]]:
    """Return a price and the bound at it for every window, from a sample of the learners."""
    some = sample(len(rows))
    few = Rows(rows.capacities.take(some), rows.demand * len(some) // len(rows))
    found = {}
    for t in range(first, last + 1):
        window = few.window(t, min(t + more, int(rows.most.max())))
        price, _ = find_price(window.epochs, window.caps, few.demand)
        found[t] = price, bound_at(window, few.demand, price)
    return found


def synchronous(capacities: Capacities, demand: int) -> int:
    """Return the largest tau with which all learners together carry the demand; 1 must do."""
    low, high = 1, int(capacities.most_epochs.min())
    if (high - low + 1) * len(capacities) <= LARGE:  # one table costs less than the steps of a bisection
        carried = capacities.table(low, high).sum(axis=1) >= demand
        return int(np.count_nonzero(carried)) or low
    if len(capacities) > LARGE:  # a sample is nearly right; enclose the answer around it
        few = capacities.take(sample(len(capacities)))
        share, step = demand * len(few) / len(capacities), 1
        guess = largest(low, high, lambda tau: bool(few.relaxed(tau).sum() >= share))
        while low < high and step <= 8:
            probe = min(max(guess, low + 1), high)
            if capacities.at(probe).sum() >= demand:
                low, guess = probe, probe + step
            else:
                high, guess = probe - 1, probe - step
            step *= 2
    return largest(low, high, lambda tau: bool(capacities.at(tau).sum() >= demand))


def all_windows(table: IntArray, demand: int, windows: int) -> tuple[IntArray, int]:
    """Go through all rows of all windows; of equal sums the largest capacity wins.

    Returns rows of the table, and their sum, which is the optimum.
    """
    learners, width = table.shape[1], len(table) - windows + 1
    span = learners * (width - 1) + 1
    # caps[r, w, k]: what learner k carries in row r of window w. Floats, for minus infinity; sums are exact.
    caps = np.where(table > 0, table, -np.inf)[np.add.outer(np.arange(width), np.arange(windows))]
    # carried[k, w, width - 1 + s]: the most that the first k learners carry when their rows sum to s.
    carried = np.full((learners + 1, windows, width - 1 + span), -np.inf)
    carried[0, :, width - 1] = 0.0
    # before[k, r, w, s] = carried[k, w, width - 1 + s - r]
    before = sliding_window_view(carried, width, axis=2)[..., ::-1].transpose(0, 3, 1, 2)
    after, upto = carried[1:, :, width - 1 :], 1
    for so_far, own, now in zip(before, caps.transpose(2, 0, 1)[..., None], after, strict=False):
        upto += width - 1
        np.maximum.reduce(so_far[..., :upto] + own, axis=0, out=now[:, :upto])
    reached = carried[-1, :, width - 1 :]
    sums = np.arange(span) + learners * np.arange(windows)[:, None]
    value = np.where(reached >= demand, sums, -1)
    best = int(value.max())
    ties = np.where(value == best, reached, -1.0)
    window = windows - 1 - int(ties.max(axis=1)[::-1].argmax())  # of equals the last one
    rows = _trace(carried[:, window], caps[:, window], best - learners * window)
    return window + rows, best


def _trace(carried: FloatArray, caps: FloatArray, total: int) -> IntArray:
    """Walk back through the programme of one window and return the rows that led to a sum."""
    width, learners = caps.shape
    states, options = carried.tolist(), caps.T.tolist()
    rows, at = [0] * learners, width - 1 + total
    for k in range(learners - 1, -1, -1):
        reached, earlier, own, r = states[k + 1][at], states[k], options[k], 0
        while earlier[at - r] + own[r] != reached:
            r += 1
        rows[k], at = r, at - r
    return np.array(rows, dtype=np.int64)


def best_few(capacities: Capacities, demand: int, staleness: int, seats: int) -> tuple[IntArray, Best]:
    """Find the largest sum of epochs when only so many learners may take part; also return which.

    Window after window, by a dynamic programme over (participants, sum of rows) -> largest capacity. Between
    two learners' most epochs the same learners can take part, and a later window allows no fewer epochs. So
    of each such stretch only the latest window is open, and the one that allows most is the next.
    """
    most = capacities.most_epochs
    best, members = Best(np.zeros(0, dtype=np.int64), 0), np.zeros(0, dtype=np.int64)
    top = int(most.max())
    last = largest(1, top, lambda t: _strongest(capacities.at(t), most >= t, seats) >= demand)
    width = min(staleness, top - 1) + 1
    if len(most) * width * width * seats * seats > _MOST_STEPS:
        strong = np.sort(np.argsort(capacities.at(1), kind="stable")[-seats:])
        found = best_epochs(capacities.take(strong), demand, staleness)
        return strong, Best(found.epochs, int(np.sort(most)[-seats:].sum()))

    def allowed(first: int) -> int:
        return _strongest(np.minimum(most, first + staleness), most >= first, seats)

    stretches = np.unique(np.minimum(most, last)).tolist()
    open_ = [(-allowed(end), end, start) for start, end in pairwise([0, *stretches])]
    heapq.heapify(open_)
    while open_ and -open_[0][0] > best.sum_epochs:
        _, first, start = open_[0]
        rows = _few_rows(capacities, demand, first, min(first + staleness, top), seats)
        if int(np.where(rows >= 0, rows + first, 0).sum()) > best.sum_epochs:
            members = np.flatnonzero(rows >= 0)
            best = Best(first + rows[members], 0)
        if first - 1 > start:
            heapq.heapreplace(open_, (-allowed(first - 1), first - 1, start))
        else:
            heapq.heappop(open_)
    return members, Best(best.epochs, best.sum_epochs)


def _strongest(values: IntArray, able: npt.NDArray[np.bool_], seats: int) -> int:
    """Return the sum of the largest values of so many learners that are able."""
    return int(np.sort(np.where(able, values, 0))[-seats:].sum())


def _few_rows(capacities: Capacities, demand: int, first: int, end: int, seats: int) -> IntArray:
    """Return the best rows of the window from `first` to `end`, -1 for learners left out."""
    caps = np.minimum(capacities.table(first, end), demand)
    width, learners = caps.shape
    reach = np.minimum(capacities.most_epochs - first, width - 1)
    carried = np.full((learners + 1, seats + 1, seats * (width - 1) + 1), -np.inf)
    carried[0, 0, 0] = 0.0
    for k in range(learners):
        before, after = carried[k], carried[k + 1]
        after[:] = before
        for r in range(int(reach[k]) + 1):
            ways = before[:-1, : before.shape[1] - r] + float(caps[r, k])
            np.maximum(after[1:, r:], ways, out=after[1:, r:])
    count, total = np.indices(carried[-1].shape)
    value = np.where(carried[-1] >= demand, count * first + total, -1)
    n, s = (int(i) for i in np.unravel_index(value.argmax(), value.shape))
    rows = np.full(learners, -1, dtype=np.int64)
    for k in range(learners - 1, -1, -1) if value[n, s] > 0 else ():
        if carried[k, n, s] != carried[k + 1, n, s]:
            own = [r for r in range(int(reach[k]) + 1) if r <= s]
            rows[k] = next(r for r in own if carried[k, n - 1, s - r] + caps[r, k] == carried[k + 1, n, s])
            n, s = n - 1, s - int(rows[k])
    return rows
