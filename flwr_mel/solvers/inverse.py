"""The inverse questions: how fast, and how green, a given number of epochs can be.

With the epochs fixed, costs are linear in the samples. Schedulers for fixed epochs place sample after sample
(OLAR for the makespan, MarIn for energy) or count them one by one (ECMTC, (MC)^2MKP); the same optima follow
from a bisection and a sort, whatever the number of samples (bench/schedulers.py has them all).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from flwr_mel._validate import FloatArray, IntArray, Phrase, complain, count, counts, frozen
from flwr_mel.allocation.allocate import BrokenAllocation, violations
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.handout import Handout, hand_out
from flwr_mel.allocation.problem import AllocationProblem
from flwr_mel.allocation.screening import smallest
from flwr_mel.allocation.solution import Diagnosis, Infeasible
from flwr_mel.solvers.progress import maximise
from flwr_mel.solvers.worth import Worth


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
    energy_bound_j : float, optional
        Where learners could be left out: no plan spends less. Elsewhere the total is the least.
    """

    epochs: IntArray
    samples: IntArray
    cycle_time_s: float
    total_energy_j: float
    time_s: FloatArray
    energy_j: FloatArray
    energy_bound_j: float | None = None


def fastest(problem: AllocationProblem, epochs: int | IntArray, *, leave_out: bool = False) -> Plan:
    """Find the smallest cycle time in which everybody can do the given epochs (minimum makespan).

    Energy limits, max_samples, min_samples and deadlines that differ between learners hold; a cycle time
    common to all and staleness play no part. Exact to the last bit of the cycle time; of the hand-outs with
    that makespan it is one with the least energy.

    Parameters
    ----------
    problem : AllocationProblem
        The learners and the samples.
    epochs : int or int array
        tau for all, or tau_k per learner; at least 1.
    leave_out : bool
        Whether learners may be left out who would hold the others up.

    Raises
    ------
    Infeasible
        If no cycle time is long enough.
    """
    tau = _fixed_epochs(problem, epochs)
    until = problem.deadline_s if problem.own_deadlines else np.full(len(problem), np.inf)
    if leave_out:
        soonest = smallest(1.0, lambda t: _carries(problem, _capacity(problem, tau, np.minimum(until, t))))
        if soonest is None:
            raise Infeasible(_shortfall(problem, _capacity(problem, tau, until), None))
        until = np.minimum(until, soonest)
        samples, bound = _cheapest_set(problem, tau, _capacity(problem, tau, until))
        return _plan(problem, np.where(samples > 0, tau, 0), samples, until, bound)
    cycle_time_s = _least_time(problem, tau, until)
    if cycle_time_s is None:
        longer = _least_time(problem, tau, np.full(len(problem), np.inf)) if problem.own_deadlines else None
        raise Infeasible(_shortfall(problem, _capacity(problem, tau, until), longer))
    until = np.minimum(until, cycle_time_s)
    return _plan(problem, tau, _fill(problem, tau, _capacity(problem, tau, until)), until)


def greenest(problem: AllocationProblem, epochs: int | IntArray, *, leave_out: bool = False) -> Plan:
    """Find the hand-out with the least total energy for the given epochs, within T and E_k.

    Everybody takes part, so the fixed costs are fixed: fill the learners in the order of joules per
    sample. Among those for whom a sample costs the same, the last report comes as soon as possible.

    Parameters
    ----------
    problem : AllocationProblem
        The learners, the samples and the limits.
    epochs : int or int array
        tau for all, or tau_k per learner; at least 1.
    leave_out : bool
        Whether learners may be left out, which saves their fixed costs. The plan then has a proven bound.

    Raises
    ------
    Infeasible
        If the epochs do not fit into the limits; the diagnosis has the smallest cycle time.
    """
    tau = _fixed_epochs(problem, epochs)
    cap = _capacity(problem, tau, problem.deadline_s)
    if leave_out:
        samples, bound = _cheapest_set(problem, tau, cap)
        return _plan(problem, np.where(samples > 0, tau, 0), samples, problem.deadline_s, bound)
    if not _enough(problem, cap):
        longer = _least_time(problem, tau, np.full(len(problem), np.inf))
        raise Infeasible(_shortfall(problem, cap, longer))
    samples = _fill(problem, tau, cap)
    return _plan(problem, tau, _soonest_of_equals(problem, tau, cap, samples), problem.deadline_s)


class _Given(Capacities):
    """Learners whose epochs are given: to the search they do one epoch of that size."""

    def at(self, epochs: int | IntArray) -> IntArray:  # noqa: ARG002 - there is only one
        return self.most

    def table(self, first: int, last: int) -> IntArray:  # noqa: ARG002
        return self.most[None, :].copy()

    @cached_property
    def most_epochs(self) -> IntArray:
        return (self.most >= self.least).astype(np.int64)


def _cheapest_set(problem: AllocationProblem, tau: IntArray, cap: IntArray) -> tuple[IntArray, float]:
    """Choose who takes part, and with what, for the least energy; also return a bound on it.

    A fixed cost and a price per sample: linear between the least batch and the capacity, so all but one
    stand at an end or stay out, and the search for progress serves.
    """
    d, least, c = problem.total_samples, problem.min_samples, problem.coefficients
    able = np.flatnonzero(cap >= least)
    strong = able[np.argsort(-cap[able], kind="stable")]
    enough = int(np.searchsorted(np.cumsum(cap[strong]), d)) + 1
    if enough > len(strong) or enough * least > d:
        raise Infeasible(_shortfall(problem, cap, _least_time(problem, tau, np.full(len(problem), np.inf))))
    given = Capacities.of(problem).take(able)
    mine = _Given(
        given.coefficients, given.cycle_time_s, given.energy_limit_j, np.minimum(cap[able], d), least, 1
    )
    costs = (c.g2[able] * tau[able], c.g1[able], c.g0[able])
    unit = 2.0**38 / max(float(((costs[0] + costs[1]) * mine.most + costs[2]).max()), 1e-200)
    worth = Worth(0, (unit * costs[0], unit * costs[1], unit * costs[2]))
    start = np.zeros(len(able), dtype=np.int64)
    few = np.searchsorted(able, np.sort(strong[:enough]))
    start[few] = hand_out(Handout.PROPORTIONAL, d, mine.most[few], least, tau[able][few])
    point = worth.point((start > 0).astype(np.int64), start)
    found, most, _ = maximise(mine, d, 0, point, optional=True, worth=worth)
    samples = np.zeros(len(problem), dtype=np.int64)
    samples[able] = found.samples
    return samples, -most / unit


def _carries(problem: AllocationProblem, cap: IntArray) -> bool:
    """Whether some of the learners can have all samples, none of them less than the least batch."""
    d, least = problem.total_samples, problem.min_samples
    strong = np.sort(cap[cap >= least])[::-1][: d // least]
    return int(strong.sum()) >= d


def _price(problem: AllocationProblem, tau: IntArray) -> FloatArray:
    """Joules per sample."""
    price: FloatArray = problem.coefficients.g2 * tau + problem.coefficients.g1
    return price


def _fill(problem: AllocationProblem, tau: IntArray, cap: IntArray) -> IntArray:
    """Fill the learners in the order of joules per sample."""
    order = np.argsort(_price(problem, tau), kind="stable")
    room = (cap - problem.min_samples)[order]
    before = np.cumsum(room) - room
    samples = np.full(len(problem), problem.min_samples, dtype=np.int64)
    samples[order] += np.clip(problem.total_samples - problem.min_samples * len(problem) - before, 0, room)
    return samples


def _soonest_of_equals(
    problem: AllocationProblem, tau: IntArray, cap: IntArray, samples: IntArray
) -> IntArray:
    """Hand out anew among the learners with the price at which the samples ran out."""
    price = _price(problem, tau)
    more = samples > problem.min_samples
    if not more.any():
        return samples
    equal = np.flatnonzero(price == price[more].max())
    if len(equal) == 1 or (samples[equal] == cap[equal]).all():
        return samples
    some = AllocationProblem(
        problem.coefficients.take(equal),
        problem.deadline_s[equal],
        total_samples=int(samples[equal].sum()),
        min_samples=problem.min_samples,
        max_samples=cap[equal],
        max_epochs=int(tau.max()),
    )
    until = np.full(len(equal), np.inf)
    time_s = _least_time(some, tau[equal], until)
    if time_s is None:  # pragma: no cover - the samples at hand are an answer
        return samples
    fresh = samples.copy()
    room = np.minimum(_capacity(some, tau[equal], np.minimum(until, time_s)), cap[equal])
    fresh[equal] = hand_out(Handout.PROPORTIONAL, some.total_samples, room, some.min_samples, tau[equal])
    return fresh


def _least_time(problem: AllocationProblem, tau: IntArray, until: FloatArray) -> float | None:
    """Return the smallest cycle time that lets everybody do its epochs; None if there is none.

    Nobody works beyond its own end `until`.

    A bisection leaves a few samples per learner in doubt. Each of them fits from a moment of its own on,
    so the answer is the moment of the sample that completes d.
    """
    costs, demand, last = problem.coefficients, problem.total_samples, float(np.finfo(float).max)
    low = min(float(costs.time_s(tau, problem.min_samples).max()), last)
    high = min(float(costs.time_s(tau, np.minimum(problem.max_samples, demand)).max()), last)
    below, above = (_capacity(problem, tau, np.minimum(until, time_s)) for time_s in (low, high))
    if (below < problem.min_samples).any() or not _enough(problem, above):
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
        cap = _capacity(problem, tau, np.minimum(until, middle))
        if cap.sum() >= demand:
            high, above = middle, cap
        else:
            low, below = middle, cap
    who = np.repeat(np.arange(len(tau)), above - below)
    batch = np.arange(1, len(who) + 1) - np.searchsorted(who, who) + below[who]
    moment = np.sort(costs.take(who).time_s(tau[who], batch))
    return float(moment[demand - int(below.sum()) - 1])


def _capacity(problem: AllocationProblem, tau: IntArray, until: FloatArray) -> IntArray:
    """Return the largest batches up to d, so that epochs times samples stays exact without a deadline."""
    capacities = Capacities.of(problem, until)
    return replace(capacities, most=np.minimum(capacities.most, problem.total_samples)).at(tau)


def _enough(problem: AllocationProblem, capacity: IntArray) -> bool:
    """Whether everybody can have the least batch, and all together all samples."""
    least, d = problem.min_samples, problem.total_samples
    return bool((capacity >= least).all() and len(capacity) * least <= d <= capacity.sum())


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
    needed = len(problem) * problem.min_samples
    if needed > problem.total_samples:
        detail = (
            f"{len(problem)} learners of at least {problem.min_samples:,} samples each need {needed:,} of "
            f"{problem.total_samples:,}"
        )
        return Diagnosis(problem.total_samples, 0, None, detail)
    if len(stuck):
        detail = Phrase(
            f"{len(stuck)} of {len(problem)} learners cannot do the given epochs on {{}} = "
            f"{problem.min_samples:,} within their limits (the first: {{}})",
            "min_samples",
            f"learner {int(stuck[0])}",
        )
        return Diagnosis(problem.total_samples, 0, cycle_time_s, detail)
    fits = int(capacity.sum())
    detail = f"at the given epochs the learners carry {fits:,} of {problem.total_samples:,} samples"
    return Diagnosis(problem.total_samples, fits, cycle_time_s, detail)


def _plan(
    problem: AllocationProblem,
    tau: IntArray,
    samples: IntArray,
    until: FloatArray,
    energy_bound_j: float | None = None,
) -> Plan:
    time_s = problem.coefficients.time_s(tau, samples)
    energy_j = problem.coefficients.energy_j(tau, samples)
    # Fixed epochs are given, not chosen: the staleness cap and max_epochs do not apply to them.
    staleness = int(tau.max() - tau[tau > 0].min())
    free = problem.replace(staleness=staleness, max_epochs=int(tau.max()), cycle_time_s=until)
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
        None if energy_bound_j is None else min(energy_bound_j, float(energy_j.sum())),
    )
