"""The search through the windows of epochs, for allocations in which given learners all take part.

Why c + 1 windows are enough (the paper calls the problem NP-hard). Let s be the synchronous optimum, the
largest tau with sum_k cap_k(tau) >= d. Every allocation lies in a window [t, t + c]. If t > s, not even
everybody at t carries d. If t < s - c, everybody at s is better. So t is one of c + 1 numbers, and inside
a window the values are the integers 0..c: a knapsack that a dynamic programme solves exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import IntArray, complain
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.solvers.knapsack import Price, Relaxed, improve, relax, total, upper_bounds

#: Entries (learners times epochs) a table of capacities may have: 1.6 GB.
_LARGEST_TABLE = 200_000_000

#: Epochs times samples within one learner's window: the scores of `knapsack` stay within int64.
_LARGEST_SCORE = 2**59

#: From here on a look at a sample of the fleet pays before a look at all of it.
_LARGE = 20_000


@dataclass(frozen=True, slots=True, eq=False)
class Best:
    """Epochs and capacities of members, with a proven bound on their sum of epochs."""

    members: npt.NDArray[np.intp]
    epochs: IntArray
    capacity: IntArray
    bound: int

    @property
    def sum_epochs(self) -> int:
        """The objective, times K."""
        return total(self.epochs)

    @property
    def rank(self) -> tuple[int, int]:
        """What is compared: epochs, then spare capacity."""
        return self.sum_epochs, total(self.capacity)


@dataclass(slots=True)
class Search:
    """The search through the windows, for one demand."""

    demand: int
    core: int
    windows: int = 0

    def best(
        self,
        capacities: Capacities,
        staleness: int,
        members: npt.NDArray[np.intp],
        at_least: int = 0,
    ) -> Best | None:
        """Find the best allocation in which all these learners take part; None if below `at_least`."""
        most = capacities.most_epochs
        sync = synchronous(capacities, self.demand)
        first, last = max(1, sync - staleness), min(sync + staleness, int(most.max()))
        table = useful_table(capacities, first, last, self.demand)
        allowed = np.arange(first, last + 1)[:, None] <= most
        base = first * len(capacities)  # rows count from `first`, so sums and bounds count from here
        goal, found = max(at_least - base, 0), None
        bounds = [(len(table) - 1) * len(capacities)] * (sync - first + 1)
        scouted = self._scout(table, most - first, staleness, len(bounds))
        todo = set(range(len(bounds)))
        window = max(scouted, key=lambda w: scouted[w][0]) if scouted else len(bounds) - 1
        while True:
            todo.discard(window)
            scouted.pop(window, None)
            self.windows += 1
            part = slice(window, window + staleness + 1)
            relaxed = _relax_window(table, most - first, staleness, window, self.demand)
            bounds = self._tighten(bounds, table, allowed, staleness, relaxed.price)
            rows, bounds[window] = self._inside(
                table[part], allowed[part], relaxed, window, bounds[window], goal
            )
            if rows is not None:
                rows = rows + window
                here = Best(members, first + rows, table[rows, np.arange(len(rows))], 0)
                if found is None or here.rank > found.rank:
                    found, goal = here, total(rows)
            # A window is worth a visit if it can do better, or as well with more capacity to spare.
            # Beyond the core ties are left alone.
            enough = goal + (len(capacities) > self.core)
            while todo := {w for w in todo if bounds[w] >= enough}:
                window = max(todo, key=lambda w: (bounds[w], w))
                if window not in scouted:
                    break
                bounds = self._tighten(bounds, table, allowed, staleness, scouted.pop(window)[1])
            if not todo:
                break
        if found is None:
            return None
        return Best(members, found.epochs, found.capacity, max(base + max(bounds), found.sum_epochs))

    def _tighten(
        self,
        bounds: list[int],
        table: IntArray,
        allowed: npt.NDArray[np.bool_],
        staleness: int,
        price: Price,
    ) -> list[int]:
        """Lower the bounds of all windows by what a price proves."""
        fresh = upper_bounds(table, allowed, staleness + 1, price, self.demand, len(bounds))
        return [min(pair) for pair in zip(bounds, fresh, strict=True)]

    def _scout(
        self, table: IntArray, top: IntArray, staleness: int, windows: int
    ) -> dict[int, tuple[int, Price]]:
        """Look at a sample of a large fleet: per window its promise, and a price that bounds it well.

        The sample says where to begin, and its prices dismiss windows at a fraction of a visit's cost.
        """
        learners = table.shape[1]
        if learners <= _LARGE or windows == 1:
            return {}
        few = _sample(learners)
        table, top, share = table[:, few], top[few], self.demand * len(few) // learners
        allowed = np.arange(len(table))[:, None] <= top
        scouted = {}
        for window in range(windows):
            if total(table[window]) >= share:
                price = _relax_window(table, top, staleness, window, share).price
                promise = upper_bounds(table, allowed, staleness + 1, price, share, windows)[window]
                scouted[window] = (promise, price)
        return scouted

    def _inside(
        self,
        caps: IntArray,
        allowed: npt.NDArray[np.bool_],
        relaxed: Relaxed,
        offset: int,
        bound: int,
        goal: int,
    ) -> tuple[IntArray | None, int]:
        """Find the best rows of one window from `goal` up, and what is then proven about the window.

        Sums and bounds are counted from the table's first row, which lies `offset` rows per learner
        below the window's.
        """
        below = offset * caps.shape[1]
        rough = total(relaxed.rows) + below
        if relaxed.price.p == 0:
            return (relaxed.rows if rough >= goal else None), rough
        # Mostly the bound itself is met. Where it is not, ask for less in growing steps: a complete search
        # returns the best sum from its target up, so no sum is passed over.
        floor, target, step = max(goal, rough), bound, 1
        while target >= floor:
            found = improve(caps, allowed, relaxed.price, self.demand, target - below, self.core)
            if found.rows is not None:
                return found.rows, total(found.rows) + below if found.complete else bound
            if found.complete:
                bound = target - 1
            elif target == rough + 1:
                break
            if target == floor:
                break
            target, step = max(target - step, floor), 2 * step
        return (relaxed.rows if rough >= goal else None), bound


def _relax_window(table: IntArray, top: IntArray, staleness: int, window: int, demand: int) -> Relaxed:
    """Solve the relaxation of one window of a table; `top` is each learner's highest row in it."""
    part = table[window : window + staleness + 1]
    return relax(part, np.minimum(top - window, len(part) - 1), demand)


def _sample(learners: int) -> npt.NDArray[np.intp]:
    """Pick learners evenly from a large fleet, always the same ones."""
    return np.linspace(0, learners - 1, _LARGE // 4).astype(np.intp)


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
    if width * len(capacities) > _LARGEST_TABLE or width * demand > _LARGEST_SCORE:
        rule = "small enough for a table of learners times epochs"
        raise complain("staleness", rule, last - first, "Lower it, or set max_epochs.")
    table = capacities.table(first, last)
    np.minimum(table, demand, out=table)
    return table


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

    # A sample of a large fleet tells nearly where the answer is; two or three looks settle it.
    if len(capacities) > _LARGE:
        few = capacities.take(_sample(len(capacities)))
        share = demand * len(few) / len(capacities)
        guess = bisect(low, high, lambda tau: bool(few.relaxed(tau).sum() >= share))
        step = 1
        while low < high:
            probe = min(max(guess, low + 1), high)
            if enough(probe):
                low, guess = probe, probe + step
            else:
                high, guess = probe - 1, probe - step
            step *= 2
            if step > 8:
                break
    return bisect(low, high, enough)


def bisect(low: int, high: int, works: Callable[[int], bool]) -> int:
    """Return the largest integer in [low, high] that works, given that `low` does."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if works(middle) else (low, middle - 1)
    return low
