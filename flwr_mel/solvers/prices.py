"""The largest sum of rows in windows of a table of capacities, for large fleets and wide windows.

Let a sample be worth some share of a row, its price. At that price every learner has a best row. The sum of
their scores, less the price of the demand, bounds the sum of rows of every selection that carries the demand
(weak duality), and the smallest price at which the best rows carry it gives the bound of the linear
relaxation. Only rows that lose little against the best one can be part of something better than what is
known: a dynamic programme goes through these. What remains open is what the bound says.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from typing import NamedTuple

import numpy as np

from flwr_mel._validate import FloatArray, IntArray
from flwr_mel.allocation.bisection import enclose

#: From this many learners on a sample of them shows where the price is.
LARGE = 4096
#: In tables: a row that the learner cannot reach.
NEVER = -1
#: How many learners the search inside a window leaves open, one after the other, and steps spent on it.
_CORES, _STEPS = (48, 256, 2000), 30_000_000
#: Rows of a window from which on its last step is worth a closer look, its price comes from a few rows of
#: each learner, and it is not searched.
_WIDE, _WIDER, _WIDEST = 24, 256, 4096
#: How many times windows are looked at, at least, and how many of their entries.
_VISITS, _ENTRIES = 20, 20_000_000
#: Entries of a table looked at in one go: what fits into a processor's cache.
_BLOCK = 65_536


def by_price(table: IntArray, demand: int, windows: int) -> tuple[IntArray, int]:
    """Look at the window with the largest bound, closer and closer, until no bound exceeds the best sum.

    First at a price that a sample of a large fleet suggests, then at its own price, then inside. Returns rows
    of the table, and a bound on their sum.
    """
    learners, width = table.shape[1], len(table) - windows + 1
    bounds = np.full(windows, (len(table) - 1) * learners, dtype=np.int64)
    best = np.full(learners, windows - 1, dtype=np.int64)  # the last window's first row carries the demand
    guesses = _guesses(table, demand, windows) if windows > 1 and learners > LARGE else {}
    window = max(guesses, key=lambda w: guesses[w][1]) if guesses else windows - 1
    guesses.pop(window, None)
    priced: dict[int, tuple[float, IntArray]] = {}
    open_ = 0  # the bound of windows that are too much work
    visits = max(_ENTRIES // (width * learners), _VISITS)
    while bounds[window] > best.sum():
        visits -= 1
        part, offset = table[window : window + width], window * learners
        if window in guesses:
            bound = bounds_at(part, demand, 1, guesses.pop(window)[0])[0] + offset
            bounds[window] = min(bounds[window], bound)
        elif window not in priced:
            price, rows = priced[window] = find_price(part, demand)
            np.minimum(bounds, bounds_at(table, demand, windows, price), out=bounds)
            if width > _WIDE:
                rows = use_spare(part, demand, rows.copy())
            best = rows + window if rows.sum() + offset > best.sum() else best
        else:
            bound, goal = int(bounds[window]) - offset, int(best.sum()) - offset
            if not open_ and width <= _WIDEST:
                found, bound = _in_window(part, demand, priced[window][0], bound, goal)
                best = best if found is None else found + window
            open_ = max(open_, bound + offset) if bound + offset > best.sum() else open_
            bounds[window] = min(bound + offset, int(best.sum()))
        if not visits:
            break
        window = int(bounds.argmax())
    return best, max(int(bounds.max()), int(best.sum()), open_)


def linear_bound(table: IntArray, demand: int, windows: int) -> int:
    """Bound the sum of rows by prices alone: the linear relaxation of every window."""
    width, window, done = len(table) - windows + 1, windows - 1, set[int]()
    bounds = np.full(windows, (len(table) - 1) * table.shape[1], dtype=np.int64)
    while window not in done:
        done.add(window)
        price, _ = find_price(table[window : window + width], demand)
        np.minimum(bounds, bounds_at(table, demand, windows, price), out=bounds)
        window = int(bounds.argmax())
    return int(bounds.max())


def _guesses(table: IntArray, demand: int, windows: int) -> dict[int, tuple[float, int]]:
    """Return a price and the bound at it for every window, from a sample of the learners."""
    few, width = table[:, sample(table.shape[1])], len(table) - windows + 1
    share, found = demand * few.shape[1] // table.shape[1], {}
    for w in range(windows):
        if few[w].sum() >= share:
            price, _ = find_price(few[w : w + width], share)
            found[w] = price, int(bounds_at(few[w : w + width], share, 1, price)[0]) + w * few.shape[1]
    return found


def find_price(table: IntArray, demand: int) -> tuple[float, IntArray]:
    """Find the smallest price, nearly, at which the learners' best rows carry the demand, and these rows.

    The first row must carry it. No price above the number of rows is needed: a sample then counts more than
    all rows.
    """
    if table.shape[1] > LARGE:
        found = _enclosed(table, demand)
        if found is not None:
            return found
    rows, carried = best_rows(table, 0.0)
    if carried >= demand:
        return 0.0, rows
    if len(table) > _WIDER:
        price = _coarse_price(table, demand)
        rows, carried = best_rows(table, price)
        while carried < demand and price <= len(table):
            price *= 1.01
            rows, carried = best_rows(table, price)
        return price, rows if carried >= demand else np.zeros_like(rows)
    high = len(table) / max(float(table[0].mean()), 1.0)
    while (tried := best_rows(table, high))[1] < demand:
        if high > len(table):
            return high, np.zeros(table.shape[1], dtype=np.int64)
        high *= 4
    return _bisect(table, demand, 0.0, high, tried)


def _coarse_price(table: IntArray, demand: int) -> float:
    """Find the price as if learners had only a few rows, evenly from the first to the last in reach."""
    reach, columns = (table != NEVER).sum(axis=0) - 1, np.arange(table.shape[1])
    rows = np.rint(np.linspace(0, 1, 65)[:, None] * reach).astype(np.int64)
    caps = table[rows, columns]

    def enough(price: float) -> bool:
        pick = (rows + price * caps).argmax(axis=0)
        return int(caps[pick, columns].sum()) >= demand

    return enclose(0.0, float(len(table)), enough, lambda low, high: high - low <= 1e-9 * high)[1]


def _bisect(
    table: IntArray, demand: int, low: float, high: float, at_high: tuple[IntArray, int]
) -> tuple[float, IntArray]:
    """Close in on the price until its bound is right to a thousandth of a row, then use what is spare.

    Below the price some learners have higher rows. Those that lose least per row go first.
    """
    rows, carried = at_high

    def enough(price: float) -> bool:
        nonlocal rows, carried
        tried = best_rows(table, price)
        if tried[1] >= demand:
            rows, carried = tried
        return tried[1] >= demand

    def close(low: float, high: float) -> bool:
        return (high - low) * (carried - demand) <= 1e-3 or high - low <= 1e-14 * high

    low, high = enclose(low, high, enough, close)
    more = best_rows(table, low)[0]
    open_ = np.flatnonzero(more > rows)
    lost = table[rows[open_], open_] - table[more[open_], open_]
    order = np.argsort(lost / (more - rows)[open_], kind="stable")
    taken = open_[order[np.cumsum(lost[order]) <= carried - demand]]
    rows[taken] = more[taken]
    return high, rows


def use_spare(table: IntArray, demand: int, rows: IntArray) -> IntArray:
    """Raise learner after learner, the one that can rise most first, by what is carried beyond the demand."""
    columns = np.arange(len(rows))
    while True:
        carried = table[rows, columns]
        lowest = np.maximum(carried - (int(carried.sum()) - demand), 1)
        reach = (table >= lowest).sum(axis=0) - 1
        k = int((reach - rows).argmax())
        if reach[k] <= rows[k]:
            return rows
        rows[k] = reach[k]


def _enclosed(table: IntArray, demand: int) -> tuple[float, IntArray] | None:
    """Find the price of a large fleet between two that a sample suggests; None if they do not enclose it.

    Most learners have the same best row at both. Only the others are looked at again.
    """
    few = table[:, sample(table.shape[1])]
    share, n = demand * few.shape[1] // table.shape[1], few.shape[1]
    _, rows = find_price(few, share)
    spread = int(4 * few[rows, np.arange(n)].std() * sqrt(n))  # four standard deviations
    if few[0].sum() < share + spread:
        return None
    low, high = (find_price(few, share + shift)[0] for shift in (-spread, spread))
    (under, too_few), (over, enough) = (best_rows(table, price) for price in (low, high))
    if not too_few < demand <= enough:
        return None
    open_ = np.flatnonzero(under != over)
    part, settled = table[:, open_], enough - int(table[over[open_], open_].sum())
    price, over[open_] = _bisect(part, demand - settled, low, high, (over[open_], enough - settled))
    return price, over


def best_rows(table: IntArray, price: float) -> tuple[IntArray, int]:
    """Return every learner's best row at a price, and what they carry."""
    rows, carried = np.empty(table.shape[1], dtype=np.int64), 0
    for block, score in _scores(table, price):
        rows[block] = score.argmax(axis=0)
        carried += int(table[:, block][rows[block], np.arange(score.shape[1])].sum())
    return rows, carried


def bounds_at(table: IntArray, demand: int, windows: int, price: float) -> IntArray:
    """Bound the sum of rows of every window by one price: the sum of best scores, less the demand's."""
    sums, width = np.zeros(windows), len(table) - windows + 1
    for _, score in _scores(table, price):
        reach = 1  # score[r] is the best of the rows r to r + reach - 1
        while reach < width:
            step = min(reach, width - reach)
            np.maximum(score[:-step], score[step:], out=score[:-step])
            reach += step
        sums += score[:windows].sum(axis=1)
    return np.floor(sums - price * demand + _rounding(sums, price, demand)).astype(np.int64)


def _rounding(scores: FloatArray | float, price: float, demand: int) -> FloatArray | float:
    """Return more than what rounding can hide in a sum of scores."""
    return 1e-12 * (scores + price * demand) + 1e-9


def _scores(table: IntArray, price: float) -> Iterator[tuple[slice, FloatArray]]:
    """Yield rows plus the price of what they carry, for as many learners as fit into the cache."""
    size = max(_BLOCK // len(table), 1)
    row = np.arange(len(table), dtype=np.float64)[:, None]
    for at in range(0, table.shape[1], size):
        block = slice(at, at + size)
        score: FloatArray = price * table[:, block].astype(np.float64)
        score += row
        if table[-1, block].min() == NEVER:
            score[table[:, block] == NEVER] = -np.inf
        yield block, score


def _in_window(
    table: IntArray, demand: int, price: float, bound: int, goal: int
) -> tuple[IntArray | None, int]:
    """Find rows of one window that carry the demand with a sum above the goal, None if there are none.

    Also return what is then proven about the window. Mostly its bound is met, or nearly. So little less than
    that is asked for, then less in growing steps; a complete search finds the best sum from its target up.
    """
    columns = np.arange(table.shape[1])
    loss = np.concatenate([score.max(axis=0) - score for _, score in _scores(table, price)], axis=1)
    top = loss.argmin(axis=0)
    score = float((top + price * table[top, columns]).sum())
    limit = score - price * demand + float(_rounding(score, price, demand))
    loss[top, columns] = np.inf
    second = loss.min(axis=0)
    loss[top, columns] = 0.0
    near, target, step = _Near(table, demand, top, loss, second), bound, 1
    while target > goal:
        found, complete = near.search(limit - target, target, bound)
        if found is not None:
            return found, int(found.sum()) if complete else bound
        if complete:
            bound = target - 1
        if target == goal + 1:
            break
        target, step = max(target - step, goal + 1), 2 * step
    return None, bound


class _Near(NamedTuple):
    """Rows of one window, the best at a price, what the others lose against it, and the second best loses."""

    table: IntArray
    demand: int
    top: IntArray
    loss: FloatArray
    second: FloatArray

    def search(self, budget: float, target: int, bound: int) -> tuple[IntArray | None, bool]:
        """Search the rows whose loss is within the budget for a sum from the target to the bound.

        Also say whether no such row was left out. Learners that lose least are tried first: that is quick,
        and mostly enough.
        """
        open_, best = np.flatnonzero(self.second <= budget), None
        for core in _CORES:
            complete = len(open_) <= core
            some = open_ if complete else open_[np.argpartition(self.second[open_], core)[:core]]
            rows, affordable = self._programme(some, budget, target)
            complete = complete and affordable
            best = best if rows is None else rows
            if complete or not affordable or (rows is not None and int(rows.sum()) == bound):
                break
        return best, complete

    def _programme(self, open_: IntArray, budget: float, target: int) -> tuple[IntArray | None, bool]:
        """Return the best rows when only these learners have a choice; False: too many steps.

        As in `all_windows`: a dynamic programme over the sum of rows -> largest capacity.
        """
        table, top = self.table, self.top
        options = [np.flatnonzero(self.loss[:, k] <= budget).tolist() for k in open_]
        spans = [own[-1] - own[0] for own in options]
        if sum(map(len, options)) * sum(spans) > _STEPS:
            return None, False
        base = int(top.sum() - top[open_].sum()) + sum(own[0] for own in options)
        fixed = table[top, np.arange(len(top))].sum() - table[top[open_], open_].sum()
        states = [np.full(1, float(fixed))]
        for k, own, span in zip(open_, options, spans, strict=True):
            before, after = states[-1], np.full(len(states[-1]) + span, -np.inf)
            for r in own:
                here = after[r - own[0] : r - own[0] + len(before)]
                np.maximum(here, before + table[r, k], out=here)
            states.append(after)
        start = max(target - base, 0)
        good = np.flatnonzero(states[-1][start:] >= self.demand)
        if not len(good):
            return None, True
        rows, at = top.copy(), start + int(good[-1])
        for i in range(len(open_) - 1, -1, -1):
            k, own, before = open_[i], options[i], states[i]
            for r in own:
                rest = at - (r - own[0])
                if 0 <= rest < len(before) and before[rest] + table[r, k] == states[i + 1][at]:
                    break
            rows[k], at = r, rest
        return rows, True


def sample(learners: int) -> IntArray:
    """Pick learners evenly from a large fleet, always the same ones."""
    return np.linspace(0, learners - 1, LARGE // 2).astype(np.int64)
