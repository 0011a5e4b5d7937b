"""The largest sum of epochs: a knapsack in each of at most c + 1 windows.

Let s be the synchronous optimum, the largest tau with sum_k cap_k(tau) >= d. Every allocation lies in a
window [t, t + c]. If t > s, not even all learners at t carry d. If t < s - c, all learners at s are better.
So t is one of c + 1 numbers. Inside a window a learner has a row, tau_k - t, and the question is: which rows
have the largest sum while the capacities still come to d?

`all_windows` answers it for small fleets, by a dynamic programme over (window, sum of rows) -> largest
capacity. `flwr_mel.solvers.prices` answers it for large fleets and wide windows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from flwr_mel._validate import FloatArray, IntArray, Phrase, complain
from flwr_mel.allocation.bisection import largest
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.solvers.prices import LARGE, NEVER, by_price, linear_bound, sample

#: Learners and steps of the dynamic programme over all windows at once: a few milliseconds.
_FEW, _SMALL = 64, 4_000_000
#: Entries (learners times epochs) a table of capacities may have: 1.6 GB.
_LARGEST_TABLE = 200_000_000


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
    first, windows, table = windows_of(capacities, demand, staleness)
    learners, width = len(capacities), len(table) - windows + 1
    steps = windows * width * learners * (learners * (width - 1) + 1) // 2
    solve = all_windows if learners <= _FEW and steps <= _SMALL else by_price
    rows, bound = solve(table, demand, windows)
    return Best(first + rows, first * learners + bound)


def bound_epochs(capacities: Capacities, demand: int, staleness: int) -> int:
    """Bound the sum of epochs by the linear relaxation of every window."""
    first, windows, table = windows_of(capacities, demand, staleness)
    return first * len(capacities) + linear_bound(table, demand, windows)


def windows_of(capacities: Capacities, demand: int, staleness: int) -> tuple[int, int, IntArray]:
    """Return the first window, how many there are, and the capacities in their rows, one row per tau.

    Capacities count up to the demand: more is of no use, and without it the bounds are tighter.
    """
    top, sync = int(capacities.most_epochs.max()), synchronous(capacities, demand)
    first = max(1, sync - staleness)
    last = min(sync, max(1, top - staleness))  # later windows are parts of this one
    end = min(last + staleness, top)
    if (end - first + 1) * len(capacities) > _LARGEST_TABLE:
        rule = "small enough for a table of learners times epochs"
        raise complain("staleness", rule, end - first, Phrase("Lower it, or set {}.", "max_epochs"))
    table = capacities.table(first, end)
    np.minimum(table, demand, out=table)
    reach = capacities.most_epochs - first
    if int(reach.min()) < end - first:
        table[np.arange(len(table))[:, None] > reach] = NEVER
    return first, last - first + 1, table


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
    caps = np.where(table > 0, table, -np.inf)
    caps = sliding_window_view(caps, width, axis=0).transpose(2, 0, 1)
    # carried[k, w, width - 1 + s]: the most that the first k learners carry when their rows sum to s.
    carried = np.full((learners + 1, windows, width - 1 + span), -np.inf)
    carried[0, :, width - 1] = 0.0
    # before[k, r, w, s] = carried[k, w, width - 1 + s - r]
    before = sliding_window_view(carried, width, axis=2)[..., ::-1].transpose(0, 3, 1, 2)
    for k in range(learners):
        upto = (k + 1) * (width - 1) + 1
        ways = before[k, :, :, :upto] + caps[:, :, k, None]
        np.max(ways, axis=0, out=carried[k + 1, :, width - 1 : width - 1 + upto])
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
        reached, earlier, own = states[k + 1][at], states[k], options[k]
        rows[k] = next(r for r in range(width) if earlier[at - r] + own[r] == reached)
        at -= rows[k]
    return np.array(rows, dtype=np.int64)
