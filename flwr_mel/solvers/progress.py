"""The second objective: progress S = sum_k tau_k d_k^2 / d, with proof.

A learner passes tau_k d_k samples and counts d_k / d in the average, so S is the progress of the averaged
model as far as it follows from samples passed. Only sum_k tau_k d_k^2 is computed here, in integers.

Fix a window [t, t + c]. With batch d learner k does the most epochs of the window that still fit, so its
value is tau d^2 between two neighbouring capacities: convex. Of two learners strictly inside such intervals
one could give samples to the other and win. So in an optimum all but one sit at the end of an interval, and
the one takes what is left: a multiple-choice knapsack in samples with one free learner.

* `_price` bounds a window by its Lagrangian, evaluated in integers: any price gives a proof.
* `_polish` turns the prices' choice into an allocation: exchange one option, free another learner.
* `_Closing` closes the gap exactly with a dynamic programme over sums of samples, once for every free
  learner, restricted to choices that the gap can still pay for.

Windows below the synchronous optimum allow larger batches, so all t count. Ranges of windows are bounded
together and split, best first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import log2
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import IntArray, complain
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.solution import weighted_squares
from flwr_mel.solvers.knapsack import WORST, total

#: Rows of a table that bounds a range of windows together.
_GRID = 48

#: Up to this many rows are counted one by one.
_FEW = 12

#: Learners among which options are exchanged.
_NEAR = 32

#: Windows, or ranges of them, looked at before the rest is left to its bound.
_VISITS = 600

#: Scores stay below this.
_LARGEST = 2**60

#: Entries the dynamic programmes of one call may write: a second or so.
WORK = 400_000_000


class Point(NamedTuple):
    """An allocation and its value sum_k tau_k d_k^2."""

    value: int
    epochs: IntArray
    samples: IntArray


@dataclass(frozen=True, slots=True)
class _Terms:
    """What all windows share. `scale` is the denominator of prices, `optional` allows to leave learners out."""

    demand: int
    staleness: int
    optional: bool
    least: int
    most: int
    scale: int
    lowest: int
    highest: int


@dataclass(frozen=True, slots=True, eq=False)
class _Window:
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
            rows = np.stack([_reach(self.caps[:, k], own) for k, own in zip(np.atleast_1d(learner), columns)], -1)
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


class _Priced(NamedTuple):
    """A window's bound on sum tau_k d_k^2, the price that proves it, and the options it picks."""

    bound: int
    price: int
    under: npt.NDArray[np.intp]
    over: npt.NDArray[np.intp]


def maximise(
    capacities: Capacities, demand: int, staleness: int, start: Point, *, optional: bool = False, work: int = WORK
) -> tuple[Point, int, int]:
    """Find the allocation with the largest sum_k tau_k d_k^2.

    Parameters
    ----------
    capacities : Capacities
        Learners that can all do one epoch.
    demand, staleness : int
        d and c.
    start : Point
        An allocation to improve on.
    optional : bool
        Whether learners may be left out.
    work : int
        Entries the dynamic programmes may write; beyond that the bound stays open.

    Returns
    -------
    best : Point
        Never worse than `start`.
    bound : int
        No allocation has a larger value.
    windows : int
        How many windows were closed by a dynamic programme.
    """
    most = capacities.most_epochs
    last = _last_window(capacities, demand, optional)
    # A window that reaches beyond everybody's epochs holds all later ones.
    last = min(last, max(1, int(most.max()) - staleness))
    terms = _terms(capacities, demand, staleness, min(last + staleness, int(most.max())), optional)
    best, open_, closed, visits = start, [0], 0, 0
    heap: list[tuple[int, int, int, int]] = []
    priced: dict[int, tuple[_Window, _Priced]] = {}

    def visit(low: int, high: int) -> None:
        nonlocal best, visits
        visits += 1
        window = _window(capacities, terms, low, high)
        found = _price(window, terms)
        if low == high:
            better = _polish(window, terms, found, best)
            best = better or best
            priced[low] = window, found
        heappush(heap, (-found.bound, -low, low, high))

    visit(1, last)
    while heap:
        top, _, low, high = heappop(heap)
        if -top <= best.value:
            break
        if visits > _VISITS:
            open_.append(-top)
            break
        if low < high:
            step = 1 if high - low < 8 else (high - low + 1) // 2
            for first in range(low, high + 1, step):
                visit(first, min(first + step - 1, high))
            continue
        closing = _Closing(*priced.pop(low), terms, best, work)
        closed += 1
        best, work = closing.run(), closing.work
        if not closing.complete:
            open_.append(-top)
    return best, max(best.value, *open_), closed


def _last_window(capacities: Capacities, demand: int, optional: bool) -> int:
    """Return the largest t with which those who can do t epochs carry the demand."""
    most = capacities.most_epochs
    low, high = 1, int(most.max() if optional else most.min())
    while low < high:
        middle = (low + high + 1) // 2
        enough = total(capacities.at(middle)[most >= middle]) >= demand
        low, high = (middle, high) if enough else (low, middle - 1)
    return low


def _terms(capacities: Capacities, demand: int, staleness: int, top: int, optional: bool) -> _Terms:
    others = 0 if optional else (len(capacities) - 1) * capacities.least
    most = min(demand - others, int(capacities.at(1).max()))
    if top * most * most > _LARGEST // 4:
        raise complain("total_samples", 'small enough that objective="progress" is exact in 64 bits', demand)
    # A steeper price than these changes nobody's choice; at very large d the lowest one is cut off.
    scale = min(max(_LARGEST // (top * most**3), 1), 1024)
    lowest = -min(scale * top * most * most, _LARGEST // most)
    highest = 2 * scale * top * most + 1
    return _Terms(demand, staleness, optional, capacities.least, most, scale, lowest, highest)


def _window(capacities: Capacities, terms: _Terms, low: int, high: int) -> _Window:
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
    return _Window(low, caps, batch, value, allowed)


def _price(window: _Window, terms: _Terms) -> _Priced:
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
    return _Priced(min(bound, other), low if other < bound else high, under, over)


def _polish(window: _Window, terms: _Terms, found: _Priced, best: Point) -> Point | None:
    """Make an allocation of the priced choice and exchange options while that helps; None if not better."""
    if found.bound <= best.value:
        return None
    everybody = np.arange(window.batch.shape[1])
    pick = found.under.copy()
    differ = np.flatnonzero(window.batch[found.over, everybody] > window.batch[pick, everybody])
    more = (window.batch[found.over, everybody] - window.batch[pick, everybody])[differ]
    room = terms.demand - total(window.batch[pick, everybody])
    up = differ[: int(np.searchsorted(np.cumsum(more), room, side="right"))]
    pick[up] = found.over[up]
    score = window.scores(terms.scale, found.price)
    loss = score.max(axis=0) - score
    second = np.partition(loss, 1, axis=0)[1] if len(loss) > 1 else loss[0]
    near = np.unique(np.concatenate([np.argsort(second, kind="stable")[:_NEAR], differ[: len(up) + 1][-2:]]))
    # What loses more than the gap cannot be part of anything better.
    worth = np.nonzero(loss[:, near] <= terms.scale * (found.bound + 1 - best.value))
    reach = best.value
    result: Point | None = None
    while step := _exchange(window, terms, pick, near, worth, reach):
        reach, changed, option, free, rest = step
        pick[changed] = option
        samples = window.batch[pick, everybody]
        samples[free] = rest
        epochs = np.where(samples > 0, window.epochs(everybody, samples), 0)
        result = Point(reach, epochs, samples)
    return result


def _exchange(
    window: _Window,
    terms: _Terms,
    pick: npt.NDArray[np.intp],
    near: npt.NDArray[np.intp],
    worth: tuple[npt.NDArray[np.intp], ...],
    reach: int,
) -> tuple[int, int, int, int, int] | None:
    """Find the best pair of one learner's new option and another, free one; None if not above `reach`."""
    everybody = np.arange(len(pick))
    batch, value = window.batch[pick, everybody], window.value[pick, everybody]
    option, changed = worth[0], near[worth[1]]
    moved = window.batch[option, changed] - batch[changed]
    gained = window.value[option, changed] - value[changed]
    rest = (terms.demand - total(batch) - moved)[:, None] + batch[near]
    epochs = window.epochs(near, rest)
    result = (total(value) + gained)[:, None] - value[near] + epochs * rest * rest
    result[(epochs < window.first) | (rest < terms.least) | (changed[:, None] == near)] = WORST
    at = np.unravel_index(int(result.argmax()), result.shape)
    if result[at] <= reach:
        return None
    return int(result[at]), int(changed[at[0]]), int(option[at[0]]), int(near[at[1]]), int(rest[at])


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """The least loss with which some learners take `first + i` samples, and how they came to it."""

    first: int
    loss: IntArray
    trail: tuple[tuple[int, int, IntArray | int], ...] = ()


@dataclass(slots=True, eq=False)
class _Closing:
    """The exact search of one window for something better than `best`.

    At the window's price every batch has a loss against the learner's best option, and an allocation better
    than the best so far can afford `budget` in sum. Choices above that are out; most learners are settled.
    """

    window: _Window
    priced: _Priced
    terms: _Terms
    best: Point
    work: int
    complete: bool = True
    budget: int = 0
    top: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    options: list[tuple[IntArray, IntArray]] = field(default_factory=list)

    def run(self) -> Point:
        """Search; afterwards `complete` says whether the window holds nothing better."""
        score = self.window.scores(self.terms.scale, self.priced.price)
        self.top = score.max(axis=0)
        self._update(self.best)
        for k, column in enumerate((self.top - score).T):
            kept = np.flatnonzero(column <= self.budget)
            batch, where = np.unique(self.window.batch[kept, k], return_inverse=True)
            loss = np.full(len(batch), self.budget, dtype=np.int64)
            np.minimum.at(loss, where, column[kept])
            self.options.append((batch, loss))
        open_ = [k for k, (batch, _) in enumerate(self.options) if len(batch) > 1]
        settled = [k for k, (batch, _) in enumerate(self.options) if len(batch) == 1]
        if not self._affordable(open_, len(settled)):
            self.complete = False
            return self.best
        some = self._extend(_Sums(0, np.zeros(1, dtype=np.int64)), settled)
        if settled:
            whole = self._extend(some, open_)
            for k in settled:
                self._free(k, whole, int(self.options[k][0][0]))
        if open_:
            self._descend(open_, some)
        return self.best

    def _update(self, best: Point) -> None:
        self.best = best
        bound = total(self.top) + self.priced.price * self.terms.demand
        self.budget = bound - self.terms.scale * (best.value + 1)

    def _affordable(self, open_: list[int], settled: int) -> bool:
        spread = sum(int(self.options[k][0][-1] - self.options[k][0][0]) for k in open_)
        choices = sum(len(self.options[k][0]) for k in open_)
        size = min(spread, self.terms.demand) + 1
        needed = int(size * (choices * (1 + log2(max(len(open_), 1))) + len(open_) + settled))
        if needed > self.work:
            return False
        self.work -= needed
        return True

    def _descend(self, members: list[int], sums: _Sums) -> None:
        """Let every member be the free learner once: halve, add one half, go on with the other."""
        if len(members) == 1:
            self._free(members[0], sums)
            return
        half = len(members) // 2
        for mine, others in ((members[:half], members[half:]), (members[half:], members[:half])):
            self._descend(mine, self._extend(sums, others))

    def _extend(self, sums: _Sums, members: Sequence[int]) -> _Sums:
        for k in members:
            sums = self._add(sums, k)
        return sums

    def _add(self, sums: _Sums, k: int) -> _Sums:
        batch, losses = self.options[k]
        low, n = int(batch[0]), len(sums.loss)
        if len(batch) == 1:
            return _Sums(sums.first + low, sums.loss + losses[0], (*sums.trail, (k, 0, low)))
        loss = np.full(n + int(batch[-1]) - low, self.budget + 1, dtype=np.int64)
        picks = np.zeros(len(loss), dtype=np.int32)
        for size, cost in zip(batch.tolist(), losses.tolist(), strict=True):
            part = slice(size - low, size - low + n)
            mine = sums.loss + cost
            better = mine < loss[part]
            np.copyto(loss[part], mine, where=better)
            np.copyto(picks[part], size, where=better)
        return self._cut(sums.first + low, loss, picks, k, sums.trail)

    def _cut(
        self, first: int, loss: IntArray, picks: IntArray, k: int, trail: tuple[tuple[int, int, IntArray | int], ...]
    ) -> _Sums:
        """Drop sums at both ends that are over budget or over d."""
        alive = np.flatnonzero(loss[: max(self.terms.demand - first + 1, 0)] <= self.budget)
        low, high = (int(alive[0]), int(alive[-1]) + 1) if len(alive) else (0, 0)
        first += low
        return _Sums(first, loss[low:high], (*trail, (k, first, picks[low:high])))

    def _free(self, k: int, sums: _Sums, own: int = 0) -> None:
        """Let learner k take what the others leave; `own` is its part of the sums, if it is in them."""
        at = np.flatnonzero(sums.loss <= self.budget)
        rest = self.terms.demand - (sums.first - own) - at
        fits = (rest >= self.terms.least) & (rest <= self.window.caps[0, k])
        at, rest = at[fits], rest[fits]
        if not len(at):
            return
        epochs = self.window.epochs(k, rest)
        price = self.terms.scale * epochs * rest * rest - self.priced.price * rest
        loss = sums.loss[at] + (self.top[k] - price)
        i = int(loss.argmin())
        if loss[i] <= self.budget:
            samples = self._trace(sums, sums.first + int(at[i]))
            samples[k] = rest[i]
            everybody = np.arange(len(samples))
            taus = np.where(samples > 0, self.window.epochs(everybody, samples), 0)
            self._update(Point(weighted_squares(taus, samples), taus, samples))

    def _trace(self, sums: _Sums, reached: int) -> IntArray:
        """Walk back from a sum to everybody's batch."""
        samples = np.zeros(self.window.batch.shape[1], dtype=np.int64)
        for k, first, picks in reversed(sums.trail):
            samples[k] = picks if isinstance(picks, int) else picks[reached - first]
            reached -= int(samples[k])
        return samples

