"""The exact solver: windows of epochs, a knapsack in each, a certificate for all (docs/THEORY.md)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import complain, count
from flwr_mel.allocation.allocate import Proposal
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.handout import Handout, hand_out
from flwr_mel.allocation.problem import AllocationProblem
from flwr_mel.allocation.screening import diagnose, screen
from flwr_mel.allocation.solution import Infeasible, Objective, Reason, Status, weighted_squares
from flwr_mel.solvers.knapsack import total
from flwr_mel.solvers.progress import maximise
from flwr_mel.solvers.progress_windows import Point
from flwr_mel.solvers.windows import Best, Search, bisect


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
        search = Search(problem.total_samples, self.core)
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
        best: Best,
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


def _handed_out(problem: AllocationProblem, capacities: Capacities, best: Best, rule: Handout) -> Point:
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
    cap = bisect(
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
        found = search.best(some, staleness, members, 0 if best is None else best.sum_epochs + 1)
        if found is not None:
            proven = max(proven, found.bound)
            best = found
    return None if best is None else Best(best.members, best.epochs, best.capacity, proven)


def _least_spread(search: Search, capacities: Capacities, staleness: int, best: Best) -> Best:
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
            high, result = middle, Best(found.members, found.epochs, found.capacity, best.bound)
    return result
