"""The exact solver: windows of epochs, a knapsack in each, a certificate for all.

Why this is enough (the paper calls the problem NP-hard). Let s be the synchronous optimum, the
largest tau with sum_k cap_k(tau) >= d. Every allocation lies in a window [t, t + c]. If t > s, not even
everybody at t carries d. If t < s - c, everybody at s is better. So t is one of c + 1 numbers, and inside
a window the values are the integers 0..c: a knapsack that a dynamic programme solves exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import IntArray, complain, count
from flwr_mel.allocation.allocate import Proposal
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.handout import Handout, hand_out
from flwr_mel.allocation.problem import AllocationProblem
from flwr_mel.allocation.screening import diagnose, screen
from flwr_mel.allocation.solution import Infeasible, Objective, Reason, Status, weighted_squares
from flwr_mel.solvers.knapsack import Price, Relaxed, improve, relax, total, upper_bounds
from flwr_mel.solvers.progress import maximise
from flwr_mel.solvers.progress_windows import Point

#: Entries (learners times epochs) a table of capacities may have: 1.6 GB.
_LARGEST_TABLE = 200_000_000

#: Epochs times samples within one learner's window: the scores of `knapsack` stay within int64.
_LARGEST_SCORE = 2**59

#: From here on a look at a sample of the fleet pays before a look at all of it.
_LARGE = 20_000


class Exclude(StrEnum):
    """Whom the solver may leave out."""

    INFEASIBLE = "infeasible"
    """Only learners that cannot take part."""
    OPTIMAL = "optimal"
    """Also stragglers, when that raises the sum of epochs."""


class TieBreak(StrEnum):
    """Which of several optimal allocations is taken."""

    SLACK = "slack"
    """The one with most spare capacity, which leaves the hand-out most freedom."""
    SPREAD = "spread"
    """The one with the smallest staleness; among those, most spare capacity."""


@dataclass(frozen=True, slots=True)
class Exact:
    """Maximise the mean number of epochs, or the progress, with proof.

    Optimal (bound = objective) for fleets up to a few thousand learners. Beyond `core` open learners
    the dynamic programme sees only the most promising ones; the result then comes with the bound of
    the linear relaxation, which it nearly always meets anyway.

    Parameters
    ----------
    handout : Handout or str
        Rule for the d_k: "proportional" (to capacity), "even" or "strongest-first".
    exclude : Exclude or str
        "infeasible" leaves out only learners that cannot take part; "optimal" also stragglers
        without which the objective is higher.
    tie_break : TieBreak or str
        "slack" or "spread".
    core : int
        Learners the dynamic programme may leave open.
    objective : Objective or str
        "epochs": the paper's mean of tau_k. "progress": S = sum_k tau_k d_k^2 / d under the same limits.
        It fixes the d_k, so `handout` and `tie_break` do not apply; S is never below what any hand-out
        of the epochs' optimum gives. `Solution.bound` stays a bound on the mean epochs, status and gap
        are about S, and `Solution.progress_bound` is its certificate.
    """

    handout: Handout = Handout.PROPORTIONAL
    exclude: Exclude = Exclude.INFEASIBLE
    tie_break: TieBreak = TieBreak.SLACK
    core: int = 4000
    objective: Objective = Objective.EPOCHS

    def __post_init__(self) -> None:
        options = {"handout": Handout, "exclude": Exclude, "tie_break": TieBreak, "objective": Objective}
        for name, kind in options.items():
            object.__setattr__(self, name, option(name, kind, getattr(self, name)))
        object.__setattr__(self, "core", count("core", self.core, least=1))

    def solve(self, problem: AllocationProblem) -> Proposal:
        """Propose the optimal allocation, or raise `Infeasible`."""
        capacities = Capacities.of(problem)
        able, excluded = screen(capacities)
        if not len(able):
            raise Infeasible(diagnose(problem))
        mine = capacities.take(able) if len(able) < len(problem) else capacities
        if total(mine.at(1)) < problem.total_samples:
            raise Infeasible(diagnose(problem))
        search = _Search(problem.total_samples, self.core)
        if self.exclude is Exclude.OPTIMAL:
            best = _best_subset(search, mine, problem.staleness)
        else:
            best = search.best(mine, problem.staleness, np.arange(len(able)))
        if best is None:  # pragma: no cover - everybody at one epoch is always a solution here
            raise RuntimeError("no window holds a solution although one epoch each fits")
        if self.objective is Objective.PROGRESS:
            return self._progress(problem, mine, able, excluded, best)
        if self.tie_break is TieBreak.SPREAD:
            best = _least_spread(search, mine, problem.staleness, best)
        if len(best.members) < len(able):
            excluded |= {int(k): Reason.STRAGGLER for k in np.delete(able, best.members)}
        epochs = np.zeros(len(problem), dtype=np.int64)
        samples = np.zeros(len(problem), dtype=np.int64)
        who = able[best.members]
        epochs[who] = best.epochs
        some = mine if len(who) == len(able) else mine.take(best.members)
        room = some.at(best.epochs)
        samples[who] = hand_out(self.handout, problem.total_samples, room, problem.min_samples, best.epochs)
        status = Status.OPTIMAL if best.bound == best.sum_epochs else Status.FEASIBLE
        return Proposal(epochs, samples, best.bound, status, excluded, {"windows": search.windows})

    def _progress(
        self,
        problem: AllocationProblem,
        capacities: Capacities,
        able: npt.NDArray[np.intp],
        excluded: dict[int, Reason],
        best: _Best,
    ) -> Proposal:
        """Maximise S, from the best hand-out of the epochs' optimum on."""
        start = max((_handed_out(problem, capacities, best, rule) for rule in Handout), key=lambda p: p.value)
        leave_out = self.exclude is Exclude.OPTIMAL
        found, bound, windows = maximise(
            capacities, problem.total_samples, problem.staleness, start, optional=leave_out
        )
        epochs = np.zeros(len(problem), dtype=np.int64)
        samples = np.zeros(len(problem), dtype=np.int64)
        epochs[able], samples[able] = found.epochs, found.samples
        excluded |= {int(k): Reason.WEAK for k in able[found.epochs == 0]}
        status = Status.OPTIMAL if bound == found.value else Status.FEASIBLE
        stats = {"windows": windows}
        return Proposal(epochs, samples, best.bound, status, excluded, stats, self.objective, bound)


def _handed_out(problem: AllocationProblem, capacities: Capacities, best: _Best, rule: Handout) -> Point:
    """Hand the samples of the epochs' optimum out by a rule."""
    epochs = np.zeros(len(capacities), dtype=np.int64)
    samples = np.zeros(len(capacities), dtype=np.int64)
    epochs[best.members] = best.epochs
    room = capacities.take(best.members).at(best.epochs)
    samples[best.members] = hand_out(rule, problem.total_samples, room, problem.min_samples, best.epochs)
    return Point(weighted_squares(epochs, samples), epochs, samples)


def option(name: str, kind: type[StrEnum], value: str) -> StrEnum:
    """Turn a string into the option it names, or say which there are."""
    try:
        return kind(value)
    except ValueError:
        raise complain(name, f"one of {', '.join(repr(str(o)) for o in kind)}", value) from None


@dataclass(frozen=True, slots=True, eq=False)
class _Best:
    members: npt.NDArray[np.intp]
    epochs: IntArray
    capacity: IntArray
    bound: int

    @property
    def sum_epochs(self) -> int:
        return total(self.epochs)

    @property
    def rank(self) -> tuple[int, int]:
        return self.sum_epochs, total(self.capacity)


@dataclass(slots=True)
class _Search:
    """The search through the windows, for one demand."""

    demand: int
    core: int
    windows: int = 0

    def best(
        self,
        capacities: Capacities,
        staleness: int,
        members: npt.NDArray[np.intp],
        at_least: int = 0,
    ) -> _Best | None:
        """Find the best allocation in which all these learners take part; None if below `at_least`."""
        most = capacities.most_epochs
        sync = synchronous(capacities, self.demand)
        first, last = max(1, sync - staleness), min(sync + staleness, int(most.max()))
        width = last - first + 1
        if width * len(capacities) > _LARGEST_TABLE or width * self.demand > _LARGEST_SCORE:
            rule = "small enough for a table of learners times epochs"
            raise complain("staleness", rule, staleness, "Lower it, or set max_epochs.")
        # Capacity beyond the demand is of no use, and without it the bounds are tighter.
        table = capacities.table(first, last)
        np.minimum(table, self.demand, out=table)
        allowed = np.arange(first, last + 1)[:, None] <= most
        base = first * len(capacities)  # rows count from `first`, so sums and bounds count from here
        goal, found = max(at_least - base, 0), None
        bounds = [(len(table) - 1) * len(capacities)] * (sync - first + 1)
        scouted = self._scout(table, most - first, staleness, len(bounds))
        todo = set(range(len(bounds)))
        window = max(scouted, key=lambda w: scouted[w][0]) if scouted else len(bounds) - 1
        while True:
            todo.discard(window)
            scouted.pop(window, None)
            self.windows += 1
            part = slice(window, window + staleness + 1)
            relaxed = _relax_window(table, most - first, staleness, window, self.demand)
            bounds = self._tighten(bounds, table, allowed, staleness, relaxed.price)
            rows, bounds[window] = self._inside(
                table[part], allowed[part], relaxed, window, bounds[window], goal
            )
            if rows is not None:
                rows = rows + window
                here = _Best(members, first + rows, table[rows, np.arange(len(rows))], 0)
                if found is None or here.rank > found.rank:
                    found, goal = here, total(rows)
            # A window is worth a visit if it can do better, or as well with more capacity to spare.
            # Beyond the core ties are left alone.
            enough = goal + (len(capacities) > self.core)
            while todo := {w for w in todo if bounds[w] >= enough}:
                window = max(todo, key=lambda w: (bounds[w], w))
                if window not in scouted:
                    break
                bounds = self._tighten(bounds, table, allowed, staleness, scouted.pop(window)[1])
            if not todo:
                break
        if found is None:
            return None
        return _Best(members, found.epochs, found.capacity, max(base + max(bounds), found.sum_epochs))

    def _tighten(
        self,
        bounds: list[int],
        table: IntArray,
        allowed: npt.NDArray[np.bool_],
        staleness: int,
        price: Price,
    ) -> list[int]:
        """Lower the bounds of all windows by what a price proves."""
        fresh = upper_bounds(table, allowed, staleness + 1, price, self.demand, len(bounds))
        return [min(pair) for pair in zip(bounds, fresh, strict=True)]

    def _scout(
        self, table: IntArray, top: IntArray, staleness: int, windows: int
    ) -> dict[int, tuple[int, Price]]:
        """Look at a sample of a large fleet: per window its promise, and a price that bounds it well.

        The sample says where to begin, and its prices dismiss windows at a fraction of a visit's cost.
        """
        learners = table.shape[1]
        if learners <= _LARGE or windows == 1:
            return {}
        few = _sample(learners)
        table, top, share = table[:, few], top[few], self.demand * len(few) // learners
        allowed = np.arange(len(table))[:, None] <= top
        scouted = {}
        for window in range(windows):
            if total(table[window]) >= share:
                price = _relax_window(table, top, staleness, window, share).price
                promise = upper_bounds(table, allowed, staleness + 1, price, share, windows)[window]
                scouted[window] = (promise, price)
        return scouted

    def _inside(
        self,
        caps: IntArray,
        allowed: npt.NDArray[np.bool_],
        relaxed: Relaxed,
        offset: int,
        bound: int,
        goal: int,
    ) -> tuple[IntArray | None, int]:
        """Find the best rows of one window from `goal` up, and what is then proven about the window.

        Sums and bounds are counted from the table's first row, which lies `offset` rows per learner
        below the window's.
        """
        below = offset * caps.shape[1]
        rough = total(relaxed.rows) + below
        if relaxed.price.p == 0:
            return (relaxed.rows if rough >= goal else None), rough
        # Mostly the bound itself is met. Where it is not, ask for less in growing steps: a complete search
        # returns the best sum from its target up, so no sum is passed over.
        floor, target, step = max(goal, rough), bound, 1
        while target >= floor:
            found = improve(caps, allowed, relaxed.price, self.demand, target - below, self.core)
            if found.rows is not None:
                return found.rows, total(found.rows) + below if found.complete else bound
            if found.complete:
                bound = target - 1
            elif target == rough + 1:
                break
            if target == floor:
                break
            target, step = max(target - step, floor), 2 * step
        return (relaxed.rows if rough >= goal else None), bound


def _relax_window(table: IntArray, top: IntArray, staleness: int, window: int, demand: int) -> Relaxed:
    """Solve the relaxation of one window of a table; `top` is each learner's highest row in it."""
    part = table[window : window + staleness + 1]
    return relax(part, np.minimum(top - window, len(part) - 1), demand)


def _sample(learners: int) -> npt.NDArray[np.intp]:
    """Pick learners evenly from a large fleet, always the same ones."""
    return np.linspace(0, learners - 1, _LARGE // 4).astype(np.intp)


def synchronous(capacities: Capacities, demand: int) -> int:
    """Return the largest tau with which everybody together carries the demand; 1 must do.

    Parameters
    ----------
    capacities : Capacities
        Learners that all take part.
    demand : int
        d.
    """
    low, high = 1, int(capacities.most_epochs.min())

    def enough(tau: int) -> bool:
        return total(capacities.at(tau)) >= demand

    # A sample of a large fleet tells nearly where the answer is; two or three looks settle it.
    if len(capacities) > _LARGE:
        few = capacities.take(_sample(len(capacities)))
        share = demand * len(few) / len(capacities)
        guess = _bisect(low, high, lambda tau: bool(few.relaxed(tau).sum() >= share))
        step = 1
        while low < high:
            probe = min(max(guess, low + 1), high)
            if enough(probe):
                low, guess = probe, probe + step
            else:
                high, guess = probe - 1, probe - step
            step *= 2
            if step > 8:
                break
    return _bisect(low, high, enough)


def _bisect(low: int, high: int, works: Callable[[int], bool]) -> int:
    """Return the largest integer in [low, high] that works, given that `low` does."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if works(middle) else (low, middle - 1)
    return low


def _best_subset(search: _Search, capacities: Capacities, staleness: int) -> _Best | None:
    """Find the best allocation over all sets of participants.

    Inside a window taking part is always worth it: it adds epochs and capacity. So the only reason to
    leave a learner out is that it cannot keep up with the window, and the sets worth a look are
    "everybody who can do at least u epochs".
    """
    most = capacities.most_epochs
    thresholds, counts = np.unique(most, return_counts=True)
    sizes = counts[::-1].cumsum()[::-1]
    # The slowest member limits a set, and so does the capacity of everybody who keeps up.
    cap = _bisect(
        1,
        int(most.max()),
        lambda tau: total(capacities.take(np.flatnonzero(most >= tau)).at(tau)) >= search.demand,
    )
    optimistic = sizes * (np.minimum(thresholds, cap) + staleness)
    best: _Best | None = None
    proven = 0
    for i in sorted(range(len(thresholds)), key=lambda i: (-int(optimistic[i]), i)):
        if best is not None and optimistic[i] <= best.sum_epochs:
            break
        members = np.flatnonzero(most >= thresholds[i])
        some = capacities.take(members)
        if total(some.at(1)) < search.demand:
            continue
        found = search.best(some, staleness, members, 0 if best is None else best.sum_epochs + 1)
        if found is not None:
            proven = max(proven, found.bound)
            best = found
    return None if best is None else _Best(best.members, best.epochs, best.capacity, proven)


def _least_spread(search: _Search, capacities: Capacities, staleness: int, best: _Best) -> _Best:
    """Among allocations as good as `best`, find one with the smallest staleness.

    The optimum never falls when the cap rises, so the smallest sufficient cap is found by bisection.
    """
    some = capacities.take(best.members)
    low, high, result = -1, min(staleness, int(best.epochs.max() - best.epochs.min())), best
    while high - low > 1:
        middle = (low + high) // 2
        found = search.best(some, middle, best.members, best.sum_epochs)
        if found is None:
            low = middle
        else:
            high, result = middle, _Best(found.members, found.epochs, found.capacity, best.bound)
    return result
