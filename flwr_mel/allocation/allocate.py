"""The front door: check, solve, verify in integers, return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Protocol, runtime_checkable

import numpy as np

from flwr_mel._validate import IntArray, complain, frozen
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.objectives import EPOCHS, Goal
from flwr_mel.allocation.problem import AllocationProblem
from flwr_mel.allocation.screening import screen
from flwr_mel.allocation.solution import Diagnosis, Infeasible, Reason, Solution, Status


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """What a solver hands back for verification.

    Parameters
    ----------
    epochs, samples : int arrays
        tau_k and d_k over all learners.
    bound : int or float
        Proven upper bound on what `objective` counts: sum_k tau_k for the mean epochs.
    status : Status
        Never INFEASIBLE; a solver raises `Infeasible` for that.
    excluded : mapping of int to Reason
        Learners left out.
    stats : mapping
        Figures about the solver's work.
    objective : Goal
        What the allocation was made for; `bound` and `status` are about it.
    """

    epochs: IntArray
    samples: IntArray
    bound: int | float
    status: Status
    excluded: Mapping[int, Reason]
    stats: Mapping[str, float | str] = field(default_factory=dict)
    objective: Goal = EPOCHS


@runtime_checkable
class Solver(Protocol):
    """A small immutable object that proposes allocations."""

    def solve(self, problem: AllocationProblem) -> Proposal:
        """Propose an allocation, or raise `Infeasible`."""
        ...


def check_solver(solver: object) -> None:
    """Refuse what is not a solver, and a solver's class where an object is meant."""
    if isinstance(solver, type) or not callable(getattr(solver, "solve", None)):
        raise complain("solver", "a solver object such as Exact()", solver)


def allocate(problem: AllocationProblem, solver: Solver | None = None, *, throw: bool = True) -> Solution:
    """Allocate epochs and samples to the learners of a problem.

    Every constraint is checked again on the finished integer allocation, for every solver.

    Parameters
    ----------
    problem : AllocationProblem
        The learners and the limits.
    solver : Solver, optional
        `Exact`, `Rate`, `SuggestImprove` or `EqualBatches`; None: `Exact()`.
    throw : bool
        True: raise `Infeasible`, with its diagnosis, when there is no allocation. False: return a
        solution with status INFEASIBLE, zero epochs and the diagnosis.

    Returns
    -------
    Solution
        The allocation with the value of its objective, the bound on it and its status.
    """
    if not isinstance(problem, AllocationProblem):
        raise complain("problem", "an AllocationProblem", problem)
    if solver is None:
        from flwr_mel.solvers.exact import Exact  # noqa: PLC0415 - solvers import this module

        solver = Exact()
    check_solver(solver)
    start = perf_counter()
    try:
        proposal = solver.solve(problem)
    except Infeasible as infeasible:
        if throw:
            raise
        return _nothing(problem, infeasible.diagnosis, perf_counter() - start)
    broken = violations(
        problem,
        proposal.epochs,
        proposal.samples,
        all_samples=proposal.status is not Status.PARTIAL,
    )
    goal = proposal.objective
    if not broken:
        counted, per = goal.measure(problem, proposal.epochs, proposal.samples)
        if counted > proposal.bound:
            broken.append(f"{goal} counts {counted}, above its bound {proposal.bound}")
    if broken:
        raise BrokenAllocation(f"{type(solver).__name__} returned a broken allocation: {'; '.join(broken)}")
    seconds = perf_counter() - start
    return Solution(
        epochs=frozen(proposal.epochs),
        samples=frozen(proposal.samples),
        value=counted / per,
        bound=proposal.bound / per,
        status=proposal.status,
        excluded=dict(proposal.excluded),
        time_s=frozen(problem.coefficients.time_s(proposal.epochs, proposal.samples)),
        energy_j=frozen(problem.coefficients.energy_j(proposal.epochs, proposal.samples)),
        stats={**proposal.stats, "seconds": seconds},
        objective=goal,
    )


def _nothing(problem: AllocationProblem, diagnosis: Diagnosis, seconds: float) -> Solution:
    none = frozen(np.zeros(len(problem), dtype=np.int64))
    nil = frozen(np.zeros(len(problem)))
    return Solution(
        epochs=none,
        samples=none,
        value=0.0,
        bound=0.0,
        status=Status.INFEASIBLE,
        excluded=screen(Capacities.of(problem))[1],
        time_s=nil,
        energy_j=nil,
        diagnosis=diagnosis,
        stats={"seconds": seconds},
    )


class BrokenAllocation(AssertionError):
    """A solver returned an allocation that breaks a limit: a bug of the solver, not of the input."""


def violations(
    problem: AllocationProblem, epochs: IntArray, samples: IntArray, *, all_samples: bool = True
) -> list[str]:
    """List every broken constraint of an integer allocation, without any tolerance.

    Parameters
    ----------
    problem : AllocationProblem
        The limits.
    epochs, samples : int arrays
        tau_k and d_k.
    all_samples : bool
        Whether sum d_k = d is asked for; equal batches may leave samples unused.
    """
    for name, values in (("epochs", epochs), ("samples", samples)):
        if values.shape != (len(problem),) or values.dtype.kind != "i":
            return [f"{name} is not one integer per learner"]
    taking_part = (epochs > 0) | (samples > 0)
    if not taking_part.any():
        return ["no learner takes part"]
    rules = {
        "epochs and samples are positive together": (epochs > 0) & (samples > 0),
        "d_k >= min_samples": samples >= problem.min_samples,
        "d_k <= max_samples": samples <= problem.max_samples,
        "tau_k <= max_epochs": epochs <= problem.max_epochs,
        "t_k <= cycle_time_s": problem.coefficients.time_s(epochs, samples) <= problem.deadline_s,
        "e_k <= energy_limit_j": problem.coefficients.energy_j(epochs, samples) <= problem.energy_limit_j,
    }
    broken = []
    for rule, kept in rules.items():
        stuck = taking_part & ~kept
        if stuck.any():
            broken.append(f"{rule} is broken by learners {np.flatnonzero(stuck)[:5].tolist()}")
    tau, total = epochs[taking_part], int(samples.sum())
    spread = int(tau.max() - tau.min())
    if spread > problem.staleness:
        broken.append(f"staleness is {spread}, above {problem.staleness}")
    if all_samples and total != problem.total_samples:
        broken.append(f"sum d_k is {total}, not {problem.total_samples}")
    if total > problem.total_samples:
        broken.append(f"sum d_k is {total}, above {problem.total_samples}")
    return broken
