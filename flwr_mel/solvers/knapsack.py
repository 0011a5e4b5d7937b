"""The allocation inside one window of epochs: a multiple-choice knapsack with tiny values.

Fix a window [t, t + c]. Learner k picks a row i (tau_k = t + i) and brings the capacity caps[i, k];
the capacities must sum to d and the sum of rows is maximised. Three tools, in the order of use:

* `relax` solves the linear relaxation: it is a sort of hull steps by capacity lost per epoch gained.
* A price (p epochs per q samples) bounds *every* window at once, in integers (`upper_bounds`).
* `improve` closes the rest exactly with a dynamic programme over the learners whose choice the
  price leaves open.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import IntArray

#: Worse than any real value, and still far from overflow when added up.
WORST = -(2**61)


@dataclass(frozen=True, slots=True)
class Price:
    """Epochs that one sample of capacity is worth, as the exact fraction p / q."""

    p: int
    q: int


@dataclass(frozen=True, slots=True, eq=False)
class Relaxed:
    """The relaxation's integer part: a row per learner, and the price at which it broke off."""

    rows: IntArray
    price: Price


@dataclass(frozen=True, slots=True, eq=False)
class Improved:
    """Rows found by the dynamic programme, and whether it left no choice out of account."""

    rows: IntArray | None
    complete: bool


def relax(caps: IntArray, top: IntArray, demand: int) -> Relaxed:
    """Solve the linear relaxation of one window by a sort.

    Parameters
    ----------
    caps : int array, rows by learners
        Capacities, falling from row to row.
    top : int array
        Highest row each learner may pick.
    demand : int
        Capacity needed in sum; row 0 for everybody must provide it.
    """
    steps = _hull_steps(caps, top)
    rows = np.zeros(caps.shape[1], dtype=np.int64)
    if not steps:
        return Relaxed(rows, Price(0, 1))
    gain = np.concatenate([s.stop - s.start for s in steps])
    loss = np.concatenate([s.loss for s in steps])
    order = np.argsort(loss / gain, kind="stable")
    spent = np.cumsum(loss[order])
    slack = total(caps[0]) - demand
    fits = int(np.searchsorted(spent, slack, side="right"))
    taken = np.zeros(len(order), dtype=np.bool_)
    taken[order[:fits]] = True
    at = 0
    for s in steps:  # a learner's later steps come in later parts and overwrite
        mine = taken[at : at + len(s.learner)]
        rows[s.learner[mine]] = s.stop[mine]
        at += len(s.learner)
    if fits == len(order):
        return Relaxed(rows, Price(0, 1))
    broken = order[fits]
    return Relaxed(rows, Price(int(gain[broken]), int(loss[broken])))


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    learner: npt.NDArray[np.intp]
    start: IntArray
    stop: IntArray
    loss: IntArray


def _hull_steps(caps: IntArray, top: IntArray) -> list[_Steps]:
    """Walk along every learner's upper concave hull of (row, capacity), all learners at once.

    Most learners have one step; those whose capacity bends (time gives way to energy, or to the
    learner's own data) stay for another pass.
    """
    steps = []
    learner = np.flatnonzero(top > 0)
    everybody = len(learner) == caps.shape[1]
    start = np.zeros(len(learner), dtype=np.int64)
    row = np.arange(caps.shape[0], dtype=np.int64)[:, None]
    while len(learner):
        mine = caps if everybody else caps[:, learner]
        here = np.take_along_axis(mine, start[None, :], axis=0)[0]
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = (here - mine) / (row - start)
        slope[(row <= start) | (row > top[learner])] = np.inf
        # The last of equal slopes, so that collinear points are one step.
        stop = len(row) - 1 - np.argmin(slope[::-1], axis=0)
        loss = here - np.take_along_axis(mine, stop[None, :], axis=0)[0]
        steps.append(_Steps(learner, start, stop, loss))
        more = stop < top[learner]
        learner, start = learner[more], stop[more]
        everybody = False
    return steps


def upper_bounds(
    caps: IntArray, allowed: npt.NDArray[np.bool_], width: int, price: Price, demand: int
) -> list[int]:
    """Bound the sum of rows, counted from the table's first row, for every window of a table.

    By weak duality any price gives a valid bound: sum_k max_i (i + (p/q) caps[i, k]) - (p/q) d. It is
    evaluated in integers, so nothing is lost to rounding.

    Parameters
    ----------
    caps : int array, rows by learners
        The whole table.
    allowed : bool array
        Which entries may be picked.
    width : int
        Rows per window, c + 1.
    price : Price
        From `relax`.
    demand : int
        d.

    Returns
    -------
    list of int
        One bound per window that starts within the table; windows at the end are cut off by it.
    """
    score = _scores(caps, allowed, price)
    reach = 1
    while reach * 2 <= width and reach < len(score):
        score[:-reach] = np.maximum(score[:-reach], score[reach:])
        reach *= 2
    rest = width - reach
    if rest and rest < len(score):
        score[:-rest] = np.maximum(score[:-rest], score[rest:])
    return [(total(best) - price.p * demand) // price.q for best in score]


def _scores(caps: IntArray, allowed: npt.NDArray[np.bool_], price: Price) -> IntArray:
    row = np.arange(caps.shape[0], dtype=np.int64)[:, None]
    score = price.p * caps
    score += price.q * row
    score[~allowed] = WORST
    return score


def improve(
    caps: IntArray,
    allowed: npt.NDArray[np.bool_],
    price: Price,
    demand: int,
    target: int,
    core: int,
) -> Improved:
    """Search for rows that sum to at least `target`, exactly if the core permits.

    With the price as a yardstick every choice has a loss against the learner's best one. A
    selection that reaches the target can afford losses of ``q * (bound - target)`` in sum, so choices
    above that are out, most learners are settled, and the others go through a dynamic programme over
    (learner, sum of rows) -> least loss. The least loss at the reached sum is the most spare capacity.

    Parameters
    ----------
    caps, allowed : arrays, rows by learners
        One window.
    price : Price
        From `relax`, with p > 0.
    demand, target : int
        d and the sum of rows asked for.
    core : int
        At most that many learners are left open; with more the search is not complete.
    """
    score = _scores(caps, allowed, price)
    best_row = np.argmax(score, axis=0)
    best = np.take_along_axis(score, best_row[None, :], axis=0)[0]
    bound = total(best) - price.p * demand  # times q
    budget = bound - price.q * target
    if budget < 0:
        return Improved(None, complete=True)
    # The affordable losses, learner by learner; a masked entry is far above any budget.
    losses = best[None, :] - score
    affordable = losses <= budget
    open_ = np.flatnonzero(affordable.sum(axis=0) > 1)
    complete = len(open_) <= core
    second = np.where(affordable[:, open_], losses[:, open_], budget + 1)
    second[best_row[open_], np.arange(len(open_))] = budget + 1
    open_ = open_[np.argsort(second.min(axis=0), kind="stable")][:core]
    settled = total(best_row) - total(best_row[open_])

    layers: list[tuple[int, npt.NDArray[np.int32]]] = []
    first, loss = settled, np.zeros(1, dtype=np.int64)
    for k in open_:
        first, loss, picks = _extend(first, loss, np.flatnonzero(affordable[:, k]), losses[:, k], budget)
        layers.append((first, picks))
    sums = first + np.arange(len(loss))
    good = np.flatnonzero((sums >= target) & (loss <= bound - price.q * sums))
    if not len(good):
        return Improved(None, complete)
    rows = best_row.astype(np.int64)
    reached = int(sums[good[-1]])
    for k, (offset, picks) in zip(open_[::-1], layers[::-1], strict=True):
        rows[k] = picks[reached - offset]
        reached -= int(rows[k])
    return Improved(rows, complete)


def _extend(
    first: int, loss: IntArray, rows: npt.NDArray[np.intp], losses: IntArray, budget: int
) -> tuple[int, IntArray, npt.NDArray[np.int32]]:
    """Add one learner to the dynamic programme; states over budget are dropped at both ends."""
    low = int(rows[0])
    width = len(loss) + int(rows[-1]) - low
    merged = np.full(width, budget + 1, dtype=np.int64)
    picks = np.zeros(width, dtype=np.int32)
    for row in rows:
        at = slice(int(row) - low, int(row) - low + len(loss))
        candidate = loss + losses[row]
        better = candidate < merged[at]
        merged[at][better] = candidate[better]
        picks[at][better] = row
    alive = np.flatnonzero(merged <= budget)
    cut = slice(int(alive[0]), int(alive[-1]) + 1)
    return first + low + int(alive[0]), merged[cut], picks[cut]


def total(values: npt.NDArray[np.integer]) -> int:
    """Sum exactly, also where the sum of int64 values leaves int64."""
    if not len(values):
        return 0
    largest = max(abs(int(values.max())), abs(int(values.min())))
    if largest * len(values) < 2**62:
        return int(values.sum())
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())
