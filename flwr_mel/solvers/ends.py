"""Wide windows: a bound and an allocation from the ends of the capacities' convex pieces.

Drop the floor in cap_k. What remains is the least of three functions of tau, of time, energy and data, each
convex and falling, so between the epochs where another limit takes over it is a convex sequence. Take two
learners that are both strictly inside such pieces. One epoch more for one and one less for the other keeps
the sum of epochs, and in one of the two directions the sum of capacities does not fall; go on until one of
them stands at an end. So some optimum has at most one learner inside a piece, however wide the window is.

All others stand at ends, of which there are at most six each: options. The free learner does as many epochs
as the rest of the demand permits. Without the floor, in parts of a sample rounded up, this bounds the window;
with exact capacities the same search gives an allocation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flwr_mel._validate import FloatArray, IntArray
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.solvers.options import Options, bound_at, choose, relax, total
from flwr_mel.solvers.sums import Programme, Sums, within
from flwr_mel.solvers.windows import Node, best_first

#: Capacities without a floor are counted in parts of a sample, rounded up.
_PARTS = 1024

#: What rounding may take from a number, as a share of it, and from a small one.
_ROUNDING, _TINY = 1e-13, 1e-9

#: Windows or ranges of them, and sums of one window, looked at before the rest is left to its bound.
_VISITS, _SUMS = 2000, 4_000_000


class Wide(NamedTuple):
    """Epochs found in wide windows (None: nothing above what was known), and a bound on their sum."""

    epochs: IntArray | None
    bound: int
    windows: int


def search_wide(capacities: Capacities, demand: int, staleness: int, last: int, known: int) -> Wide:
    """Find the best allocation in the windows that begin at 1 to `last`, and bound the optimum.

    Parameters
    ----------
    capacities : Capacities
        Learners that all take part.
    demand, staleness : int
        d and c.
    last : int
        The synchronous optimum.
    known : int
        A sum of epochs that is possible.
    """
    # A window that reaches beyond everybody's epochs holds all later ones.
    last = min(last, max(1, int(capacities.most_epochs.max()) - staleness))
    epochs, bound = None, known

    def node(low: int, high: int) -> Node:
        ends = _ends_of(capacities, low, high + staleness, demand, exact=False)
        price = relax(ends, -demand * _PARTS).price.within(ends.most, ends.worth)
        return Node(bound_at(choose(ends, price).score, price, -demand * _PARTS), low, high)

    def expand(wide: Node) -> list[Node]:
        nonlocal epochs, known, bound
        low, high = wide.low, wide.high
        if low < high:
            middle = (low + high) // 2
            return [node(low, middle), node(middle + 1, high)]
        # First an allocation: the better it is, the less is left for the bound to look at.
        whole = _FreeOne(capacities, low, low + staleness, demand, known, exact=True)
        whole.run()
        if whole.found is not None:
            epochs, known = whole.found, whole.best
        bound = max(bound, _FreeOne(capacities, low, low + staleness, demand, known, exact=False).run())
        return []

    rest, visits = best_first([node(max(1, last - staleness), last)], expand, lambda: known, _VISITS)
    return Wide(epochs, max(bound, rest), visits)


def _ends_of(capacities: Capacities, low: int, high: int, demand: int, *, exact: bool) -> Options:
    """Return the ends of the pieces of every learner's capacity in the window [low, high] as options.

    Capacities are exact, or real numbers counted in parts of a sample. Beyond the demand they are of no use.
    """
    top = np.minimum(capacities.most_epochs, high)
    rows = [np.full(len(top), low, dtype=np.int64), top]
    for bend in _bends(capacities, demand):
        if ((bend > low) & (bend < top)).any():
            rows += [np.clip(np.floor(bend) + i, low, top).astype(np.int64) for i in (0, 1)]
    epochs = np.sort(np.stack(rows), axis=0)
    allowed = np.ones(epochs.shape, dtype=np.bool_)
    allowed[1:] = epochs[1:] > epochs[:-1]
    if exact:
        room = np.minimum(np.stack([capacities.at(row) for row in epochs]), demand)
    else:
        room = np.ceil(np.minimum(capacities.relaxed(epochs), demand) * _PARTS).astype(np.int64) + 1
    return Options(-room, epochs, allowed, int(room.max()), int(top.max()))


def _bends(capacities: Capacities, demand: int) -> list[FloatArray]:
    """Return the real epochs at which another limit takes over: from data, then between time and energy."""
    most = np.maximum(np.minimum(capacities.most, demand), 1)
    c = capacities.coefficients
    time_left, energy_left = _left(capacities)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        by_time, by_energy = (time_left / most - c.c1) / c.c2, (energy_left / most - c.g1) / c.g2
        cross = (energy_left * c.c1 - time_left * c.g1) / (time_left * c.g2 - energy_left * c.c2)
    bends = (np.fmin(by_time, by_energy), cross)
    return [np.nan_to_num(x, nan=0.0, posinf=2.0**52, neginf=0.0).clip(0, 2.0**52) for x in bends]


def _left(capacities: Capacities) -> tuple[FloatArray, FloatArray]:
    """Return the seconds and joules that are left for samples."""
    c = capacities.coefficients
    return capacities.cycle_time_s - c.c0, capacities.energy_limit_j - c.g0


class _FreeOne:
    """The best sum of epochs above a known one in a window, with all learners but one at ends.

    With exact capacities the epochs found are kept; else they are a bound.
    """

    programme: Programme

    def __init__(
        self, capacities: Capacities, low: int, high: int, demand: int, known: int, *, exact: bool
    ) -> None:
        self.capacities, self.low, self.best, self.exact = capacities, low, known, exact
        self.scale = 1 if exact else _PARTS
        self.demand, self.width = demand * self.scale, high - low
        self.time_left, self.energy_left = _left(capacities)
        self.ends = _ends_of(capacities, low, high, demand, exact=exact)
        relaxed = relax(self.ends, -self.demand)
        self.price = relaxed.price.within(self.ends.most, self.ends.worth)
        score = self.ends.scores(self.price)
        self.top = score.max(axis=0)
        self.losses = self.top - score
        self.tops = total(self.top)
        self.bound = self.tops - self.price.p * self.demand  # times q
        self.found: IntArray | None = None
        # The relaxation without the step that broke: about the window's width below the bound at most.
        pick = self.ends.values(relaxed.pick, np.arange(len(capacities)))
        if total(pick) > known:
            self.best, self.found = total(pick), pick

    def run(self) -> int:
        """Search; return the best sum, or what is proven where the search had to be given up."""
        bound, known = self.bound // self.price.q, self.best
        if not self.price.p:  # nothing is scarce: everybody does what it can
            return max(bound, known)
        # The more is asked for, the less may be lost and the fewer options are left: ask for much first.
        for asked in (max(bound - self.width // 16, known), known):
            self.best = asked
            complete = self._search()
            if self.best > asked:
                return self.best if complete else bound
            self.best = known
            if not complete:
                break
            bound = asked
        return max(bound, known)

    def _search(self) -> bool:
        """Look for a sum above the best; say whether nothing was left out."""
        budget = self._budget()
        sizes, losses = within(self.ends.value, self.losses, budget, self.ends.allowed)
        self.programme = Programme(sizes, losses, budget, decline=self.price.q, limit=_SUMS)
        self.programme.everybody_free(self._free)
        return self.programme.complete

    def _budget(self) -> int:
        return self.bound - self.price.q * (self.best + 1)

    def _free(self, k: int, others: Sums, own_part: int) -> None:
        """Let learner k take what the others leave; `own_part` is what of the sums is its own."""
        p, q = self.price
        most = int(self.ends.value[-1, k])
        if int(others.at[-1]) - own_part + most <= self.best:
            return
        theirs = others.at - own_part
        useful = ((theirs + most > self.best) & (others.loss <= self.programme.budget)).nonzero()[0]
        if not len(useful):
            return
        theirs, ideal = theirs[useful], self.tops - int(self.top[k])
        carried = (ideal - others.loss[useful] - q * theirs) // p
        rest = np.maximum((self.demand - carried) / self.scale, self.capacities.least)
        own = np.minimum(self._most_epochs(k, rest), most)
        own[(rest > self.capacities.most[k]) | ~(own >= self.low)] = -np.inf  # not even one that is no number
        better = (theirs + own > self.best).nonzero()[0]
        if not len(better):
            return
        theirs, own = theirs[better], own[better]
        if self.exact:
            own = self._exactly(k, own, rest[better])
        reached = theirs + own
        at = int(reached.argmax())
        if reached[at] > self.best:
            self.best = int(reached[at])
            self.programme.budget = self._budget()
            if self.exact:
                epochs = np.zeros(len(self.capacities), dtype=np.int64)
                self.found = self.programme.trace(others, int(theirs[at]) + own_part, epochs)
                self.found[k] = int(own[at])

    def _most_epochs(self, k: int, samples: FloatArray) -> FloatArray:
        """Return how many epochs learner k does on so many samples, at least; perhaps one too many."""
        c = self.capacities.coefficients
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            by_time = (self.time_left[k] / samples - c.c1[k]) / c.c2[k]
            by_energy = (self.energy_left[k] / samples - c.g1[k]) / c.g2[k]
            real: FloatArray = np.fmin(by_time, by_energy)
            return np.floor(real + _ROUNDING * np.abs(real) + _TINY)

    def _exactly(self, k: int, own: FloatArray, rest: FloatArray) -> FloatArray:
        """Keep the epochs, or one less, with which the exact capacity holds the rest."""
        me, tau = self.capacities.take(np.full(len(own), k)), own.astype(np.int64)
        tau -= me.at(tau) < rest
        good = (tau >= self.low) & (me.at(np.maximum(tau, 1)) >= rest)
        return np.where(good, tau, -np.inf)
