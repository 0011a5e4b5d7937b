"""The allocation inside one window of epochs: a multiple-choice knapsack with tiny values.

Fix a window [t, t + c]. Learner k picks a row i (tau_k = t + i) and brings the capacity caps[i, k];
the capacities must sum to d and the sum of rows is maximised. Three tools, in the order of use:

* `relax` solves the linear relaxation: it is a sort of hull steps by capacity lost per epoch gained.
* A price (p epochs per q samples) bounds *every* window at once, in integers (`upper_bounds`).
* `improve` closes the rest exactly with a dynamic programme over the learners whose choice the
  price leaves open.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import FloatArray, IntArray

#: Worse than any real value, and still far from overflow when added up.
WORST = -(2**61)

#: Entries of a table looked at in one go.
_BLOCK = 65_536

#: Steps from which on a look at a sample saves most of the sort.
_MANY = 32_768

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
    taken, broken = _affordable(loss / gain, loss, total(caps[0]) - demand)
    at = 0
    for s in steps:  # a learner's later steps come in later parts and overwrite
        mine = taken[at : at + len(s.learner)]
        rows[s.learner[mine]] = s.stop[mine]
        at += len(s.learner)
    if broken is None:
        return Relaxed(rows, Price(0, 1))
    return Relaxed(rows, Price(int(gain[broken]), int(loss[broken])))


def _affordable(
    rate: FloatArray, loss: IntArray, slack: int, low: float | None = None, high: float = np.inf
) -> tuple[npt.NDArray[np.bool_], int | None]:
    """Take steps in the order of their rate while the slack lasts; also return the first that does not fit.

    Only rates from `low` to `high` are sorted. For many steps a sample says where that is enough.
    """
    if low is None:
        low, high = _bracket(rate, loss, slack)
    taken = rate < low
    spent = total(loss[taken])
    order = np.flatnonzero(~taken & (rate <= high))
    order = order[np.argsort(rate[order], kind="stable")]
    fits = int(np.searchsorted(np.cumsum(loss[order]), slack - spent, side="right"))
    if spent > slack or (fits == len(order) and high < np.inf):
        return _affordable(rate, loss, slack, low=-np.inf)
    taken[order[:fits]] = True
    return taken, int(order[fits]) if fits < len(order) else None


def _bracket(rate: FloatArray, loss: IntArray, slack: int) -> tuple[float, float]:
    """Return two rates between which the slack most likely runs out."""
    if len(rate) <= _MANY:
        return -np.inf, np.inf
    few = np.linspace(0, len(rate) - 1, _MANY // 8).astype(np.intp)
    order = few[np.argsort(rate[few], kind="stable")]
    middle = int(np.searchsorted(np.cumsum(loss[order]), slack * len(few) / len(rate)))
    # Four standard deviations to either side.
    first, last = middle - 4 * isqrt(len(few)), middle + 4 * isqrt(len(few))
    low = float(rate[order[first]]) if first >= 0 else -np.inf
    return low, float(rate[order[last]]) if last < len(few) else np.inf


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
    start = np.zeros(len(learner), dtype=np.int64)
    steps = []
    while len(learner):
        stop, loss = _next_vertex(mine, start, top)
        steps.append(_Steps(learner, start, stop, loss))
        more = np.flatnonzero(stop < top)
        learner, start, mine, top = learner[more], stop[more], mine[:, more], top[more]
    return steps


def _next_vertex(caps: IntArray, start: IntArray, top: IntArray) -> tuple[IntArray, IntArray]:
    """Return the next hull vertex after `start`, and the capacity lost on the way.

    It is the row with the least loss per epoch; of equals the last, so collinear points are one step.
    """
    learners = caps.shape[1]
    stop, loss = np.empty(learners, dtype=np.int64), np.empty(learners, dtype=np.int64)
    row = np.arange(len(caps))[:, None]
    for part in _blocks(caps):
        mine, low, high, to = caps[:, part], start[part], top[part], stop[part]
        everybody = np.arange(mine.shape[1])
        here = mine[low, everybody]
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = (here - mine) / (row - low)
        np.copyto(slope, np.inf, where=(row <= low) | (row > high))
        to[:] = len(mine) - 1 - slope[::-1].argmin(axis=0)
        loss[part] = here - mine[to, everybody]
    return stop, loss


def upper_bounds(
    caps: IntArray,
    allowed: npt.NDArray[np.bool_],
    width: int,
    price: Price,
    demand: int,
    windows: int | None = None,
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
    windows : int, optional
        How many windows, from the first row on. None: all that start within the table; those at its end
        are cut off by it.

    Returns
    -------
    list of int
        One bound per window.
    """
    sums = [0] * (len(caps) if windows is None else windows)
    for part in _blocks(caps):
        score = _scores(caps[:, part], allowed[:, part], price)
        reach = 1
        while reach * 2 <= width and reach < len(score):
            np.maximum(score[:-reach], score[reach:], out=score[:-reach])
            reach *= 2
        rest = width - reach
        if rest and rest < len(score):
            np.maximum(score[:-rest], score[rest:], out=score[:-rest])
        sums = [so_far + total(best) for so_far, best in zip(sums, score, strict=False)]
    return [(best - price.p * demand) // price.q for best in sums]


def _blocks(caps: IntArray) -> Iterator[slice]:
    """Cut a fleet into parts whose tables fit into a processor's cache."""
    size = max(_BLOCK // len(caps), 1)
    return (slice(at, at + size) for at in range(0, caps.shape[1], size))


def _scores(caps: IntArray, allowed: npt.NDArray[np.bool_], price: Price) -> IntArray:
    row = np.arange(caps.shape[0], dtype=np.int64)[:, None]
    score = price.p * caps
    score += price.q * row
    np.copyto(score, WORST, where=~allowed)
    return score


def _ranked(
    caps: IntArray, allowed: npt.NDArray[np.bool_], price: Price
) -> tuple[IntArray, IntArray, IntArray]:
    """Return every learner's best row, its score, and what the second best row loses against it."""
    learners = caps.shape[1]
    row, best, loss = (np.empty(learners, dtype=np.int64) for _ in range(3))
    for part in _blocks(caps):
        score = _scores(caps[:, part], allowed[:, part], price)
        everybody = np.arange(score.shape[1])
        best[part] = score.max(axis=0)
        row[part] = np.argmax(score == best[part], axis=0)
        score[row[part], everybody] = WORST
        loss[part] = best[part] - score.max(axis=0)
    return row, best, loss


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
    best_row, best, second_loss = _ranked(caps, allowed, price)
    bound = total(best) - price.p * demand  # times q
    budget = bound - price.q * target
    if budget < 0:
        return Improved(None, complete=True)
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
        first, loss, picks = _extend(first, loss, (column <= budget).nonzero()[0], column, budget)
        layers.append((first, picks))
    sums = first + np.arange(len(loss))
    good = np.flatnonzero((sums >= target) & (loss <= bound - price.q * sums))
    if not len(good):
        return Improved(None, complete)
    rows = best_row
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
    n, width = len(loss), len(loss) + int(rows[-1]) - low
    choices = np.full((len(rows), width), budget + 1, dtype=np.int64)
    for choice, row in zip(choices, rows.tolist(), strict=True):
        np.add(loss, losses[row], out=choice[row - low : row - low + n])
    picks = rows.astype(np.int32)[choices.argmin(axis=0)]
    merged = choices.min(axis=0)
    alive = (merged <= budget).nonzero()[0]
    cut = slice(int(alive[0]), int(alive[-1]) + 1)
    return first + low + int(alive[0]), merged[cut], picks[cut]


def total(values: npt.NDArray[np.integer]) -> int:
    """Sum exactly, also where the sum of int64 values leaves int64."""
    if len(values) <= 64:
        return sum(values.tolist())
    largest = max(abs(int(values.max())), abs(int(values.min())))
    if largest * len(values) < 2**62:
        return int(values.sum())
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())
