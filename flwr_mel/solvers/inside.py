"""Inside one window of batches: an allocation made of the relaxation, and the exact search.

`polish` lets the learner that broke off take what is left, then exchanges options while that helps: one
learner takes another option, a second one is free. `Closing` goes through all options that the gap can pay
for, by a dynamic programme over sums of samples, once for every free learner.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

import numpy as np

from flwr_mel._validate import IntArray
from flwr_mel.solvers.batches import Terms, Window
from flwr_mel.solvers.options import WORST, Bools, Index, Options, Price, Relaxed, total
from flwr_mel.solvers.sums import Programme, Sums, within
from flwr_mel.solvers.worth import Point

#: Learners among which options are exchanged: those with the smallest losses of a second choice.
_NEAR = 64

#: Options that are tried in an exchange.
_OPTIONS = 4096

#: Entries that one search may keep: 160 MB; and what a learner without a choice costs at least.
_CELLS, EACH = 20_000_000, 20_000


def polish(
    window: Window, terms: Terms, relaxed: Relaxed, second: IntArray, bound: int, best: Point
) -> Point | None:
    """Make an allocation of the relaxation and exchange options while that helps; None if not better."""
    options, pick = window.options, relaxed.pick
    near = np.argpartition(second, _NEAR)[:_NEAR] if len(second) > _NEAR else np.arange(len(second))
    near = np.unique(near if relaxed.broken is None else np.append(near, relaxed.broken))
    few = options.take(near)
    score = few.scores(relaxed.price)
    loss = score.max(axis=0) - score
    # What loses more than the gap cannot be part of anything better; of very many options the best will do.
    gap = relaxed.price.q * (bound + 1 - best.value)
    if loss.size > _OPTIONS:
        gap = min(gap, int(np.partition(loss, _OPTIONS, axis=None)[_OPTIONS]))
    useful = few.allowed & (loss <= gap)
    everybody = np.arange(len(pick))
    amount, value = options.amount[pick, everybody], options.value[pick, everybody]
    rest, worth = terms.demand - total(amount), total(value)
    mine, reach, result = pick[near], best.value, None
    while step := _exchange(window, terms, few, near, mine, useful, rest, worth, reach):
        reach, changed, option, free, samples = step
        before = mine[changed]
        mine[changed] = option
        rest -= int(few.amount[option, changed] - few.amount[before, changed])
        worth += int(few.value[option, changed] - few.value[before, changed])
        batches = amount.copy()
        batches[near] = few.amount[mine, np.arange(len(near))]
        batches[near[free]] = samples
        result = batches
    return (
        None if result is None else terms.worth.settle(window.first, window.epochs(everybody, result), result)
    )


def _exchange(
    window: Window,
    terms: Terms,
    few: Options,
    near: Index,
    pick: Index,
    useful: Bools,
    rest: int,
    worth: int,
    reach: int,
) -> tuple[int, int, int, int, int] | None:
    """Find the best pair of one learner's new option and another, free one; None if not above `reach`.

    `rest` samples are left by the options picked, whose worths come to `worth`; learners count within `near`.
    """
    who = np.arange(len(near))
    batch, value = few.amount[pick, who], few.value[pick, who]
    option, changed = np.nonzero(useful)
    moved = few.amount[option, changed] - batch[changed]
    gained = few.value[option, changed] - value[changed]
    samples = (rest - moved)[:, None] + batch
    epochs = window.epochs(near, samples)
    freed = terms.worth.best(near, window.first, epochs, np.maximum(samples, terms.least))
    result = (worth + gained)[:, None] - value + freed
    result[(epochs < window.first) | (samples < terms.least) | (changed[:, None] == who)] = WORST
    if terms.optional:  # nothing left for the free one
        np.copyto(result, (worth + gained)[:, None] - value, where=(samples == 0) & (changed[:, None] != who))
    at = np.unravel_index(int(result.argmax()), result.shape)
    if result[at] <= reach:
        return None
    return int(result[at]), int(changed[at[0]]), int(option[at[0]]), int(at[1]), int(samples[at])


@dataclass(slots=True, eq=False)
class Closing:
    """The exact search of one window for something better than `best`.

    `work` is how many entries may be written, then what is left of that; `complete` says afterwards whether
    nothing better is left.
    """

    window: Window
    terms: Terms
    price: Price
    best: Point
    work: int
    complete: bool = True

    def run(self) -> Point:
        """Search, and return the best allocation known."""
        options = self.window.options
        score = options.scores(self.price)
        top = score.max(axis=0)
        losses, budget = top - score, self._budget(total(top))
        if not self._affordable((losses <= budget) & options.allowed):
            self.complete = False
            return self.best
        sizes, lost = within(options.amount, losses, budget, options.allowed)
        # Sums may include the free learner's own option, which is then replaced.
        programme = Programme(sizes, lost, budget, last=self.terms.demand + self.terms.most)
        programme.everybody_free(lambda k, others, own: self._free(programme, k, others, own, top))
        return self.best

    def _budget(self, tops: int) -> int:
        """Losses in sum that something better than the best can afford."""
        return tops + self.price.p * self.terms.demand - self.price.q * (self.best.value + 1)

    def _affordable(self, kept: Bools) -> bool:
        """Whether the programme over these options is within the limit of work; if so, take it off."""
        batch, choices = self.window.options.amount, kept.sum(axis=0)
        open_ = choices > 1
        most = np.where(kept, batch, 0).max(axis=0)[open_]
        least = np.where(kept, batch, self.terms.demand).min(axis=0)[open_]
        size, n = min(total(most - least), self.terms.demand) + 1, int(open_.sum())
        # Every learner is free once, and costs something even where it has no choice.
        needed = int(size * (total(choices[open_]) * (1 + log2(max(n, 1))) + n))
        needed += (len(choices) - n) * max(size, EACH)
        if needed > self.work or size * (n + 1) > _CELLS:
            return False
        self.work -= needed
        return True

    def _free(self, programme: Programme, k: int, others: Sums, own: int, top: IntArray) -> None:
        """Let learner k take what the others leave; `own` is its part of the sums."""
        rest = self.terms.demand - (others.at - own)
        fits = (
            (rest >= self.terms.least) & (rest <= self.window.caps[0, k]) & (others.loss <= programme.budget)
        )
        at, rest = np.flatnonzero(fits), rest[fits]
        if not len(at):
            return
        epochs = self.window.epochs(k, rest)
        score = self.price.q * self.terms.worth.best(k, self.window.first, epochs, rest)
        score -= self.price.p * rest
        loss = others.loss[at] + (top[k] - score)
        i = int(loss.argmin())
        if loss[i] <= programme.budget:
            samples = programme.trace(others, int(others.at[at[i]]), np.zeros(len(top), dtype=np.int64))
            samples[k] = rest[i]
            most = self.window.epochs(np.arange(len(samples)), samples)
            self.best = self.terms.worth.settle(self.window.first, most, samples)
            programme.budget = self._budget(total(top))
