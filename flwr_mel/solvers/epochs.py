"""The paper's objective: the largest sum of epochs, with proof.

Why c + 1 windows are enough (the paper calls the problem NP-hard). Let s be the synchronous optimum, the
largest tau with sum_k cap_k(tau) >= d. Every allocation lies in a window [t, t + c]. If t > s, not even
everybody at t carries d. If t < s - c, everybody at s is better. So t is one of c + 1 numbers, and inside
a window the values are the integers 0..c: a knapsack that a dynamic programme over their sum solves exactly.

Narrow windows are searched row by row: every row is an option, nobody needs to be free. Wide ones are
searched by the ends of convex pieces (`flwr_mel.solvers.ends`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flwr_mel._validate import IntArray
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.solvers.ends import Wide, search_wide
from flwr_mel.solvers.options import (
    LARGE,
    Index,
    Options,
    Price,
    Ranked,
    Relaxed,
    bound_at,
    ranked,
    relax,
    sample,
    sliding,
    total,
)
from flwr_mel.solvers.sums import Programme, Sums
from flwr_mel.solvers.windows import Node, Together, best_first, synchronous, useful_table

#: From this staleness on windows are searched by their ends; in large fleets from this share of the learners
#: on; and what those leave open row by row, up to that many rows of all learners.
WIDE, _SHARE, _AFFORDABLE = 24, 1 / 4, 5_000

#: Learners left open when there are too many for all of them.
_FEW = 256


@dataclass(frozen=True, slots=True, eq=False)
class Best:
    """Epochs and capacities of members, with a proven bound on their sum of epochs."""

    members: Index
    epochs: IntArray
    capacity: IntArray
    bound: int

    @property
    def sum_epochs(self) -> int:
        """The objective, times K."""
        return total(self.epochs)


def rows_of(capacities: Capacities, first: int, last: int, demand: int) -> Options:
    """Return the rows of epochs `first` to `last` as options: values count from `first`."""
    table = useful_table(capacities, first, last, demand)
    row = np.arange(len(table), dtype=np.int64)[:, None]
    return Options(
        np.negative(table, out=table), row, row <= capacities.most_epochs - first, demand, len(row)
    )


def upper_bounds(options: Options, width: int, price: Price, demand: int, windows: int) -> list[int]:
    """Bound the sum of rows of every window of a table by one price.

    Windows have `width` rows, begin at the first `windows` rows, and are cut off by the table's end.
    """
    sums = [0] * windows
    for _, part in options.blocks():
        best = sliding(part.scores(price), width)
        sums = [so_far + total(row) for so_far, row in zip(sums, best, strict=False)]
    return [bound_at(score, price, -demand) for score in sums]


@dataclass(slots=True)
class Search:
    """The search through the windows, for one demand."""

    demand: int
    core: int
    windows: int = 0

    def best(
        self, capacities: Capacities, staleness: int, members: Index, at_least: int = 0
    ) -> tuple[Best | None, int]:
        """Find the best allocation in which all these learners take part; None if below `at_least`.

        Also return what is then proven: no allocation of theirs has a larger sum of epochs.
        """
        sync = synchronous(capacities, self.demand)
        if staleness < max(WIDE, _SHARE * len(capacities)):
            return self.by_rows(capacities, staleness, members, at_least, sync)
        known = max(sync * len(capacities), at_least - 1)
        found = search_wide(capacities, self.demand, staleness, sync, known)
        self.windows += found.windows
        epochs = np.full(len(capacities), sync) if found.epochs is None else found.epochs
        if found.bound > total(epochs) >= at_least - 1 and staleness * len(capacities) <= _AFFORDABLE:
            # What the floors leave open, usually nothing.
            better, bound = self.by_rows(capacities, staleness, members, total(epochs) + 1, sync)
            if better is not None:
                return better, bound
            found = Wide(found.epochs, max(min(bound, found.bound), total(epochs)), 0)
        if total(epochs) < at_least:
            return None, found.bound
        room = np.minimum(capacities.at(epochs), self.demand)
        return Best(members, epochs, room, found.bound), found.bound

    def by_rows(
        self, capacities: Capacities, staleness: int, members: Index, at_least: int, sync: int
    ) -> tuple[Best | None, int]:
        """Search the windows row by row: quick where they are narrow, complete wherever it is affordable."""
        first = max(1, sync - staleness)
        last = min(sync + staleness, int(capacities.most_epochs.max()))
        table = rows_of(capacities, first, last, self.demand)
        base = first * len(capacities)  # values count from `first`, so sums and bounds count from here
        windows = _Rows(self, table, staleness + 1, sync - first + 1, max(at_least - base, 0))
        proven = base + windows.run()
        if windows.found is None:
            return None, proven
        rows = windows.found
        mine = Best(members, first + rows, -table.amount[rows, np.arange(len(rows))], 0)
        proven = max(proven, mine.sum_epochs)
        return Best(members, mine.epochs, mine.capacity, proven), proven


class _Rows(Together):
    """The windows of one table of rows: bounds, the best rows found, and what to beat."""

    def __init__(self, search: Search, table: Options, width: int, windows: int, goal: int) -> None:
        demand = search.demand

        def at_price(price: Price) -> dict[int, int]:
            return dict(enumerate(upper_bounds(table, width, price, demand, windows)))

        super().__init__(dict.fromkeys(range(windows), (len(table.amount) - 1) * table.learners), at_price)
        self.search, self.table, self.width, self.goal = search, table, width, goal
        self.found: IntArray | None = None
        self.capacity = 0

    def run(self) -> int:
        """Visit windows while they can do better, or as well with more to spare; return the bound."""
        promise = self._scout()
        start = max(promise, key=lambda w: promise[w]) if promise else len(self.bounds) - 1
        self._visit(start)
        others = [Node(b, w, w) for w, b in self.bounds.items() if w != start]
        # Beyond the core ties are left alone.
        tie = self.table.learners <= self.search.core
        best_first(others, self._expand, lambda: self.goal - tie, 2**31)
        return max(self.bounds.values())

    def _expand(self, node: Node) -> list[Node]:
        again = self.lowered(node)
        if again is None:
            self._visit(node.low)
        return [] if again is None else [again]

    def _scout(self) -> dict[int, int]:
        """Look at a sample of a large fleet: what windows promise, and prices that bound them well.

        The sample says where to begin, and its prices dismiss windows at a fraction of a visit's cost.
        """
        learners = self.table.learners
        if learners <= LARGE or len(self.bounds) == 1:
            return {}
        few = sample(learners)
        part, share, promise = self.table.take(few), self.search.demand * len(few) // learners, {}
        for window in self.bounds:
            if -total(part.amount[window]) >= share:
                price = relax(part.rows(slice(window, window + self.width)), -share).price
                promise[window] = upper_bounds(part, self.width, price, share, len(self.bounds))[window]
                self.prices[window] = price
        return promise

    def _visit(self, window: int) -> None:
        """Relax a window, bound all by its price, and search it."""
        self.search.windows += 1
        self.prices.pop(window, None)
        part = self.table.rows(slice(window, window + self.width))
        relaxed = relax(part, -self.search.demand)
        self.tighten(relaxed.price)
        rows, self.bounds[window] = self._inside(part, relaxed, window)
        if rows is None:
            return
        # Of equal sums the one with more capacity.
        capacity, reached = -total(self.table.amount[rows, np.arange(len(rows))]), total(rows)
        if self.found is None or (reached, capacity) > (self.goal, self.capacity):
            self.found, self.goal, self.capacity = rows, reached, capacity

    def _inside(self, part: Options, relaxed: Relaxed, window: int) -> tuple[IntArray | None, int]:
        """Find the best rows of one window from the goal up, and what is then proven about the window."""
        bound, goal = self.bounds[window], self.goal
        rough = relaxed.pick + window
        reached = total(rough)
        if relaxed.broken is None:
            return (rough if reached >= goal else None), reached
        # Mostly the bound itself is met. Where it is not, ask for less in growing steps: a complete search
        # returns the best sum from its target up, so no sum is passed over.
        floor, target, step = max(goal, reached), bound, 1
        order = ranked(part, relaxed.price)
        while target >= floor:
            rows, complete = _improve(
                part, relaxed.price, order, self.search.demand, target, self.search.core
            )
            if rows is not None:
                return rows + window, total(rows + window) if complete else bound
            if complete:
                bound = target - 1
            elif target == reached + 1:
                break
            if target == floor:
                break
            target, step = max(target - step, floor), 2 * step
        return (rough if reached >= goal else None), bound


def _improve(
    options: Options, price: Price, order: Ranked, demand: int, target: int, core: int
) -> tuple[IntArray | None, bool]:
    """Search for rows whose values sum to at least `target`; also say whether no choice was left out.

    A selection that reaches the target can afford losses of ``q * (bound - target)`` in sum. Most learners
    have one option within that; the others go through the programme, at most `core` of them. With more the
    search is not complete, and a few hundred with the smallest losses are tried: in a large fleet they nearly
    always suffice. The least loss at the reached sum is the most spare capacity.
    """
    pick, best, second = order
    bound = total(best) - price.p * demand  # times q
    budget = bound - price.q * target
    if budget < 0:
        return None, True
    open_ = np.flatnonzero(second <= budget)
    complete = len(open_) <= core
    if not complete and len(open_) > _FEW:
        open_ = open_[np.argpartition(second[open_], _FEW)[:_FEW]]
    open_ = open_[np.argsort(second[open_], kind="stable")]
    losses = best[open_] - options.take(open_).scores(price)
    value = options.value[:, 0]
    kept = [(column <= budget).nonzero()[0] for column in losses.T]
    programme = Programme(
        [value[rows] for rows in kept], [c[rows] for c, rows in zip(losses.T, kept, strict=True)], budget
    )
    settled = total(value[pick]) - total(value[pick[open_]])
    sums = programme.add_all(Sums(np.array([settled]), np.zeros(1, dtype=np.int64)), range(len(open_)))
    good = np.flatnonzero((sums.at >= target) & (sums.loss <= bound - price.q * sums.at))
    if not len(good):
        return None, complete
    taken = programme.trace(sums, int(sums.at[good[-1]]), np.zeros(len(open_), dtype=np.int64))
    rows = pick.copy()
    rows[open_] = taken - value[0]
    return rows, complete
