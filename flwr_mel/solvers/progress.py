"""The second objective: progress S = sum_k tau_k d_k^2 / d, with proof.

A learner passes tau_k d_k samples and counts d_k / d in the average, so S is the progress of the averaged
model as far as it follows from samples passed. Only sum_k tau_k d_k^2 is computed here, in integers.

Fix a window [t, t + c]. With batch d learner k does the most epochs of the window that still fit, so its
value is tau d^2 between two neighbouring capacities: convex. Of two learners strictly inside such intervals
one could give samples to the other and win. So in an optimum all but one sit at the end of an interval, and
the one takes what is left: a multiple-choice knapsack in samples with one free learner.

* `price_of` bounds a window by its Lagrangian, evaluated in integers: any price gives a proof.
* `_polish` turns the prices' choice into an allocation: exchange one option, free another learner.
* `Closing` closes the gap exactly with a dynamic programme over sums of samples, once for every free
  learner, restricted to choices that the gap can still pay for.

Windows below the synchronous optimum allow larger batches, so all t count. Ranges of windows are bounded
together and split, best first.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from flwr_mel.allocation.capacity import Capacities
from flwr_mel.solvers.knapsack import WORST, total
from flwr_mel.solvers.progress_closing import Closing
from flwr_mel.solvers.progress_windows import Point, Priced, Terms, Window, build, price_of, terms_of

#: Learners among which options are exchanged.
_NEAR = 32

#: Windows, or ranges of them, looked at before the rest is left to its bound.
_VISITS = 600

#: Entries the dynamic programmes of one call may write: a second or so.
WORK = 400_000_000


def maximise(
    capacities: Capacities,
    demand: int,
    staleness: int,
    start: Point,
    *,
    optional: bool = False,
    work: int = WORK,
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
    terms = terms_of(capacities, demand, staleness, min(last + staleness, int(most.max())), optional)
    best, open_, closed, visits = start, [0], 0, 0
    heap: list[tuple[int, int, int, int]] = []

    def visit(low: int, high: int) -> None:
        nonlocal best, visits
        visits += 1
        window = build(capacities, terms, low, high)
        found = price_of(window, terms)
        if low == high:
            best = _polish(window, terms, found, best) or best
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
        window = build(capacities, terms, low, low)
        closing = Closing(window, price_of(window, terms), terms, best, work)
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


def _polish(window: Window, terms: Terms, found: Priced, best: Point) -> Point | None:
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
    window: Window,
    terms: Terms,
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
