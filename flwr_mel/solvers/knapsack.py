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

#: Learners left open when there are too many for all of them.
_FEW = 256


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
    learner = np.flatnonzero(top > 0)
    whole = len(learner) == caps.shape[1]
    mine, top = (caps, top) if whole else (caps[:, learner], top[learner])
    start = np.zeros(1, dtype=np.int64)  # one entry stands for all in the first pass
    steps = []
    while len(learner):
        stop, loss = _next_vertex(mine, start, top)
        steps.append(_Steps(learner, np.broadcast_to(start, stop.shape), stop, loss))
        more = np.flatnonzero(stop < top)
        learner, start, mine, top = learner[more], stop[more], mine[:, more], top[more]
    return steps


def _next_vertex(caps: IntArray, start: IntArray, top: IntArray) -> tuple[IntArray, IntArray]:
    """Return the next hull vertex after `start`, and the capacity lost on the way.

    It is the row with the least loss per epoch; of equals the last, so collinear points are one step.
    """
    here = caps[0] if len(start) == 1 and start[0] == 0 else caps[start, np.arange(caps.shape[1])]
    best = np.full(caps.shape[1], np.inf)
    stop = np.zeros(caps.shape[1], dtype=np.int64)
    for row in range(int(start.min()) + 1, len(caps)):
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = (here - caps[row]) / (row - start)
        better = (slope <= best) & (row <= top) & (row > start)
        np.copyto(best, slope, where=better)
        np.copyto(stop, row, where=better)
    return stop, here - caps[stop, np.arange(caps.shape[1])]


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
        At most that many learners are left open. With more of them the search is not complete, and a
        few hundred with the smallest losses are tried: in a large fleet they nearly always suffice.
    """
    score = _scores(caps, allowed, price)
    everybody = np.arange(caps.shape[1])
    best_row = np.argmax(score, axis=0)
    best = score[best_row, everybody]
    bound = total(best) - price.p * demand  # times q
    budget = bound - price.q * target
    if budget < 0:
        return Improved(None, complete=True)
    score[best_row, everybody] = WORST
    second_loss = best - score.max(axis=0)
    open_ = np.flatnonzero(second_loss <= budget)
    complete = len(open_) <= core
    if not complete and len(open_) > _FEW:
        open_ = open_[np.argpartition(second_loss[open_], _FEW)[:_FEW]]
    open_ = open_[np.argsort(second_loss[open_], kind="stable")]
    losses = best[open_] - _scores(caps[:, open_], allowed[:, open_], price)
    settled = total(best_row) - total(best_row[open_])

    layers: list[tuple[int, npt.NDArray[np.int32]]] = []
    first, loss = settled, np.zeros(1, dtype=np.int64)
    for column in losses.T:
        first, loss, picks = _extend(first, loss, np.flatnonzero(column <= budget), column, budget)
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
