"""The exact solver: windows of epochs, a knapsack in each, a certificate for all (docs/THEORY.md)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from flwr_mel._validate import complain, count
from flwr_mel.allocation.allocate import Proposal
from flwr_mel.allocation.bisection import largest, least
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.handout import Handout, hand_out
from flwr_mel.allocation.objectives import Drift, Goal, Objective, PerCost, Progress, goal_of
from flwr_mel.allocation.problem import AllocationProblem
from flwr_mel.allocation.screening import diagnose, screen
from flwr_mel.allocation.solution import Infeasible, Reason, Status
from flwr_mel.solvers.epochs import Best, Search
from flwr_mel.solvers.options import LARGE, Index, spread, total
from flwr_mel.solvers.progress import WORK, maximise
from flwr_mel.solvers.ratio import best_ratio
from flwr_mel.solvers.worth import Point, Worth, best_handed_out, less_drift

#: Objectives that are no integers count as met from here on.
_NEARLY = 1 + 1e-9


class Exclude(StrEnum):
    """Whom the solver may leave out."""

    INFEASIBLE = "infeasible"
    """Only learners that cannot take part."""
    OPTIMAL = "optimal"
    """Also stragglers, when that raises the sum of epochs."""


class TieBreak(StrEnum):
    """Which of several optimal allocations is taken."""

    SLACK = "slack"
    """The one with most spare capacity, which leaves the hand-out most freedom. With a staleness of two
    dozen and more, the first one found."""
    SPREAD = "spread"
    """The one with the smallest staleness; among those, most spare capacity."""


@dataclass(frozen=True, slots=True)
class Exact:
    """Maximise the mean number of epochs, or the progress, with proof.

    Optimal (bound = objective) for fleets up to a few thousand learners. Beyond `core` open learners
    the dynamic programme sees only the most promising ones; the result then comes with the bound of
    the linear relaxation, which it nearly always meets anyway. With a staleness of hundreds it may stay
    a little below its bound.

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
    objective : Goal or str
        "epochs" or `Epochs()`: the paper's mean of tau_k. "progress" or `Progress()`: the sum S of
        tau_k d_k^2 / d. "soonest" or `Soonest()`, "cheapest" or `Cheapest()`, and `PerCost(...)` between
        them: S per second, per joule, per cost, where the cycle may end before T. `Drift(penalty)`: steps
        less a penalty for drift. All but the first fix the d_k, so `handout` and `tie_break` do not apply.
        S is never below what the three hand-outs of the epochs' allocation give, in fleets of up to a few
        thousand. Value, bound, gap and status are about the objective.
    """

    handout: Handout = Handout.PROPORTIONAL
    exclude: Exclude = Exclude.INFEASIBLE
    tie_break: TieBreak = TieBreak.SLACK
    core: int = 4000
    objective: Goal | str = Objective.EPOCHS

    def __post_init__(self) -> None:
        options = {"handout": Handout, "exclude": Exclude, "tie_break": TieBreak}
        for name, kind in options.items():
            object.__setattr__(self, name, option(name, kind, getattr(self, name)))
        object.__setattr__(self, "core", count("core", self.core, least=1))
        object.__setattr__(self, "objective", goal_of(self.objective))

    def solve(self, problem: AllocationProblem) -> Proposal:
        """Propose the optimal allocation, or raise `Infeasible`."""
        if isinstance(self.objective, Progress):
            problem = _capped(problem, self.objective.max_share)
        capacities = Capacities.of(problem)
        able, excluded = screen(capacities)
        if not len(able):
            raise Infeasible(diagnose(problem))
        mine = capacities.take(able) if len(able) < len(problem) else capacities
        if total(mine.at(1)) < problem.total_samples:
            raise Infeasible(diagnose(problem))
        if self.objective is Objective.EPOCHS:
            return self._epochs(problem, mine, able, excluded)
        if isinstance(self.objective, PerCost):
            found = best_ratio(problem, self.objective, optional=self._leave_out)
            epochs, samples = found.epochs[able], found.samples[able]
            bound, stats = max(found.bound, found.value), {"times": found.times}
            optimal = bound <= found.value * _NEARLY
        elif isinstance(self.objective, Drift):
            goal, d = self.objective, problem.total_samples
            worth = less_drift(mine, d, goal)
            point, limit, windows = maximise(
                mine, d, problem.staleness, optional=self._leave_out, worth=worth, work=WORK // 8
            )
            epochs, samples, stats = point.epochs, point.samples, {"windows": windows}
            value = goal.measure(
                problem, spread(epochs, len(problem), able), spread(samples, len(problem), able)
            )[0]
            bound = max(limit / worth.unit, value)
            optimal = bound <= value + (_NEARLY - 1) * abs(value)
        else:
            start = self._handed_out(problem, mine) if len(able) <= LARGE else None
            point, bound, windows = maximise(
                mine, problem.total_samples, problem.staleness, start, optional=self._leave_out
            )
            epochs, samples, stats = point.epochs, point.samples, {"windows": windows}
            optimal = bound == point.value
        excluded |= {int(k): Reason.WEAK for k in able[epochs == 0]}
        status = Status.OPTIMAL if optimal else Status.FEASIBLE
        whole = spread(epochs, len(problem), able), spread(samples, len(problem), able)
        return Proposal(*whole, bound, status, excluded, stats, goal_of(self.objective))

    @property
    def _leave_out(self) -> bool:
        return self.exclude is Exclude.OPTIMAL

    def _epochs(
        self, problem: AllocationProblem, mine: Capacities, able: Index, excluded: dict[int, Reason]
    ) -> Proposal:
        """Maximise the paper's objective, then hand out."""
        search = Search(problem.total_samples, self.core)
        best = self._best(search, mine, problem.staleness)
        if self.tie_break is TieBreak.SPREAD:
            best = _least_spread(search, mine, problem.staleness, best)
        if len(best.members) < len(able):
            excluded |= {int(k): Reason.STRAGGLER for k in np.delete(able, best.members)}
        who = able[best.members]
        some = mine if len(who) == len(able) else mine.take(best.members)
        # The search knows capacities up to the demand.
        room = best.capacity if best.capacity.max() < problem.total_samples else some.at(best.epochs)
        given = hand_out(self.handout, problem.total_samples, room, problem.min_samples, best.epochs)
        status = Status.OPTIMAL if best.bound == best.sum_epochs else Status.FEASIBLE
        whole = spread(best.epochs, len(problem), who), spread(given, len(problem), who)
        return Proposal(*whole, best.bound, status, excluded, {"windows": search.windows})

    def _best(self, search: Search, mine: Capacities, staleness: int) -> Best:
        if self._leave_out:
            best = _best_subset(search, mine, staleness)
        else:
            best, _ = search.best(mine, staleness, np.arange(len(mine)))
        if best is None:  # pragma: no cover - everybody at one epoch is always a solution here
            raise RuntimeError("no window holds a solution although one epoch each fits")
        return best

    def _handed_out(self, problem: AllocationProblem, mine: Capacities) -> Point:
        """Begin the search for progress with the best hand-out of the epochs' optimum."""
        best = self._best(Search(problem.total_samples, self.core), mine, problem.staleness)
        room = mine.take(best.members).at(best.epochs)
        point = best_handed_out(Worth(), problem.total_samples, room, problem.min_samples, best.epochs)
        epochs, samples = (spread(values, len(mine), best.members) for values in point[1:])
        return Point(point.value, epochs, samples)


def _capped(problem: AllocationProblem, share: float) -> AllocationProblem:
    """Let nobody have more than a share of the samples."""
    most = max(int(share * problem.total_samples), problem.min_samples)
    return problem.replace(max_samples=np.minimum(problem.max_samples, most))


def option(name: str, kind: type[StrEnum], value: str) -> StrEnum:
    """Turn a string into the option it names, or say which there are."""
    try:
        return kind(value)
    except ValueError:
        raise complain(name, f"one of {', '.join(repr(str(o)) for o in kind)}", value) from None


def _best_subset(search: Search, capacities: Capacities, staleness: int) -> Best | None:
    """Find the best allocation over all sets of participants.

    Inside a window taking part is always worth it: it adds epochs and capacity. So the only reason to
    leave a learner out is that it cannot keep up with the window, and the sets worth a look are
    "everybody who can do at least u epochs".
    """
    most = capacities.most_epochs
    thresholds, counts = np.unique(most, return_counts=True)
    sizes = counts[::-1].cumsum()[::-1]
    # The slowest member limits a set, and so does the capacity of everybody who keeps up.
    cap = largest(
        1,
        int(most.max()),
        lambda tau: total(capacities.take(np.flatnonzero(most >= tau)).at(tau)) >= search.demand,
    )
    optimistic = sizes * (np.minimum(thresholds, cap) + staleness)
    best: Best | None = None
    proven = 0
    for i in sorted(range(len(thresholds)), key=lambda i: (-int(optimistic[i]), i)):
        if best is not None and optimistic[i] <= best.sum_epochs:
            break
        members = np.flatnonzero(most >= thresholds[i])
        some = capacities.take(members)
        if total(some.at(1)) < search.demand:
            continue
        found, bound = search.best(some, staleness, members, 0 if best is None else best.sum_epochs + 1)
        proven = max(proven, bound)
        best = best if found is None else found
    if best is None:
        return None
    return Best(best.members, best.epochs, best.capacity, max(proven, best.sum_epochs))


def _least_spread(search: Search, capacities: Capacities, staleness: int, best: Best) -> Best:
    """Among allocations as good as `best`, find one with the smallest staleness.

    The optimum never falls when the cap rises, so the smallest sufficient cap is found by bisection.
    """
    some = capacities.take(best.members)
    found: dict[int, Best | None] = {}

    def works(cap: int) -> bool:
        found[cap], _ = search.best(some, cap, best.members, best.sum_epochs)
        return found[cap] is not None

    cap = least(0, min(staleness, int(best.epochs.max() - best.epochs.min())), works)
    better = found.get(cap)
    return best if better is None else Best(better.members, better.epochs, better.capacity, best.bound)
