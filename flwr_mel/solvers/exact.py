"""The exact solver: the most epochs in total, then a hand-out of the samples."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from flwr_mel._validate import IntArray, complain
from flwr_mel.allocation.allocate import Proposal
from flwr_mel.allocation.bisection import largest
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.handout import Handout, hand_out
from flwr_mel.allocation.problem import AllocationProblem
from flwr_mel.allocation.screening import spread, take_part
from flwr_mel.allocation.solution import Reason, Status
from flwr_mel.solvers.knapsack import Best, best_epochs, best_few


class Exclude(StrEnum):
    """Which learners the solver may leave out."""

    INFEASIBLE = "infeasible"
    """Only learners that cannot take part."""
    OPTIMAL = "optimal"
    """Also stragglers, when that raises the sum of epochs."""


@dataclass(frozen=True, slots=True)
class Exact:
    """Maximise the mean number of epochs, with proof.

    Status OPTIMAL means that the proven bound is met. That is so for fleets up to a few hundred learners with
    a staleness of a few epochs, and mostly beyond; elsewhere the bound tells how far the optimum can be,
    mostly a few epochs in total. In small fleets, of several optima it is one with the most spare capacity.

    Parameters
    ----------
    handout : Handout or str
        Rule for the d_k: "proportional" (to capacity), "even" or "strongest-first".
    exclude : Exclude or str
        "infeasible" leaves out only learners that cannot take part; "optimal" also those without which the
        mean is higher.
    """

    handout: Handout = Handout.PROPORTIONAL
    exclude: Exclude = Exclude.INFEASIBLE

    def __post_init__(self) -> None:
        for name, kind in (("handout", Handout), ("exclude", Exclude)):
            object.__setattr__(self, name, option(name, kind, getattr(self, name)))

    def solve(self, problem: AllocationProblem) -> Proposal:
        """Propose the optimal allocation, or raise `Infeasible`."""
        leave_out = self.exclude is Exclude.OPTIMAL
        able, mine, excluded = take_part(problem, leave_out=leave_out)
        d, least = problem.total_samples, problem.min_samples
        members = np.arange(len(able))
        if leave_out:
            members, best = _best_subset(mine, d, problem.staleness)
            excluded |= {int(k): Reason.STRAGGLER for k in np.delete(able, members)}
        else:
            best = best_epochs(mine, d, problem.staleness)
        room = (mine.take(members) if leave_out else mine).at(best.epochs)
        samples = hand_out(self.handout, d, room, least, best.epochs)
        status = Status.OPTIMAL if best.bound == best.sum_epochs else Status.FEASIBLE
        chosen, learners = able[members], len(problem)
        whole = spread(best.epochs, learners, chosen), spread(samples, learners, chosen)
        return Proposal(*whole, best.bound, status, excluded)


def option(name: str, kind: type[StrEnum], value: str) -> StrEnum:
    """Turn a string into the option it names, or say which there are."""
    try:
        return kind(value)
    except ValueError:
        raise complain(name, f"one of {', '.join(repr(str(o)) for o in kind)}", value) from None


def _best_subset(capacities: Capacities, demand: int, staleness: int) -> tuple[IntArray, Best]:
    """Find the best allocation over all sets of participants; also return the set.

    Inside a window taking part always helps: it adds epochs and capacity. So the only reason to leave a
    learner out is that it cannot keep up with the window, and the sets that count are "all learners that can
    do at least u epochs". That is so unless their smallest batches need more than all samples.
    """
    most, seats = capacities.most_epochs, demand // capacities.least
    if len(capacities) > seats:
        return best_few(capacities, demand, staleness, seats)
    thresholds, counts = np.unique(most, return_counts=True)
    sizes = counts[::-1].cumsum()[::-1]
    # The slowest member limits a set, and so does the capacity of all that keep up.
    cap = largest(
        1,
        int(most.max()),
        lambda tau: int(capacities.at(tau)[most >= tau].sum()) >= demand,
    )
    optimistic = np.minimum(sizes * (np.minimum(thresholds, cap) + staleness), most.sum())
    members, best, proven = np.arange(len(capacities)), Best(np.zeros(0, dtype=np.int64), 0), 0
    for i in np.argsort(-optimistic, kind="stable"):
        if optimistic[i] <= best.sum_epochs:
            break
        some = np.flatnonzero(most >= thresholds[i])
        part = capacities.take(some)
        if int(part.at(1).sum()) < demand:
            continue
        found = best_epochs(part, demand, staleness)
        proven = max(proven, found.bound)
        members, best = (some, found) if found.sum_epochs > best.sum_epochs else (members, best)
    return members, Best(best.epochs, max(proven, best.sum_epochs))
