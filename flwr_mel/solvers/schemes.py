"""Schemes by name, the paper's and ours: which solver, and whether staleness is allowed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from flwr_mel._validate import complain, count
from flwr_mel.allocation.allocate import Solver, allocate, check_solver
from flwr_mel.allocation.objectives import Goal, goal_of
from flwr_mel.allocation.problem import AllocationProblem
from flwr_mel.allocation.solution import Solution
from flwr_mel.solvers.equal import EqualBatches
from flwr_mel.solvers.exact import Exact


class SchemeName(StrEnum):
    """Heterogeneity aware or unaware, synchronous or asynchronous."""

    HA_ASYN = "ha-asyn"
    HA_SYNC = "ha-sync"
    HU_ASYN = "hu-asyn"
    HU_SYNC = "hu-sync"
    HA_PROGRESS = "ha-progress"
    """Ours: `Exact` with the progress objective, the best measured choice (docs/REPRODUCTION.md)."""
    SOONEST = "soonest"
    """Ours: `Exact` with most progress per second; a cycle may end before T."""
    CHEAPEST = "cheapest"
    """Ours: `Exact` with most progress per joule."""

    @property
    def aware(self) -> bool:
        """Whether batches follow the learners' capabilities."""
        return not self.value.startswith("hu")

    @property
    def objective(self) -> Goal:
        """What a scheme's solver is asked for."""
        named = {
            SchemeName.HA_PROGRESS: "progress",
            SchemeName.SOONEST: "soonest",
            SchemeName.CHEAPEST: "cheapest",
        }
        return goal_of(named.get(self, "epochs"))

    @property
    def synchronous(self) -> bool:
        """Whether everybody does the same number of epochs."""
        return self.value.endswith("sync")


#: The paper's own, in its order.
PAPER_SCHEMES = (SchemeName.HA_ASYN, SchemeName.HA_SYNC, SchemeName.HU_ASYN, SchemeName.HU_SYNC)


@dataclass(frozen=True, slots=True)
class Scheme:
    """A scheme: its name, its solver and its staleness cap."""

    name: SchemeName
    solver: Solver
    staleness: int

    def allocate(self, problem: AllocationProblem, *, throw: bool = True) -> Solution:
        """Allocate under this scheme, whatever staleness the problem has."""
        return allocate(problem.replace(staleness=self.staleness), self.solver, throw=throw)


def scheme(name: str, staleness: int | None = None, solver: Solver | None = None) -> Scheme:
    """Look a scheme up by its name.

    Parameters
    ----------
    name : str
        "ha-asyn", "ha-sync", "hu-asyn" or "hu-sync" of the paper; "ha-progress", "soonest" or "cheapest".
    staleness : int, optional
        c. The synchronous schemes have 0 and refuse any other; the others default to 1.
    solver : Solver, optional
        For the heterogeneity-aware schemes, in place of `Exact`.
    """
    try:
        which = SchemeName(name)
    except ValueError:
        raise complain("scheme", f"one of {', '.join(SchemeName)}", name) from None
    cap = count("staleness", int(not which.synchronous) if staleness is None else staleness)
    if which.synchronous and cap:
        raise complain("staleness", f"0 for the synchronous scheme {which}", staleness)
    if solver is not None:
        check_solver(solver)
    if not which.aware:
        if solver is not None and not isinstance(solver, EqualBatches):
            raise complain("solver", f"left out for {which}, which has equal batches", solver)
        return Scheme(which, EqualBatches(), cap)
    if isinstance(solver, EqualBatches):
        raise complain("solver", f"a heterogeneity-aware one for {which}", solver)
    solver = Exact(objective=which.objective) if solver is None else solver
    if which not in PAPER_SCHEMES and getattr(solver, "objective", None) != which.objective:
        raise complain("solver", f'Exact(objective="{which.objective}") for {which}', solver)
    return Scheme(which, solver, cap)
