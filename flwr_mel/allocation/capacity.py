"""cap_k(tau), the largest batch with which learner k keeps every limit of its own.

Everything the solvers know about time, energy and data goes through this function; what remains is
a problem in integers. A limit is kept when the float64 value of the paper's formula, evaluated as
``c2 * (tau * d) + c1 * d + c0``, does not exceed it. That evaluation never decreases with d or tau,
so "the largest batch" is well defined to the last sample, and the verification of a finished
allocation asks precisely the same question.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import FloatArray, IntArray, frozen

if TYPE_CHECKING:
    from flwr_mel.allocation.problem import AllocationProblem
    from flwr_mel.costs.coefficients import Coefficients


@dataclass(frozen=True, eq=False)
class Capacities:
    """The learners of a problem as functions from epochs to the largest batch.

    Parameters
    ----------
    coefficients : Coefficients
        Costs of the learners considered.
    cycle_time_s : float
        T; infinity asks for the capacity without a deadline.
    energy_limit_j : array
        E_k.
    most : array
        d_k^max: no batch is larger.
    least : int
        d_l.
    max_epochs : int
        No learner does more epochs.
    """

    coefficients: Coefficients
    cycle_time_s: float
    energy_limit_j: FloatArray
    most: IntArray
    least: int
    max_epochs: int

    @classmethod
    def of(cls, problem: AllocationProblem, cycle_time_s: float | None = None) -> Capacities:
        """Read the capacities off a problem, possibly under another cycle time."""
        return cls(
            coefficients=problem.coefficients,
            cycle_time_s=problem.cycle_time_s if cycle_time_s is None else cycle_time_s,
            energy_limit_j=problem.energy_limit_j,
            most=problem.max_samples,
            least=problem.min_samples,
            max_epochs=problem.max_epochs,
        )

    def __len__(self) -> int:
        return len(self.coefficients)

    def take(self, index: npt.NDArray[np.intp]) -> Capacities:
        """Return the capacities of some learners only."""
        return Capacities(
            self.coefficients.take(index),
            self.cycle_time_s,
            self.energy_limit_j[index],
            self.most[index],
            self.least,
            self.max_epochs,
        )

    @cached_property
    def _time_left(self) -> FloatArray:
        return self.cycle_time_s - self.coefficients.c0

    @cached_property
    def _energy_left(self) -> FloatArray:
        return self.energy_limit_j - self.coefficients.g0

    def relaxed(self, epochs: float | IntArray | FloatArray) -> FloatArray:
        """Capacity without rounding, for real numbers of epochs; negative where nothing fits."""
        c = self.coefficients
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            by_time = self._time_left / (c.c2 * epochs + c.c1)
            by_energy = self._energy_left / (c.g2 * epochs + c.g1)
        # 0 / 0: no energy left, none needed. Anything fits.
        by_energy[np.isnan(by_energy)] = np.inf
        if np.isinf(self.cycle_time_s):
            by_time[np.isnan(by_time)] = 0.0  # a cost that is no finite number fits into no time
        return np.minimum(np.minimum(by_time, by_energy), self.most)

    def at(self, epochs: int | IntArray) -> IntArray:
        """Return cap_k(tau) in samples, for one tau or one per learner; 0 where nothing fits."""
        if not isinstance(epochs, int):
            return self._settle(self.relaxed(epochs), epochs)
        if epochs not in self._known:
            self._known[epochs] = frozen(self._settle(self.relaxed(epochs), epochs))
        return self._known[epochs]

    @cached_property
    def _known(self) -> dict[int, IntArray]:
        """Capacities at one number of epochs for all, which searches ask for again and again."""
        return {}

    def table(self, first: int, last: int) -> IntArray:
        """Return cap_k(tau) for tau = first..last, one row per tau."""
        taus = np.arange(first, last + 1, dtype=np.int64)
        # One call for small fleets, where calls cost; row by row for large ones, where memory does.
        if len(taus) * len(self) <= 100_000:
            return self._settle(self.relaxed(taus[:, None]), taus[:, None])
        rows = np.empty((len(taus), len(self)), dtype=np.int64)
        for row, tau in zip(rows, taus, strict=True):
            row[:] = self.at(int(tau))
        return rows

    def _settle(self, real: FloatArray, epochs: int | IntArray) -> IntArray:
        """Round quotients down to the exact capacity.

        Division rounds, so the exact question is asked wherever a quotient lies next to an integer.
        """
        np.maximum(real, 0.0, out=real)
        cap: IntArray = real.astype(np.int64)
        error = 16 * np.finfo(float).eps * max(1.0, float(real.max(initial=0.0)))
        near = np.nonzero(np.abs(real - np.rint(real)) <= error)
        if len(near[0]):
            part, tau = self.take(near[-1]), np.broadcast_to(epochs, real.shape)[near]
            best = np.maximum(np.rint(real[near]).astype(np.int64) - 1, 0)
            for _ in range(2):
                best += part._keeps(tau, best + 1)
            cap[near] = np.where(part._keeps(tau, best), best, 0)
        return cap

    def _keeps(self, epochs: int | IntArray, samples: IntArray) -> npt.NDArray[np.bool_]:
        c = self.coefficients
        work = epochs * samples
        with np.errstate(over="ignore"):
            kept: npt.NDArray[np.bool_] = (
                (samples <= self.most)
                & (c.c2 * work + c.c1 * samples + c.c0 <= self.cycle_time_s)
                & (c.g2 * work + c.g1 * samples + c.g0 <= self.energy_limit_j)
            )
        return kept

    @cached_property
    def _relaxed_most_epochs(self) -> FloatArray:
        """The most epochs on the least batch, as a real number; negative where the batch does not fit."""
        c, d = self.coefficients, float(self.least)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            by_time = (self._time_left / d - c.c1) / c.c2
            by_energy = (self._energy_left / d - c.g1) / c.g2
        by_energy[np.isnan(by_energy)] = np.inf
        return np.minimum(by_time, by_energy)

    @cached_property
    def most_epochs(self) -> IntArray:
        """The most epochs each learner can do on the least batch; 0 for one that cannot take part."""
        real = np.clip(self._relaxed_most_epochs, 0, self.max_epochs)
        tau: IntArray = real.astype(np.int64)
        # The quotient is off by a few units in the last place of its largest intermediate value.
        with np.errstate(over="ignore", invalid="ignore"):
            size = np.fmin(self._time_left / (self.least * self.coefficients.c2), 2.0**53)
        near = np.flatnonzero(
            np.abs(real - np.rint(real)) <= 16 * np.finfo(float).eps * np.maximum(size, 1.0)
        )
        if len(near):
            part, batch = self.take(near), np.full(len(near), self.least, dtype=np.int64)
            best = np.maximum(np.rint(real[near]).astype(np.int64) - 2, 0)
            for _ in range(4):
                best += part._keeps(best + 1, batch) & (best < self.max_epochs)
            tau[near] = np.where(part._keeps(best, batch), best, 0)
        tau[self.most < self.least] = 0
        return tau


def relaxed_synchronous(capacities: Capacities, total_samples: int) -> float:
    """Solve the relaxed synchronous problem (Eq_13_RelaxedProblem) exactly, by bisection.

    Returns the largest real tau with sum_k cap_k(tau) >= d, all learners at or above d_l, the
    quantity whose integer part is the synchronous scheme's number of epochs.

    Parameters
    ----------
    capacities : Capacities
        Of learners that can all do one epoch.
    total_samples : int
        d.
    """
    low = 1.0
    high = float(max(low, min(capacities._relaxed_most_epochs.min(), capacities.max_epochs)))

    def enough(tau: float) -> bool:
        return bool(capacities.relaxed(tau).sum() >= total_samples)

    if enough(high):
        return high
    while high - low > 1e-13 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if enough(middle) else (low, middle)
    return low
