"""The paper's solver: suggest by an SDP, improve by coordinate descent, then round (Algorithm alg1).

Suggest: solve the relaxed *synchronous* problem (Eq_13_RelaxedProblem), by the paper's SDP or exactly
by bisection. Improve: coordinate descent on the relaxed *asynchronous* problem. One d_k alone cannot
move while sum d_k = d holds, so the coordinates are pairs: samples go from learner i to learner j, tau_i
and tau_j follow, all others stay. Round: floor, as published. What the paper lacks is added
behind: the samples lost by the floor are handed out again, and the same coordinates go on in integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from flwr_mel._validate import FloatArray, IntArray
from flwr_mel.allocation.allocate import Proposal
from flwr_mel.allocation.bisection import largest_real
from flwr_mel.allocation.capacity import Capacities, relaxed_synchronous
from flwr_mel.allocation.handout import Handout, hand_out
from flwr_mel.allocation.problem import AllocationProblem
from flwr_mel.allocation.screening import spread, take_part
from flwr_mel.allocation.solution import Status
from flwr_mel.solvers.exact import option
from flwr_mel.solvers.knapsack import best_epochs, synchronous
from flwr_mel.solvers.sdp import Suggestion, suggest_sdp

#: Most sweeps over all learners; the share of epochs a sweep must add; the least gain of one exchange.
_SWEEPS, _WORTHWHILE, _TOLERANCE = 50, 1e-5, 1e-9
#: Integer steps that are all tried; the change of capacity of a learner that cannot make one.
_STRIDE, _NEVER = 8, -(2**61)


class Suggest(StrEnum):
    """Where the candidate comes from."""

    SDP = "sdp"
    """The paper's semidefinite programme; needs cvxpy."""
    BISECTION = "bisection"
    """The exact relaxed synchronous optimum."""


@dataclass(frozen=True, slots=True)
class SuggestImprove:
    """The paper's suggest-and-improve heuristic, made to keep every constraint.

    Kept for comparison: `Exact` is faster and optimal.

    Parameters
    ----------
    suggest : Suggest or str
        "sdp" (needs cvxpy; in a clone of flwr_mel: ``pip install '.[paper]'``) or "bisection".
    handout : Handout or str
        Rule for the d_k once the tau_k are final.

    Notes
    -----
    The stats hold the mean epochs over all learners after each stage: ``epochs_suggested`` (the
    candidate's batches with the epochs of the slowest learner), ``epochs_improved`` (real numbers),
    ``epochs_floored`` (as published), ``epochs_repaired`` (final), and ``samples_lost`` by the floor.
    ``relaxed_optimum`` is the exact optimum tau* of the relaxed synchronous problem over the learners
    that take part. With the SDP also ``sdp_bound``, its upper bound on tau* including a margin for the
    solver's tolerance, and ``sdp_status``.
    """

    suggest: Suggest = Suggest.SDP
    handout: Handout = Handout.PROPORTIONAL

    def __post_init__(self) -> None:
        for name, kind in (("suggest", Suggest), ("handout", Handout)):
            object.__setattr__(self, name, option(name, kind, getattr(self, name)))

    def solve(self, problem: AllocationProblem) -> Proposal:
        """Propose an allocation with a bound, or raise `Infeasible`."""
        able, mine, excluded = take_part(problem)
        d = problem.total_samples
        candidate, stats = self._suggest(mine, d)
        samples = project(candidate, mine, d)
        suggested = np.full(len(mine), own_epochs(mine, samples).min())
        tau, samples = improve(mine, problem.staleness, samples)
        floored = np.clip(np.floor(tau).astype(np.int64), 1, mine.most_epochs)
        best = settle(mine, problem.staleness, d, floored)
        bound = best_epochs(mine, d, problem.staleness).bound
        for stage, epochs in (
            ("suggested", suggested),
            ("improved", tau),
            ("floored", floored),
            ("repaired", best),
        ):
            stats[f"epochs_{stage}"] = float(epochs.sum()) / len(problem)
        stats["samples_lost"] = d - int(np.floor(samples).sum())
        samples_ = hand_out(self.handout, d, mine.at(best), problem.min_samples, best)
        status = Status.OPTIMAL if bound == int(best.sum()) else Status.FEASIBLE
        whole = spread(best, len(problem), able), spread(samples_, len(problem), able)
        return Proposal(*whole, bound, status, excluded, stats)

    def _suggest(self, mine: Capacities, demand: int) -> tuple[FloatArray, dict[str, float | str]]:
        best = relaxed_synchronous(mine, demand)
        if self.suggest is Suggest.BISECTION:
            return mine.relaxed(best), {"relaxed_optimum": best}
        found: Suggestion = suggest_sdp(mine, demand)
        return found.samples, {
            "relaxed_optimum": best,
            "sdp_bound": found.bound,
            "sdp_status": found.status,
        }


def own_epochs(capacities: Capacities, samples: FloatArray) -> FloatArray:
    """Return the most epochs, as a real number, each learner can do on its batch.

    The inverse of `Capacities.relaxed`, up to the learner's own data.

    Parameters
    ----------
    capacities : Capacities
        The learners.
    samples : float array
        Batches; the last axis runs over the learners.
    """
    c = capacities.coefficients
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        by_time = ((capacities.cycle_time_s - c.c0) / samples - c.c1) / c.c2
        by_energy = ((capacities.energy_limit_j - c.g0) / samples - c.g1) / c.g2
    # fmin: 0 / 0 is "no energy needed, none left", which is no limit.
    own: FloatArray = np.minimum(np.fmin(by_time, by_energy), capacities.max_epochs)
    return own


def project(wish: FloatArray, capacities: Capacities, demand: int) -> FloatArray:
    """Return the batches nearest to a candidate that sum to d and permit one epoch each.

    Parameters
    ----------
    wish : float array
        The candidate's d_k.
    capacities : Capacities
        Of learners that carry d at one epoch each.
    demand : int
        d.
    """
    least, most = float(capacities.least), capacities.relaxed(1.0)

    def batches(shift: FloatArray) -> FloatArray:
        shifted: FloatArray = np.clip(wish + shift, least, most)
        return shifted

    # The smallest shift that suffices is the largest with its sign turned.
    low, high = float((least - wish).min()), float((most - wish).max())
    return batches(-largest_real(-high, -low, lambda shift: bool(batches(-shift).sum() >= demand)))


def improve(capacities: Capacities, staleness: int, samples: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Coordinate descent on the relaxed asynchronous problem; every iterate keeps all limits.

    Parameters
    ----------
    capacities : Capacities
        Of learners that all take part.
    staleness : int
        c.
    samples : float array
        Batches that sum to d and permit one epoch each.

    Returns
    -------
    tau, samples : float arrays
        A point that no coordinate improves.
    """
    if staleness == 0:
        samples = _level(capacities, samples)
    samples = samples.copy()
    tau = _raise_all(capacities, staleness, samples)
    for _ in range(_SWEEPS if staleness and len(tau) > 1 else 0):
        before = tau.sum()
        # Learners that free an epoch for the fewest samples come first.
        for i in np.argsort(capacities.relaxed(tau) - capacities.relaxed(tau + 1), kind="stable"):
            _exchange(capacities, staleness, tau, samples, int(i))
        tau = _raise_all(capacities, staleness, samples)
        if tau.sum() - before <= _WORTHWHILE * before:
            break
    return tau, samples


def _raise_all(capacities: Capacities, staleness: int, samples: FloatArray) -> FloatArray:
    """Return the best tau_k for given batches: own maximum, but at most c above the slowest."""
    own = np.maximum(own_epochs(capacities, samples), 1.0)
    tau: FloatArray = np.minimum(own, own.min() + staleness)
    return tau


def _level(capacities: Capacities, samples: FloatArray) -> FloatArray:
    """Descent on the synchronous problem: pairs exchange samples until all are equally fast.

    The slower half gives to the faster half, each pair until both can do the same; the partners
    rotate from round to round.
    """
    samples, half = samples.copy(), len(samples) // 2
    for turn in range(4 * _SWEEPS if half else 0):
        own = own_epochs(capacities, samples)
        order = np.argsort(own, kind="stable")
        slow, fast = order[:half], np.roll(order[-half:][::-1], turn)
        moved = _until_equal(capacities.take(slow), capacities.take(fast), samples[slow], samples[fast])
        samples[slow] -= moved
        samples[fast] += moved
        if turn > 2 and np.ptp(own) <= _TOLERANCE * own.max():
            break
    return samples


def _until_equal(slow: Capacities, fast: Capacities, own: FloatArray, other: FloatArray) -> FloatArray:
    """Return how many samples slow learners give their partners until both can do the same."""
    room = np.minimum(own - slow.least, fast.most - other)
    return largest_real(
        np.zeros(len(room)),
        room,
        lambda give: own_epochs(slow, own - give) < own_epochs(fast, other + give),
        halvings=50,
    )


def _exchange(capacities: Capacities, staleness: int, tau: FloatArray, samples: FloatArray, i: int) -> None:
    """Find the best partner j for learner i and move samples between the two, in place.

    With all other learners fixed, the pair's problem has one free number, tau_i. Capacities are minima
    of convex functions, so it is searched on a grid that closes in, for all partners at once.
    """
    bottom, top = _others(tau, i)
    bottom, top = np.maximum(bottom - staleness, 1.0), top + staleness
    me, pair = capacities.take(np.full(1, i)), samples[i] + samples
    least = float(capacities.least)
    low, high = bottom, np.minimum(top, own_epochs(me, np.full(1, least)))
    grid, columns = np.linspace(0.0, 1.0, 9)[:, None], np.arange(len(tau))
    for _ in range(4):
        mine = low + (high - low) * grid
        given = np.minimum(me.relaxed(mine), pair - least)
        rest = pair - given
        theirs = np.minimum(np.minimum(own_epochs(capacities, rest), top), mine + staleness)
        good = (theirs >= np.maximum(bottom, mine - staleness)) & (rest <= capacities.most) & (given >= least)
        value = np.where(good, mine + theirs, -np.inf)
        at = np.argmax(value, axis=0)
        low, high = mine[np.maximum(at - 1, 0), columns], mine[np.minimum(at + 1, len(grid) - 1), columns]
    gain = value[at, columns] - tau
    gain[i] = -np.inf
    j = int(np.argmax(gain))
    if gain[j] > tau[i] + _TOLERANCE:
        tau[i], tau[j] = mine[at[j], j], theirs[at[j], j]
        samples[i], samples[j] = given[at[j], j], rest[at[j], j]


def _others(tau: FloatArray, i: int) -> tuple[FloatArray, FloatArray]:
    """Return the highest and the lowest tau of all learners but i and j, for each j."""
    limits = []
    for sign in (-1.0, 1.0):
        rest = sign * tau
        rest[i] = np.inf
        first = int(np.argmin(rest))
        lowest = np.full(len(tau), rest[first])
        rest[first] = np.inf
        lowest[first] = rest.min()
        limits.append(sign * lowest)
    return limits[0], limits[1]


def settle(capacities: Capacities, staleness: int, demand: int, epochs: IntArray) -> IntArray:
    """Repair a rounded point and go on in integers, by the coordinates of the improve step.

    The common level of all tau_k is one more coordinate: the window [t, t + c] moves up or down as long as
    that helps.

    Parameters
    ----------
    capacities : Capacities
        Of learners that all take part.
    staleness : int
        c.
    demand : int
        d.
    epochs : int array
        The floored tau_k.
    """
    highest = synchronous(capacities, demand)
    start = min(int(epochs.min()), highest)
    best = _in_window(capacities, staleness, demand, epochs, start)
    for direction in (-1, 1):
        base, step = start, 1
        while step:
            fresh = best
            if 1 <= base + direction * step <= highest:
                fresh = _in_window(capacities, staleness, demand, best, base + direction * step)
            if fresh.sum() > best.sum():  # twice as far, or back to one
                best, base, step = fresh, base + direction * step, 2 * step
            else:
                step = int(step > 1)
    return best


def _in_window(capacities: Capacities, staleness: int, demand: int, epochs: IntArray, base: int) -> IntArray:
    """Bring all tau into [base, base + c], lower some if the demand requires it, then raise and exchange."""
    top = np.minimum(capacities.most_epochs, base + staleness)
    tau = np.clip(epochs, base, top)
    # Every small step, and in wide windows also ever larger ones.
    wide = max(int(top.max()) - base, 1).bit_length()
    stride = np.array([*range(1, _STRIDE + 1), *(2**n for n in range(_STRIDE.bit_length(), wide))])
    steps, n = np.concatenate([-stride[::-1], stride])[:, None], len(stride)
    # Raise one learner and lower another; the last column is that none is lowered.
    gain = stride[:, None] - np.append(stride[::-1], 0)
    while True:
        here = np.minimum(capacities.at(tau), demand)
        slack, to = int(here.sum()) - demand, tau + steps
        there = np.minimum(capacities.at(np.clip(to, base, top)), demand)
        change = np.where((to >= base) & (to <= top), there - here, _NEVER)
        if slack < 0:
            # The fewest epochs that are enough, else the most capacity.
            given = change[n - 1 :: -1]
            lower = int(np.argmax(given.max(axis=1) >= min(-slack, int(given.max()))))
            tau[int(np.argmax(given[lower]))] -= stride[lower]
            continue
        picked = np.argmax(change, axis=1)
        best = change[np.arange(len(steps)), picked]
        slack_change = best[n:, None] + np.append(best[:n], 0)
        useful = (slack + slack_change >= 0) & ((gain > 0) | ((gain == 0) & (slack_change > 0)))
        useful &= picked[n:, None] != np.append(picked[:n], -1)
        if not useful.any():
            return tau
        most = gain == gain[useful].max()
        up, down = np.unravel_index(np.argmax(np.where(useful & most, slack_change, _NEVER)), gain.shape)
        tau[picked[n + up]] += stride[up]
        if down < n:
            tau[picked[down]] -= stride[n - 1 - down]
