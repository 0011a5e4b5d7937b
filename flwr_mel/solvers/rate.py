"""The round with the fastest learning: cycle time, participants and samples together.

Each learner makes one pass over d_k samples, and the server's optimizer sets the length of the step. Then a
round with D = sum_k d_k samples makes progress D / (D + B) (McCandlish et al. 2018, "An Empirical Model of
Large-Batch Training"), where B is the gradient noise scale in samples. A round is worth ::

    D / (D + B) * sqrt(share of the data that participating learners hold) / (T^(1-f) * E^f)

with T its time, E its energy and f the frugality: f = 0 asks for the least time, larger values save energy.
Value and bound are about the T of the plan. Learners without energy costs are cheap, not free: E counts at
least the energy of one sample on that learner with energy costs where it is least.

For a given T the best samples are found exactly: adding samples where they cost the least energy gives the
least energy of every D. What a cycle of `high` seconds can do, divided by the cost of `low` seconds, bounds
all cycle times in between. `best_round` splits such cells until no bound exceeds the best value found by more
than the resolution: the certificate.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from flwr_mel._validate import FloatArray, IntArray, complain, count, number
from flwr_mel.allocation import AllocationProblem, Infeasible, Proposal, Solution, Status, allocate
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.problem import NO_LIMIT, CountLimits, Limits
from flwr_mel.allocation.screening import screen
from flwr_mel.allocation.solution import Diagnosis, Reason
from flwr_mel.costs import Coefficients

#: No cycle time is worth more than the best one found by this share.
RESOLUTION = 1e-3
#: The least samples of a participant.
LEAST = 16
_FOREVER = 1e9
#: Cells that are looked at in the beginning, and in all at most.
_CELLS, _MOST_CELLS = 6, 4000


@dataclass(frozen=True, slots=True)
class Rate:
    """Progress per time and energy, the objective of `best_round`.

    Parameters
    ----------
    noise : float
        B, the gradient noise scale in samples: a round with B samples makes half of the largest possible
        progress.
    frugality : float
        f, from 0 (time only) to below 1: larger values save energy.
    most : int
        The largest number of samples in a task.
    cover : float
        The smallest share of the data that the participants must hold. 1: every learner that can take part
        does, so no data are left out.
    reference_s : float, optional
        Read energy limits as a mean power, E_k / reference_s, so that a shorter cycle has a lower limit.
        None: the limits are per cycle, whatever its length.
    """

    noise: float = 400.0
    frugality: float = 0.0
    most: int = 256
    cover: float = 1.0
    reference_s: float | None = None

    def __post_init__(self) -> None:
        number("noise", self.noise, above=0)
        count("most", self.most, least=1)
        if not 0 < number("cover", self.cover) <= 1:
            raise complain("cover", "a share above 0 and at most 1", self.cover)
        if self.reference_s is not None:
            number("reference_s", self.reference_s, above=0)
        if not 0 <= number("frugality", self.frugality) < 1:
            raise complain(
                "frugality", "from 0 (time only) to below 1", self.frugality, "0.25 is a good start."
            )

    def measure(self, problem: AllocationProblem, epochs: IntArray, samples: IntArray) -> tuple[float, int]:
        """Return the value of a round of T seconds."""
        c = problem.coefficients
        energy_j = max(float(c.energy_j(epochs, samples).sum()), least_energy(c))
        share = float(data_shares(problem.max_samples)[samples > 0].sum())
        return self.value(int(samples.sum()), share, problem.cycle_time_s, energy_j), 1

    def value(self, samples: float, share: float, time_s: float, energy_j: float) -> float:
        """Return the value of a round.

        Parameters
        ----------
        samples : float
            D.
        share : float
            Of the data that participating learners hold.
        time_s, energy_j : float
            T and E; without any energy costs in the fleet, E = 0, f has no effect.
        """
        cost: float = time_s ** (1 - self.frugality) * (energy_j**self.frugality if energy_j > 0 else 1.0)
        return float(samples / (samples + self.noise) * math.sqrt(share) / cost)

    def __str__(self) -> str:
        return f"rate:{self.frugality:g}" if self.frugality else "rate"


_RATE = Rate()


@dataclass(frozen=True, slots=True, eq=False)
class BestRound:
    """A cycle time and the verified allocation that goes with it.

    Parameters
    ----------
    cycle_time_s : float
        T.
    problem : AllocationProblem
        With that T.
    solution : Solution
        One epoch each; `value` and `bound` are of the objective `Rate`.
    """

    cycle_time_s: float
    problem: AllocationProblem
    solution: Solution


@dataclass(frozen=True, slots=True, eq=False)
class _Given:
    """Hands a chosen allocation to `allocate`, which verifies it."""

    proposal: Proposal

    def solve(self, problem: AllocationProblem) -> Proposal:  # noqa: ARG002 - it was chosen for this problem
        return self.proposal


def best_round(
    coefficients: Coefficients,
    energy_limit_j: Limits = None,
    *,
    max_samples: CountLimits = None,
    min_samples: int = LEAST,
    objective: Rate = _RATE,
    cycle_time_s: float | None = None,
) -> BestRound:
    """Return the cycle time, participants and samples with the largest `Rate`.

    Parameters
    ----------
    coefficients : Coefficients
        The learners' costs.
    energy_limit_j : float or sequence of float, optional
        E_k per cycle, or per `Rate.reference_s` seconds.
    max_samples : int or sequence of int, optional
        What each learner holds.
    min_samples : int
        The least samples of a participant, fewer for a learner that holds fewer.
    objective : Rate
        Noise scale, frugality and bounds.
    cycle_time_s : float, optional
        Use this T, or the shortest one that `Rate.cover` allows if that is longer. Value and bound are then
        about plans with that T.

    Raises
    ------
    Infeasible
        If no learner can take part.
    """
    # Without a time limit: the problem checks the arguments and knows the limits of energy and data.
    base = AllocationProblem(
        coefficients,
        _FOREVER,
        energy_limit_j,
        total_samples=len(coefficients),
        max_samples=max_samples,
        max_epochs=1,
    )
    search = _Search(base, objective, count("min_samples", min_samples, least=1))
    time_s, samples, bound = search.best() if cycle_time_s is None else search.at(cycle_time_s)
    problem = base.replace(
        cycle_time_s=time_s,
        energy_limit_j=search.energy_limits(time_s),
        total_samples=int(samples.sum()),
        min_samples=int(samples[samples > 0].min()),
    )
    epochs = (samples > 0).astype(np.int64)
    excluded = dict.fromkeys(np.flatnonzero(samples == 0).tolist(), Reason.MIN_BATCH_TIME)
    excluded |= {k: r for k, r in screen(Capacities.of(problem))[1].items() if k in excluded}
    value, _ = objective.measure(problem, epochs, samples)
    stats = {"cells": float(search.cells), "resolution": RESOLUTION}
    found = Proposal(epochs, samples, max(bound, value), Status.FEASIBLE, excluded, stats, objective)
    return BestRound(time_s, problem, allocate(problem, _Given(found)))


class _Search:
    """Branch and bound over the cycle time.

    Parameters
    ----------
    base : AllocationProblem
        Costs and limits.
    goal : Rate
        The objective.
    least : int
        The least samples of a participant.
    """

    def __init__(self, base: AllocationProblem, goal: Rate, least: int) -> None:
        c = base.coefficients
        self.costs, self.goal, self.cells = c, goal, 0
        self.values: dict[float, float] = {}
        self.limit_j, self.reference_s = base.energy_limit_j, goal.reference_s
        self.top = np.minimum(base.max_samples, goal.most)
        self.least = np.minimum(self.top, least)
        self.weights = data_shares(base.max_samples)
        self.pace, self.price = c.c2 + c.c1, c.g2 + c.g1
        self.floor_j = least_energy(c)
        self.least_j = np.where(self.least > 0, c.g0 + self.price * self.least, 0.0)
        self.order = np.argsort(self.price, kind="stable")
        #: The shortest cycle in which each learner can do its least task; infinite if there is none.
        self.needed = self._needed(self.least)
        able = np.isfinite(self.needed)
        if not able.any():
            detail = "no learner can do one epoch on the smallest batch, however long the cycle is"
            raise Infeasible(Diagnosis(least, 0, None, detail))
        reached = np.cumsum(self.weights[np.argsort(self.needed)])
        enough = int(np.searchsorted(reached, min(goal.cover, float(self.weights[able].sum())) - 1e-12))
        self.low = float(np.sort(self.needed)[min(enough, int(able.sum()) - 1)])
        # No learner can do more than without a time limit.
        most_s = self._needed(self.top if self.reference_s else self._room(np.inf))
        self.high = float(most_s[able].max(initial=self.low))

    def energy_limits(self, time_s: float) -> FloatArray | None:
        """Return E_k of a cycle; None: no learner has a limit."""
        if np.isinf(self.limit_j).all():
            return None
        return self.limit_j if self.reference_s is None else self.limit_j * (time_s / self.reference_s)

    def _needed(self, samples: IntArray) -> FloatArray:
        """Return the shortest cycle in which each learner can process so many samples."""
        time_s, energy_j = self.costs.time_s(1, samples), self.costs.energy_j(1, samples)
        if self.reference_s is None:
            fits = energy_j <= self.limit_j
        else:
            # A little longer, so that the product with the power is not rounded below the energy.
            time_s = np.maximum(time_s, energy_j / self.limit_j * self.reference_s * (1 + 1e-12))
            fits = np.isfinite(time_s)
        return np.where(fits & (samples > 0), time_s, np.inf)

    def _room(self, time_s: float) -> IntArray:
        """Return the most samples of each learner in a cycle."""
        limits = self.energy_limits(time_s)
        limits = np.full(len(self.costs), np.inf) if limits is None else limits
        return Capacities(self.costs, time_s, limits, self.top, 1, 1).at(1)

    def _best_at(self, time_s: float, sure_s: float) -> tuple[float, FloatArray]:
        """Return the largest D / (D + B) * sqrt(share) / E^f of a cycle, and the samples.

        Learners that need more than `sure_s` take part without a smallest batch and fixed energy, which
        makes the value a bound for all cycle times from `sure_s` on.
        """
        room, sure = self._room(time_s), self.needed <= sure_s
        maybe = ~sure & (self.needed < time_s)
        floor = np.where(sure, self.least, 0).astype(np.float64)
        extra = np.where(sure | maybe, np.maximum(room - floor, 0.0), 0.0)
        share = float(self.weights[sure | maybe].sum())
        start, base_j = float(floor.sum()), float(self.least_j[sure].sum())
        goal = self.goal
        if not goal.frugality or not self.price.any():
            return goal.value(
                start + float(extra.sum()), share, 1.0, max(base_j, self.floor_j)
            ), floor + extra
        steps = extra[self.order]
        total, energy_j = start + np.cumsum(steps), base_j + np.cumsum(steps * self.price[self.order])
        # Inside each step: where the progress of one more sample is worth its energy, the larger root of
        # f p D^2 - (1 - f) p B D = B (E - p D). All maxima lie there, at the ends of a step, or where E
        # exceeds the least that counts.
        before, spent = np.concatenate(([start], total[:-1])), np.concatenate(([base_j], energy_j[:-1]))
        price, b, f = self.price[self.order], goal.noise, goal.frugality
        half = (1 - f) * price * b
        root = np.sqrt(np.maximum(half**2 + 4 * f * price * b * (spent - price * before), 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = np.nan_to_num([(half + root) / (2 * f * price), before + (self.floor_j - spent) / price])
        near = [np.clip(side(at), before, total) for at in inside for side in (np.floor, np.ceil)]
        stops = np.concatenate((*near, total, [start]))
        joules = np.concatenate((*(spent + price * (stop - before) for stop in near), energy_j, [base_j]))
        cost = np.maximum(joules, self.floor_j) ** f
        values = np.where(stops > 0, stops / (stops + b) / cost, 0.0)
        k = int(values.argmax())
        taken = np.clip(stops[k] - before, 0.0, steps)
        extra[self.order] = taken
        return float(values[k]) * math.sqrt(share), floor + extra

    def _value(self, time_s: float) -> float:
        """Return the value of a cycle time."""
        return float(self._best_at(time_s, time_s)[0] / time_s ** (1 - self.goal.frugality))

    def best(self) -> tuple[float, IntArray, float]:
        """Return T, the samples, and a bound on the value of all cycle times."""
        self.values = {self.high: self._value(self.high)}
        ends = [*np.geomspace(self.low, self.high, _CELLS + 1)[1:-1].tolist(), self.high]
        cells = [self._cell(a, b) for a, b in pairwise([self.low, *(t for t in ends if t > self.low)])]
        heapq.heapify(cells)
        while cells and self.cells < _MOST_CELLS:
            bound, low, high = cells[0]
            middle = self._split(low, high)
            if -bound <= max(self.values.values()) * (1 + RESOLUTION) or not low < middle < high:
                break
            heapq.heapreplace(cells, self._cell(low, middle))
            heapq.heappush(cells, self._cell(middle, high))
        best_s = max(self.values, key=lambda t: self.values[t])
        _, samples, value = self.at(best_s)
        needed = min(best_s, float(self._needed(samples)[samples > 0].max()))
        return needed, samples, max([value, *(-cell[0] for cell in cells[:1])])

    def at(self, time_s: float) -> tuple[float, IntArray, float]:
        """Return one cycle time, or the shortest if it is too short, its best samples, and their value."""
        time_s = max(time_s, self.low)
        samples: IntArray = self._best_at(time_s, time_s)[1].astype(np.int64)
        return time_s, samples, self._value(time_s)

    def _split(self, low: float, high: float) -> float:
        """Return where to split a cell: where a learner joins, or in the middle."""
        joins = self.needed[(self.needed > low) & (self.needed < high)]
        return float(np.sort(joins)[len(joins) // 2]) if len(joins) else math.sqrt(low * high)

    def _cell(self, low: float, high: float) -> tuple[float, float, float]:
        """Return the cycle times from `low` to below `high`, the largest bound first in a heap."""
        self.cells += 1
        for time_s in (low, float(np.nextafter(high, 0.0))):
            if time_s not in self.values:
                self.values[time_s] = self._value(time_s)
        return -self._best_at(high, low)[0] / low ** (1 - self.goal.frugality), low, high


def least_energy(costs: Coefficients) -> float:
    """Return the least energy of one sample on any learner with energy costs; 0 if there is none."""
    joules = costs.g2 + costs.g1 + costs.g0
    return float(joules[joules > 0].min(initial=np.inf)) if joules.any() else 0.0


def data_shares(held: IntArray) -> FloatArray:
    """Return each learner's share of all data; equal shares where a learner's data are not limited."""
    if (held >= NO_LIMIT).any():
        return np.full(len(held), 1 / len(held))
    return held / max(float(held.sum()), 1.0)
