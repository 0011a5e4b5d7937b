"""The inverse questions: how fast, and how green, a given number of epochs can be.

With the epochs fixed, costs are linear in the samples. The known Flower schedulers for fixed epochs
place sample after sample (OLAR for the makespan, ECMTC for energy under a deadline); the same optima
follow from a bisection and a sort, whatever the number of samples.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from flwr_mel._validate import FloatArray, IntArray, complain, count, counts, frozen
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.handout import Handout, hand_out
from flwr_mel.allocation.problem import AllocationProblem
from flwr_mel.allocation.solution import Diagnosis, Infeasible
from flwr_mel.allocation.verify import BrokenAllocation, violations


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Samples for fixed epochs, with what they cost.

    Parameters
    ----------
    epochs, samples : int arrays
        tau_k as asked for, and d_k.
    cycle_time_s : float
        The makespan: when the last learner reports.
    total_energy_j : float
        Sum over the learners.
    time_s, energy_j : float arrays
        Per learner.
    """

    epochs: IntArray
    samples: IntArray
    cycle_time_s: float
    total_energy_j: float
    time_s: FloatArray
    energy_j: FloatArray


def fastest(problem: AllocationProblem, epochs: int | IntArray) -> Plan:
    """Find the smallest cycle time in which everybody can do the given epochs (minimum makespan).

    Energy limits, max_samples and min_samples hold; the problem's own cycle time and staleness play no
    part. Exact to the last bit of the cycle time.

    Parameters
    ----------
    problem : AllocationProblem
        The learners and the samples.
    epochs : int or int array
        tau for all, or tau_k per learner; at least 1.

    Raises
    ------
    Infeasible
        If no cycle time is long enough.
    """
    tau = _fixed_epochs(problem, epochs)

    cycle_time_s = _least_time(problem, tau)
    if cycle_time_s is None:
        raise Infeasible(_shortfall(problem, _capacity(problem, tau, np.inf), cycle_time_s=None))
    samples = hand_out(
        Handout.PROPORTIONAL,
        problem.total_samples,
        _capacity(problem, tau, cycle_time_s),
        problem.min_samples,
        tau,
    )
    return _plan(problem.replace(cycle_time_s=cycle_time_s), tau, samples)


def greenest(problem: AllocationProblem, epochs: int | IntArray) -> Plan:
    """Find the hand-out with the least total energy for the given epochs, within T and E_k.

    Everybody takes part, so the fixed costs are fixed: fill the learners in the order of joules per
    sample. Equals are served in the fleet's order.

    Parameters
    ----------
    problem : AllocationProblem
        The learners, the samples and the limits.
    epochs : int or int array
        tau for all, or tau_k per learner; at least 1.

    Raises
    ------
    Infeasible
        If the epochs do not fit into the limits; the diagnosis has the smallest cycle time.
    """
    tau = _fixed_epochs(problem, epochs)
    cap = _capacity(problem, tau, problem.cycle_time_s)
    if (cap < problem.min_samples).any() or cap.sum() < problem.total_samples:
        try:
            cycle_time_s: float | None = fastest(problem, tau).cycle_time_s
        except Infeasible:
            cycle_time_s = None
        raise Infeasible(_shortfall(problem, cap, cycle_time_s))
    price = problem.coefficients.g2 * tau + problem.coefficients.g1
    order = np.argsort(price, kind="stable")
    room = (cap - problem.min_samples)[order]
    before = np.cumsum(room) - room
    samples = np.full(len(problem), problem.min_samples, dtype=np.int64)
    samples[order] += np.clip(problem.total_samples - problem.min_samples * len(problem) - before, 0, room)
    return _plan(problem, tau, samples)


def _least_time(problem: AllocationProblem, tau: IntArray) -> float | None:
    """Return the smallest cycle time that lets everybody do its epochs; None if there is none.

    A bisection leaves a few samples per learner in doubt. Each of them fits from a moment of its own on,
    so the answer is the moment of the sample that completes d.
    """
    costs, demand, last = problem.coefficients, problem.total_samples, float(np.finfo(float).max)
    low = min(float(costs.time_s(tau, problem.min_samples).max()), last)
    high = min(float(costs.time_s(tau, np.minimum(problem.max_samples, demand)).max()), last)
    below, above = (_capacity(problem, tau, time_s) for time_s in (low, high))
    if (below < problem.min_samples).any() or above.sum() < demand:
        return None
    if below.sum() >= demand:
        return low
    share = 0.5
    while (doubtful := int((above - below).sum())) > 4 * len(tau) + 100:
        # In turn a straight line through both ends, which is nearly what the capacity is, and the middle.
        share = (demand - int(below.sum())) / doubtful if share == 0.5 else 0.5
        middle = low + (high - low) * share
        if not low < middle < high:
            if share == 0.5:
                return high
            continue
        cap = _capacity(problem, tau, middle)
        if cap.sum() >= demand:
            high, above = middle, cap
        else:
            low, below = middle, cap
    who = np.repeat(np.arange(len(tau)), above - below)
    batch = np.arange(1, len(who) + 1) - np.searchsorted(who, who) + below[who]
    moment = np.sort(costs.take(who).time_s(tau[who], batch))
    return float(moment[demand - int(below.sum()) - 1])


def _capacity(problem: AllocationProblem, tau: IntArray, cycle_time_s: float) -> IntArray:
    """Return the largest batches up to d, so that epochs times samples stays exact without a deadline."""
    capacities = Capacities.of(problem, cycle_time_s)
    return replace(capacities, most=np.minimum(capacities.most, problem.total_samples)).at(tau)


def _fixed_epochs(problem: AllocationProblem, epochs: int | IntArray) -> IntArray:
    if not isinstance(problem, AllocationProblem):
        raise complain("problem", "an AllocationProblem", problem)
    if epochs is None or np.isscalar(epochs):
        tau = np.full(len(problem), count("epochs", epochs, least=1), dtype=np.int64)
    else:
        tau = counts("epochs", epochs, length=len(problem), least=1)
    if int(tau.max()) > 2**53 // problem.total_samples:
        raise complain("epochs", "small enough that epochs times samples is below 2**53", int(tau.max()))
    return frozen(tau)


def _shortfall(problem: AllocationProblem, capacity: IntArray, cycle_time_s: float | None) -> Diagnosis:
    stuck = np.flatnonzero(capacity < problem.min_samples)
    if len(stuck):
        detail = (
            f"{len(stuck)} of {len(problem)} learners cannot do the given epochs on min_samples = "
            f"{problem.min_samples:,} within their limits (the first: learner {int(stuck[0])})"
        )
        return Diagnosis(problem.total_samples, 0, cycle_time_s, detail)
    fits = int(capacity.sum())
    detail = f"at the given epochs the learners carry {fits:,} of {problem.total_samples:,} samples"
    return Diagnosis(problem.total_samples, fits, cycle_time_s, detail)


def _plan(problem: AllocationProblem, tau: IntArray, samples: IntArray) -> Plan:
    time_s = problem.coefficients.time_s(tau, samples)
    energy_j = problem.coefficients.energy_j(tau, samples)
    # Fixed epochs are given, not chosen: the staleness cap and max_epochs do not apply to them.
    free = problem.replace(
        staleness=int(tau.max() - tau.min()), max_epochs=max(problem.max_epochs, int(tau.max()))
    )
    broken = violations(free, tau, samples)
    if broken:
        raise BrokenAllocation(f"the inverse question got a broken answer: {'; '.join(broken)}")
    return Plan(
        tau,
        frozen(samples),
        float(time_s.max()),
        float(energy_j.sum()),
        frozen(time_s),
        frozen(energy_j),
    )
