"""Everybody's options in a window, and what a price proves about them.

Every learner picks an option, which has an amount and a value; the amounts may come to a demand in sum, and
the sum of values is maximised. An option is a batch, its amount the samples, and the demand d.

* `relax` solves the linear relaxation: a sort of the steps of everybody's concave hull by value per amount.
* The step that breaks has a price. By weak duality any price bounds the value, in integers (`bound_at`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import IntArray

Bools = npt.NDArray[np.bool_]
Index = npt.NDArray[np.intp]

#: Worse than any real score, and still far from overflow when added up.
WORST = -(2**61)

#: No score exceeds this.
LARGEST = 2**60

#: Entries of a table looked at in one go: what fits into a processor's cache.
_BLOCK = 65_536

#: From this many learners on a sample of them says where the price is.
LARGE = 4096


class Price(NamedTuple):
    """Value that one unit of amount is worth, as the fraction p / q."""

    p: int
    q: int

    def within(self, most: int, worth: int) -> Price:
        """Return a price near this one whose scores of such amounts and values stay within 64 bits."""
        p, q = self
        while q > 1 and max(q * worth, abs(p) * most) > LARGEST:
            p, q = p // 2, q // 2
        limit = LARGEST // max(most, 1)
        return Price(min(max(p, -limit), limit), q)


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """One column per learner, one row per option, amounts rising from row to row.

    Parameters
    ----------
    amount, value : int arrays
        Of the options; `value` may be one column for all learners.
    allowed : bool array
        Which options there are; at least one for everybody.
    most, worth : int
        No amount and no value is larger, nor their negatives.
    """

    amount: IntArray
    value: IntArray
    allowed: Bools
    most: int
    worth: int

    @property
    def learners(self) -> int:
        """How many there are."""
        return int(self.amount.shape[1])

    def take(self, which: Index | slice) -> Options:
        """Return the options of some learners only."""
        value = self.value if self.value.shape[1] != self.learners else self.value[:, which]
        return Options(self.amount[:, which], value, self.allowed[:, which], self.most, self.worth)

    def rows(self, which: slice) -> Options:
        """Return some rows only."""
        return Options(self.amount[which], self.value[which], self.allowed[which], self.most, self.worth)

    def scores(self, price: Price) -> IntArray:
        """Return q value - p amount of every option."""
        score = -price.p * self.amount
        score += price.q * self.value
        np.copyto(score, WORST, where=~self.allowed)
        return score

    def values(self, row: Index, learner: Index) -> IntArray:
        """Return the values of single options."""
        found: IntArray = self.value[row, learner if self.value.shape[1] == self.learners else 0]
        return found

    def blocks(self) -> Iterator[tuple[slice, Options]]:
        """Cut a fleet into parts whose tables fit into a processor's cache."""
        size = max(_BLOCK // len(self.amount), 1)
        if size >= self.learners:
            yield slice(None), self
            return
        for at in range(0, self.learners, size):
            block = slice(at, at + size)
            yield block, self.take(block)


class Relaxed(NamedTuple):
    """The relaxation's integer part: an option per learner, the price at which it broke off, and for whom."""

    pick: Index
    price: Price
    broken: int | None


class Chosen(NamedTuple):
    """Everybody's best option at a price, and the sums of their amounts and scores."""

    pick: Index
    amount: int
    score: int


def choose(options: Options, price: Price) -> Chosen:
    """Let everybody choose at a price; of equals the smallest amount."""
    price = price.within(options.most, options.worth)
    pick = np.empty(options.learners, dtype=np.intp)
    amount = score = 0
    for block, part in options.blocks():
        scores = part.scores(price)
        mine = scores.argmax(axis=0)
        everybody = np.arange(len(mine))
        pick[block] = mine
        amount += total(part.amount[mine, everybody])
        score += total(scores[mine, everybody])
    return Chosen(pick, amount, score)


class Ranked(NamedTuple):
    """Everybody's best option at a price, its score, and what the second best loses against it."""

    pick: Index
    best: IntArray
    loss: IntArray


def ranked(options: Options, price: Price) -> Ranked:
    """Find everybody's best option at a price, and how good the second best is."""
    pick = np.empty(options.learners, dtype=np.intp)
    best, loss = (np.empty(options.learners, dtype=np.int64) for _ in range(2))
    for block, part in options.blocks():
        score = part.scores(price)
        mine = score.argmax(axis=0)
        everybody = np.arange(len(mine))
        pick[block], best[block] = mine, score[mine, everybody]
        score[mine, everybody] = WORST
        loss[block] = best[block] - score.max(axis=0)
    return Ranked(pick, best, loss)


def bound_at(score: int, price: Price, demand: int) -> int:
    """Return what a sum of best scores proves: no choice within the demand has a larger value."""
    return (score + price.p * demand) // price.q


def relax(options: Options, demand: int) -> Relaxed:
    """Solve the linear relaxation: steps of the hulls by falling value per amount, until the demand is met.

    Parameters
    ----------
    options : Options
        Of all learners.
    demand : int
        What the amounts may come to; the smallest ones must do.
    """
    if options.learners > LARGE:
        found = _relax_large(options, demand)
        if found is not None:
            return found
    steps = _steps(options)
    return steps.taken(demand - total(options.amount[steps.row[steps.first], np.arange(len(steps.first))]))


def _relax_large(options: Options, demand: int) -> Relaxed | None:
    """Enclose the price by what a sample says: only few learners remain to be sorted; None: missed."""
    few = sample(options.learners)
    steps = _steps(options.take(few))
    room = demand * len(few) // options.learners - total(
        options.amount[steps.row[steps.first], few[np.arange(len(few))]]
    )
    middle = int(np.searchsorted(np.cumsum(steps.amount[steps.order]), room, side="right"))
    # Four standard deviations to either side.
    first, last = middle - 4 * isqrt(len(few)), middle + 4 * isqrt(len(few))
    if first < 0 or last >= len(steps.order):
        return None
    under, over = (choose(options, steps.price(int(steps.order[at]))) for at in (first, last))
    if not under.amount <= demand < over.amount:
        return None
    open_ = np.flatnonzero(under.pick != over.pick)
    low, high = under.pick[open_], over.pick[open_]
    part = options.take(open_)
    row = np.arange(len(part.amount))[:, None]
    between = Options(
        part.amount, part.value, part.allowed & (row >= low) & (row <= high), part.most, part.worth
    )
    rest = demand - under.amount + total(part.amount[low, np.arange(len(open_))])
    found = relax(between, rest)
    under.pick[open_] = found.pick
    broken = None if found.broken is None else int(open_[found.broken])
    return Relaxed(under.pick, found.price, broken)


def sample(learners: int) -> Index:
    """Pick learners evenly from a large fleet, always the same ones."""
    return np.linspace(0, learners - 1, LARGE // 2).astype(np.intp)


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """Vertices of everybody's hull, learner by learner, and the steps between them.

    Step i leads from vertex `start[i]` to the next one; `order` sorts steps by falling value per amount.
    """

    learner: Index
    row: Index
    first: Index
    start: Index
    amount: IntArray
    value: IntArray
    order: Index

    def price(self, step: int) -> Price:
        """Return the value per amount of a step."""
        return Price(int(self.value[step]), int(self.amount[step]))

    def taken(self, room: int) -> Relaxed:
        """Take steps in their order while the room lasts."""
        fits = int(np.searchsorted(np.cumsum(self.amount[self.order]), room, side="right"))
        at = np.concatenate([self.first[1:], [len(self.row)]]) - 1  # everybody's last vertex
        left = self.start[np.sort(self.order[fits:])][::-1]
        at[self.learner[left]] = left  # the first step that is not taken is written last
        broken = int(self.order[fits]) if fits < len(self.order) else None
        if broken is None:
            return Relaxed(self.row[at], Price(0, 1), None)
        return Relaxed(self.row[at], self.price(broken), int(self.learner[self.start[broken]]))


def _steps(options: Options) -> _Steps:
    """Find everybody's upper concave hull of (amount, value) and sort its steps."""
    learner, row = options.allowed.T.nonzero()
    amount, value = options.amount[row, learner], options.values(row, learner)
    with np.errstate(divide="ignore", invalid="ignore"):
        while True:
            same = learner[1:] == learner[:-1]
            more, gain = amount[1:] - amount[:-1], value[1:] - value[:-1]
            slope = gain / more
            # A point on or below the line between its neighbours is no vertex.
            below = same[:-1] & same[1:] & (slope[:-1] <= slope[1:])
            if not below.any():
                break
            kept = np.ones(len(row), dtype=np.bool_)
            kept[1:-1] = ~below
            learner, row, amount, value = learner[kept], row[kept], amount[kept], value[kept]
    start = same.nonzero()[0]
    first = np.concatenate([[0], (~same).nonzero()[0] + 1])
    order = np.argsort(-slope[start], kind="stable")
    return _Steps(learner, row, first, start, more[start], gain[start], order)


def sliding(score: IntArray, width: int) -> IntArray:
    """Return the largest of `width` rows from each row on, in place; at the end, of as many as there are."""
    reach = 1
    while reach * 2 <= width and reach < len(score):
        np.maximum(score[:-reach], score[reach:], out=score[:-reach])
        reach *= 2
    rest = width - reach
    if rest and rest < len(score):
        np.maximum(score[:-rest], score[rest:], out=score[:-rest])
    return score


def total(values: npt.NDArray[np.integer]) -> int:
    """Sum exactly, also where the sum of int64 values leaves int64."""
    if len(values) <= 64:
        return sum(values.tolist())
    largest = max(abs(int(values.max())), abs(int(values.min())))
    if largest * len(values) < 2**62:
        return int(values.sum())
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())
