"""Plans within what learners with sample-level differential privacy declare.

Epsilon grows with the share of the data in a batch and with the number of steps, so such a learner needs at
least m_k samples and does at most S_k steps of B_k samples: tau_k ceil(d_k / B_k) <= S_k. Allocation problems
have no such limit. It is kept by those that they have, a learner's own deadline and its most samples, which
are drawn closer until the plan fits: what is planned is what the learner will do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from flwr_mel.allocation import AllocationProblem, Solution
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.devices import PrivateLimits
from flwr_mel.orchestrator.state import LearnerState
from flwr_mel.records import CycleRecord

_TRIES = 8
Solve = Callable[[AllocationProblem], Solution | None]


def solve_privately(
    problem: AllocationProblem, who: Sequence[LearnerState], record: CycleRecord, solve: Solve
) -> Solution | None:
    """Return a solution that keeps everybody's privacy limits.

    Whoever cannot be given a task within them after some tries is left out, and the record says so.

    Parameters
    ----------
    problem : AllocationProblem
        Of this cycle.
    who : sequence of LearnerState
        Its learners.
    record : CycleRecord
        Told whom it leaves out.
    solve : callable
        Solves a problem; may write notes on the record.
    """
    limits = {k: x.capability.private for k, x in enumerate(who) if x.capability and x.capability.private}
    private = {k: limit for k, limit in limits.items() if limit is not None}
    if not private:
        return solve(problem)
    problem = _narrowed(problem, private)
    told = list(record.notes)
    for tries in range(len(private) + _TRIES + 1):
        record.notes = list(told)
        solution = solve(problem)
        if solution is None:
            return None
        over = {k: limit for k, limit in private.items() if not _keeps(solution, k, limit)}
        if not over:
            return solution
        # Too few samples, or no way found: one after the other, since that leaves more to the next.
        out = next((k for k in over if tries >= _TRIES or solution.samples[k] < over[k].samples), None)
        if out is None:
            problem = _closer(problem, solution, over)
            continue
        told.append(f"{who[out].name} is left out: no task fits what its differential privacy declares")
        most = problem.max_samples.copy()
        most[out] = 0
        problem = problem.replace(max_samples=most)
    return None


def _keeps(solution: Solution, k: int, limit: PrivateLimits) -> bool:
    epochs, samples = int(solution.epochs[k]), int(solution.samples[k])
    return not epochs or limit.allow(epochs, samples)


def _narrowed(problem: AllocationProblem, private: dict[int, PrivateLimits]) -> AllocationProblem:
    """Return the problem with what the limits imply at once: tau d <= S B, and the least batch."""
    c, deadline_s, most = problem.coefficients, problem.deadline_s.copy(), problem.max_samples.copy()
    for k, limit in private.items():
        samples = limit.steps * limit.batch
        most[k] = min(int(most[k]), samples)
        longest = c.c2[k] * samples + c.c1[k] * float(most[k]) + c.c0[k]
        deadline_s[k] = min(float(deadline_s[k]), float(longest))
    problem = problem.replace(cycle_time_s=deadline_s, max_samples=most)
    least = max(limit.samples for limit in private.values())
    # The least batch is everybody's: raised only where that leaves out nobody who does not need it.
    able = Capacities.of(problem).at(1)
    others = np.array([k not in private for k in range(len(problem))])
    fits = problem.total_samples >= least * int((able >= least).sum())
    if least > problem.min_samples and fits and not (others & (able > 0) & (able < least)).any():
        return _least(problem, least)
    return problem


def _least(problem: AllocationProblem, least: int) -> AllocationProblem:
    try:
        return problem.replace(min_samples=least)
    except ValueError:
        return problem


def _closer(
    problem: AllocationProblem, solution: Solution, over: dict[int, PrivateLimits]
) -> AllocationProblem:
    """Return the problem without the tasks that broke a limit."""
    c, deadline_s, most = problem.coefficients, problem.deadline_s.copy(), problem.max_samples.copy()
    for k, limit in over.items():
        epochs = int(solution.epochs[k])
        fitting = limit.steps // epochs * limit.batch
        if fitting >= limit.samples:
            most[k] = min(int(most[k]), fitting)
        else:  # so many epochs fit no batch that is large enough: not even the least may take so long
            shortest = c.c2[k] * (epochs * limit.samples) + c.c1[k] * limit.samples + c.c0[k]
            deadline_s[k] = min(float(deadline_s[k]), float(np.nextafter(shortest, 0)))
    return problem.replace(cycle_time_s=deadline_s, max_samples=most)
