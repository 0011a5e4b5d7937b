"""The exact search of one window for the progress objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log2

import numpy as np

from flwr_mel._validate import IntArray
from flwr_mel.allocation.solution import weighted_squares
from flwr_mel.solvers.knapsack import total
from flwr_mel.solvers.progress_windows import Point, Priced, Terms, Window

#: Entries all arrays of one search may have: 160 MB.
_CELLS = 20_000_000


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """The least loss with which some learners take `first + i` samples, and how they came to it."""

    first: int
    loss: IntArray
    trail: tuple[tuple[int, int, IntArray | int], ...] = ()


@dataclass(slots=True, eq=False)
class Closing:
    """The exact search of one window for something better than `best`.

    At the window's price every batch has a loss against the learner's best option, and an allocation better
    than the best so far can afford `budget` in sum. Choices above that are out; most learners are settled.
    """

    window: Window
    priced: Priced
    terms: Terms
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
        if needed > self.work or size * (len(open_) + 1) > _CELLS:
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
        picks = np.zeros(len(loss), dtype=np.int64)
        for size, cost in zip(batch.tolist(), losses.tolist(), strict=True):
            part = slice(size - low, size - low + n)
            mine = sums.loss + cost
            better = mine < loss[part]
            np.copyto(loss[part], mine, where=better)
            np.copyto(picks[part], size, where=better)
        return self._cut(sums.first + low, loss, picks, k, sums.trail)

    def _cut(
        self,
        first: int,
        loss: IntArray,
        picks: IntArray,
        k: int,
        trail: tuple[tuple[int, int, IntArray | int], ...],
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
