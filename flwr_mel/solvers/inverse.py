"""The inverse questions: how fast, and how green, a given number of epochs can be.

With the epochs fixed, costs are linear in the samples. The least makespan follows from a bisection over the
cycle time, the least energy from filling the learners in the order of joules per sample.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from flwr_mel._validate import FloatArray, IntArray, Phrase, complain, count, counts, frozen
from flwr_mel.allocation.allocate import BrokenAllocation, violations
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.handout import Handout, hand_out
from flwr_mel.allocation.problem import AllocationProblem
from flwr_mel.allocation.screening import carries
from flwr_mel.allocation.solution import Diagnosis, Infeasible


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
    """Find the smallest cycle time in which all learners can do the given epochs (minimum makespan).

    Energy limits, max_samples, min_samples and deadlines that differ between learners hold; a cycle time
    common to all and staleness play no part. Exact to the last bit of the cycle time; of the hand-outs with
    that makespan it is one with the least energy.

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
    fixed = _Fixed(problem, _checked_epochs(problem, epochs))
    until = problem.deadline_s if problem.own_deadlines else np.full(len(problem), np.inf)
    cycle_time_s = fixed.least_time(until)
    if cycle_time_s is None:
        raise Infeasible(fixed.shortfall(until))
    until = np.minimum(until, cycle_time_s)
    return fixed.plan(fixed.least_energy(fixed.capacity(until)), until)


def greenest(problem: AllocationProblem, epochs: int | IntArray) -> Plan:
    """Find the hand-out with the least total energy for the given epochs, within T and E_k.

    The last report of those for which a sample costs the same comes as soon as possible.

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
    fixed = _Fixed(problem, _checked_epochs(problem, epochs))
    capacity = fixed.capacity(problem.deadline_s)
    if not fixed.enough(capacity):
        raise Infeasible(fixed.shortfall(problem.deadline_s))
    samples = fixed.soonest_of_equals(capacity, fixed.least_energy(capacity))
    return fixed.plan(samples, problem.deadline_s)


def _checked_epochs(problem: AllocationProblem, epochs: int | IntArray) -> IntArray:
    if not isinstance(problem, AllocationProblem):
        raise complain("problem", "an AllocationProblem", problem)
    if epochs is None or np.isscalar(epochs):
        tau = np.full(len(problem), count("epochs", epochs, least=1), dtype=np.int64)
    else:
        tau = counts("epochs", epochs, length=len(problem), least=1)
    if int(tau.max()) > 2**53 // problem.total_samples:
        raise complain("epochs", "small enough that epochs times samples is below 2**53", int(tau.max()))
    return frozen(tau)


@dataclass(frozen=True, slots=True, eq=False)
class _Fixed:
    """A problem with fixed epochs."""

    problem: AllocationProblem
    tau: IntArray

    def capacity(self, until: FloatArray) -> IntArray:
        """Return the largest batches with ends of its own for each learner, up to d."""
        capacities = Capacities.of(self.problem, until)
        most = np.minimum(capacities.most, self.problem.total_samples)
        return replace(capacities, most=most).at(self.tau)

    def enough(self, capacity: IntArray) -> bool:
        """Whether the learners can have all samples, none of them less than the smallest batch."""
        least = self.problem.min_samples
        return bool((capacity >= least).all()) and carries(
            capacity, least, self.problem.total_samples, leave_out=False
        )

    def least_time(self, until: FloatArray) -> float | None:
        """Return the smallest cycle time that is enough, with ends of its own for each learner.

        A bisection leaves a few samples per learner in doubt. Each of them fits from a moment of its own on,
        and the answer is the moment of the sample that completes d.
        """
        problem, tau, last = self.problem, self.tau, float(np.finfo(float).max)
        costs, demand, least = problem.coefficients, problem.total_samples, problem.min_samples
        low = min(float(costs.time_s(tau, least).max()), last)
        high = min(float(costs.time_s(tau, np.minimum(problem.max_samples, demand)).max()), last)
        below, above = (self.capacity(np.minimum(until, time_s)) for time_s in (low, high))
        if (below < least).any() or not self.enough(above):
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
            capacity = self.capacity(np.minimum(until, middle))
            if capacity.sum() >= demand:
                high, above = middle, capacity
            else:
                low, below = middle, capacity
        chosen = np.repeat(np.arange(len(tau)), above - below)
        batch = np.arange(1, len(chosen) + 1) - np.searchsorted(chosen, chosen) + below[chosen]
        moment = np.sort(costs.take(chosen).time_s(tau[chosen], batch))
        return float(moment[demand - int(below.sum()) - 1])

    def least_energy(self, capacity: IntArray) -> IntArray:
        """Return the samples with the least energy: in the order of joules per sample."""
        least = self.problem.min_samples
        order = np.argsort(self._price(), kind="stable")
        room = capacity[order] - least
        before = np.cumsum(room) - room
        samples = np.zeros(len(self.tau), dtype=np.int64)
        samples[order] = least + np.clip(self.problem.total_samples - least * len(order) - before, 0, room)
        return samples

    def _price(self) -> FloatArray:
        """Return joules per sample."""
        price: FloatArray = self.problem.coefficients.g2 * self.tau + self.problem.coefficients.g1
        return price

    def soonest_of_equals(self, capacity: IntArray, samples: IntArray) -> IntArray:
        """Hand out anew among the learners with the price at which the samples ran out."""
        problem, price, more = self.problem, self._price(), samples > self.problem.min_samples
        if not more.any():
            return samples
        equal = np.flatnonzero(price == price[more].max())
        if len(equal) == 1 or (samples[equal] == capacity[equal]).all():
            return samples
        some = AllocationProblem(
            problem.coefficients.take(equal),
            problem.deadline_s[equal],
            total_samples=int(samples[equal].sum()),
            min_samples=problem.min_samples,
            max_samples=capacity[equal],
            max_epochs=int(self.tau.max()),
        )
        part, until = _Fixed(some, self.tau[equal]), np.full(len(equal), np.inf)
        time_s = part.least_time(until)
        room = np.minimum(part.capacity(np.minimum(until, time_s or np.inf)), capacity[equal])
        fresh = samples.copy()
        fresh[equal] = hand_out(Handout.PROPORTIONAL, some.total_samples, room, some.min_samples, part.tau)
        return fresh

    def shortfall(self, until: FloatArray) -> Diagnosis:
        """Say why the given epochs do not fit, and which cycle time for all would be long enough."""
        problem, capacity = self.problem, self.capacity(until)
        d, least, learners = problem.total_samples, problem.min_samples, len(problem)
        time_s = self.least_time(np.full(learners, np.inf))
        stuck = np.flatnonzero(capacity < least)
        if learners * least > d:
            detail = f"the smallest batches of {learners} learners need {learners * least:,} of {d:,} samples"
            return Diagnosis(d, 0, None, detail)
        if len(stuck):
            detail = Phrase(
                f"{len(stuck)} of {learners} learners cannot do the given epochs on {{}} = {least:,} within "
                f"their limits (the first: {{}})",
                "min_samples",
                f"learner {int(stuck[0])}",
            )
            return Diagnosis(d, 0, time_s, detail)
        fits = int(capacity.sum())
        detail = f"with the given epochs, the learners can process {fits:,} of {d:,} samples"
        return Diagnosis(d, fits, time_s, detail)

    def plan(self, samples: IntArray, until: FloatArray) -> Plan:
        """Verify the samples and return them with their costs."""
        time_s = self.problem.coefficients.time_s(self.tau, samples)
        energy_j = self.problem.coefficients.energy_j(self.tau, samples)
        # Fixed epochs are given, not chosen: the staleness cap and max_epochs do not apply to them.
        free = self.problem.replace(staleness=None, max_epochs=int(self.tau.max()), cycle_time_s=until)
        broken = violations(free, self.tau, samples)
        if broken:
            raise BrokenAllocation(f"the inverse question got a broken answer: {'; '.join(broken)}")
        makespan_s, total_j = float(time_s.max()), float(energy_j.sum())
        return Plan(self.tau, frozen(samples), makespan_s, total_j, frozen(time_s), frozen(energy_j))
