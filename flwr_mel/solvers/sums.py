"""The exact search of a window: a dynamic programme over sums, with one learner free.

At a price every option has a loss against its learner's best one, and what is looked for can afford a budget
of losses in sum. Options above it are out, which settles nearly everybody. The others are added one by one:
for every sum that can be reached, the least loss.

Where values are convex between options (docs/THEORY.md), some optimum has at most one learner between two
options. Everybody is that one once: halve the fleet, add one half, go on with the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import IntArray


class Sums(NamedTuple):
    """Sums that some learners can come to, rising, and the least loss of each; above the budget: not at all.

    `learner` was added last, to `before`.
    """

    at: IntArray
    loss: IntArray
    learner: int = -1
    before: Sums | None = None


#: Sums among which those above the budget are not looked for: that costs more than they do.
_FEW = 64

NONE = Sums(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


@dataclass(slots=True, eq=False)
class Programme:
    """Sums of options, at most `last`, with losses within the budget.

    Parameters
    ----------
    sizes, losses : lists of int arrays
        Per learner its options, rising.
    budget : int
        Losses above it are of no interest; whoever finds something better lowers it.
    last : int
        Sums above it are of no interest.
    settled : sequence of int
        Who has one option only, from `everybody_free` on.
    """

    sizes: Sequence[IntArray]
    losses: Sequence[IntArray]
    budget: int
    last: int = 2**62
    settled: Sequence[int] = ()

    def add(self, sums: Sums, k: int) -> Sums:
        """Add a learner at each of its options."""
        size, loss = self.sizes[k], self.losses[k]
        if not len(sums.at) or not len(size):
            return NONE
        at, lost = self._merged(sums, size, loss)
        if len(lost) > _FEW:
            alive = (lost <= self.budget).nonzero()[0]
            if not len(alive):
                return NONE
            low, high = int(alive[0]), int(alive[-1]) + 1
            if len(alive) * 4 > high - low:  # few holes: what is over the budget may stay
                at, lost = at[low:high], lost[low:high]
            else:
                at, lost = at[alive], lost[alive]
        return Sums(at, lost, k, sums)

    def _merged(self, sums: Sums, size: IntArray, loss: IntArray) -> tuple[IntArray, IntArray]:
        """Return the sums after one learner, up to the last, and the least loss of each."""
        n, low, high = len(sums.at), int(sums.at[0]), int(sums.at[-1])
        if len(size) == 1:
            upto = (
                n
                if sums.at[-1] + size[0] <= self.last
                else int(np.searchsorted(sums.at, self.last - size[0], "right"))
            )
            return sums.at[:upto] + size[0], sums.loss[:upto] + loss[0]
        first = low + int(size[0])
        span = min(high + int(size[-1]), self.last) - first + 1
        if span <= 4 * n * len(size):  # dense: by position
            lost = np.empty(max(span, 0), dtype=np.int64)
            lost.fill(self.budget + 1)
            solid = n == high - low + 1
            for own, cost in zip(size.tolist(), loss.tolist(), strict=True):
                offset = own + low - first
                if offset >= span:
                    break
                if solid:
                    here = lost[offset : offset + n]
                    np.minimum(here, sums.loss[: len(here)] + cost, out=here)
                else:
                    to = sums.at - low + offset
                    to = to[: np.searchsorted(to, span)]
                    lost[to] = np.minimum(lost[to], sums.loss[: len(to)] + cost)
            return np.arange(first, first + len(lost)), lost
        at = (sums.at + size[:, None]).ravel()
        lost = (sums.loss + loss[:, None]).ravel()
        kept = np.flatnonzero((lost <= self.budget) & (at <= self.last))
        kept = kept[np.lexsort((lost[kept], at[kept]))]
        at, lost = at[kept], lost[kept]
        fresh = np.ones(len(at), dtype=np.bool_)
        fresh[1:] = at[1:] != at[:-1]
        return at[fresh], lost[fresh]

    def trace(self, sums: Sums, reached: int, taken: IntArray) -> IntArray:
        """Walk back from a sum and write down what everybody took; who has one option has that."""
        for k in self.settled:
            taken[k] = self.sizes[k][0]
        lost = int(sums.loss[np.searchsorted(sums.at, reached)])
        while sums.before is not None:
            k, before = sums.learner, sums.before
            first, n = int(before.at[0]), len(before.at)
            solid = int(before.at[-1]) - first + 1 == n
            for size, cost in zip(self.sizes[k].tolist(), self.losses[k].tolist(), strict=True):
                rest = reached - size
                i = rest - first if solid else int(np.searchsorted(before.at, rest))
                if 0 <= i < n and before.at[i] == rest and before.loss[i] + cost == lost:
                    break
            taken[k] = size
            sums, reached, lost = before, rest, lost - cost
        return taken

    def add_all(self, sums: Sums, members: Sequence[int]) -> Sums:
        """Add some learners."""
        for k in members:
            sums = self.add(sums, k)
        return sums

    def everybody_free(self, free: Callable[[int, Sums, int], None]) -> None:
        """Let everybody be the free one once.

        `free` gets the learner, sums of the others, and what of these is its own: who has one option only is
        part of them, so that the sums are the same for all such learners.
        """
        if self.budget < 0:
            return
        open_ = [k for k, size in enumerate(self.sizes) if len(size) > 1]
        self.settled = [k for k, size in enumerate(self.sizes) if len(size) == 1]
        some = self._settled_sum()
        whole = self.add_all(some, open_) if self.settled else NONE
        for k in self.settled if len(whole.at) else ():
            free(k, whole, int(self.sizes[k][0]))
        if open_:
            self._each_free(open_, some, free)

    def _settled_sum(self) -> Sums:
        """Return the one sum of the learners that have one option each."""
        at = sum(int(self.sizes[k][0]) for k in self.settled)
        lost = sum(int(self.losses[k][0]) for k in self.settled)
        if at > self.last or lost > self.budget:
            return NONE
        return Sums(np.array([at]), np.array([lost]))

    def _each_free(self, members: Sequence[int], sums: Sums, free: Callable[[int, Sums, int], None]) -> None:
        if not len(sums.at):
            return
        if len(members) == 1:
            free(members[0], sums, 0)
            return
        half = len(members) // 2
        for mine, others in ((members[:half], members[half:]), (members[half:], members[:half])):
            self._each_free(mine, self.add_all(sums, others), free)


def within(
    size: IntArray, losses: IntArray, budget: int, allowed: npt.NDArray[np.bool_] | None = None
) -> tuple[list[IntArray], list[IntArray]]:
    """Return per learner (column) the options whose loss the budget can pay, by rising size, each once."""
    sizes, lost = [], []
    for k, column in enumerate(losses.T):
        kept = np.flatnonzero(column <= budget if allowed is None else (column <= budget) & allowed[:, k])
        mine = size[kept, k if size.shape[1] == losses.shape[1] else 0]
        order = np.lexsort((column[kept], mine))
        mine, cost = mine[order], column[kept][order]
        fresh = np.append(True, mine[1:] != mine[:-1]) if len(mine) else np.zeros(0, dtype=np.bool_)
        sizes.append(mine[fresh])
        lost.append(cost[fresh])
    return sizes, lost
