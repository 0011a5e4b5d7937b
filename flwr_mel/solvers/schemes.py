"""The paper's schemes by name: which solver, and whether staleness is allowed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from flwr_mel._validate import complain, count
from flwr_mel.allocation.allocate import Solver, allocate, check_solver
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

    @property
    def aware(self) -> bool:
        """Whether batches follow the learners' capabilities."""
        return self.value.startswith("ha")

    @property
    def synchronous(self) -> bool:
        """Whether all learners do the same number of epochs."""
        return self.value.endswith("sync")


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
        "ha-asyn", "ha-sync", "hu-asyn" or "hu-sync".
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
    return Scheme(which, Exact() if solver is None else solver, cap)
