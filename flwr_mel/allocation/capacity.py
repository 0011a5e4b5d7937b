"""cap_k(tau), the largest batch with which learner k keeps every limit of its own.

Everything the solvers know about time, energy and data goes through this function; what remains is
a problem in integers. A limit is kept when the float64 value of the paper's formula, evaluated as
``c2 * (tau * d) + c1 * d + c0``, does not exceed it. That evaluation never decreases with d or tau,
so "the largest batch" is well defined to the last sample, and the verification of a finished
allocation asks precisely the same question.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import FloatArray, IntArray, frozen
from flwr_mel.allocation.bisection import largest_each, largest_real

if TYPE_CHECKING:
    from flwr_mel.allocation.problem import AllocationProblem
    from flwr_mel.costs import Coefficients

Index = tuple[npt.NDArray[np.intp], ...]

#: The largest number there is, what rounding may hide as a share of a limit, and among the smallest numbers.
_LAST = float(np.finfo(float).max)
_ROUNDING = 8 * float(np.finfo(float).eps)
_TINY = 8 * float(np.finfo(float).smallest_subnormal)

#: Learners, and entries of a table, looked at in one go.
_BLOCK, _TABLE = 16_384, 50_000


@dataclass(frozen=True, eq=False)
class Capacities:
    """The learners of a problem as functions from epochs to the largest batch.

    Parameters
    ----------
    coefficients : Coefficients
        Costs of the learners considered.
    cycle_time_s : float or array
        T for all, or a deadline per learner; infinity asks for the capacity without one.
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
    cycle_time_s: float | FloatArray
    energy_limit_j: FloatArray
    most: IntArray
    least: int
    max_epochs: int

    @classmethod
    def of(cls, problem: AllocationProblem, cycle_time_s: float | FloatArray | None = None) -> Capacities:
        """Read the capacities off a problem, possibly under another cycle time."""
        if cycle_time_s is None:
            cycle_time_s = problem.deadline_s if problem.own_deadlines else problem.cycle_time_s
        return cls(
            coefficients=problem.coefficients,
            cycle_time_s=cycle_time_s,
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
            self.cycle_time_s[index] if isinstance(self.cycle_time_s, np.ndarray) else self.cycle_time_s,
            self.energy_limit_j[index],
            self.most[index],
            self.least,
            self.max_epochs,
        )

    @cached_property
    def _limits(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Time and energy, a row each: cost per sample and epoch, per sample, the least and the most left.

        The formula rounds three times and what is made of it below six times, each time by at most half
        an epsilon of the limit, whatever cancels in T - c0: 8 epsilons are enough. A cost that is no
        finite number fits into no time, not even into an infinite one.
        """
        c, time_s, energy_j = self.coefficients, np.minimum(self.cycle_time_s, _LAST), self.energy_limit_j
        of_time = _ROUNDING * time_s + _TINY
        of_energy = np.where(np.isinf(energy_j), 0.0, _ROUNDING * energy_j + _TINY)
        time_left, energy_left = time_s - c.c0, energy_j - c.g0
        left = np.array(
            [[time_left - of_time, energy_left - of_energy], [time_left + of_time, energy_left + of_energy]]
        )
        return np.array([c.c2, c.g2]), np.array([c.c1, c.g1]), left

    def relaxed(self, epochs: float | IntArray | FloatArray) -> FloatArray:
        """Capacity without rounding, for real numbers of epochs; negative where nothing fits."""
        c = self.coefficients
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            by_time = (np.minimum(self.cycle_time_s, _LAST) - c.c0) / (c.c2 * epochs + c.c1)
            by_energy = (self.energy_limit_j - c.g0) / (c.g2 * epochs + c.g1)
        # fmin: 0 / 0 is "no energy left, none needed". Anything fits.
        return np.minimum(np.fmin(by_time, by_energy), self.most)

    @cached_property
    def _used(self) -> tuple[FloatArray, FloatArray]:
        """The least shares of time and energy, a row each, that a sample can use: per epoch, and once."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            two, one, left = self._limits
            return two / left[1], one / left[1]

    def above(self, epochs: IntArray) -> FloatArray:
        """Return real numbers that are no less than the capacities, and hardly more than one sample above.

        Each limit alone makes them convex in the epochs.
        """
        two, one = self._used
        with np.errstate(divide="ignore", over="ignore"):
            fits = 1 / np.maximum(two[0] * epochs + one[0], two[1] * epochs + one[1])
        capped: FloatArray = np.minimum(fits * (1 + 1e-12), self.most)
        return capped

    def reach(self, samples: FloatArray | IntArray) -> FloatArray:
        """Return the epochs, as real numbers, up to which time and energy permit batches in `above`."""
        two, one = self._used
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            epochs: FloatArray = np.fmin((1 / samples - one[0]) / two[0], (1 / samples - one[1]) / two[1])
        return epochs

    def turns(self, demand: int) -> FloatArray:
        """Return the epochs at which another limit binds: time and energy, then data or the demand."""
        two, one = self._used
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            crossing = (one[1] - one[0]) / (two[0] - two[1])
        return np.stack([crossing, self.reach(np.minimum(self.most, demand))])

    def at(self, epochs: int | IntArray) -> IntArray:
        """Return cap_k(tau) in samples, for one tau or one per learner; 0 where nothing fits."""
        if not isinstance(epochs, int):
            return self._settled(epochs)
        if epochs not in self._known:
            self._known[epochs] = frozen(self._settled(epochs))
        return self._known[epochs]

    @cached_property
    def _known(self) -> dict[int, IntArray]:
        """Capacities at one number of epochs for all, which searches ask for again and again."""
        return {}

    def table(self, first: int, last: int) -> IntArray:
        """Return cap_k(tau) for tau = first..last, one row per tau."""
        taus = np.arange(first, last + 1, dtype=np.int64)
        rows = np.empty((len(taus), len(self)), dtype=np.int64)
        if len(self) > _TABLE:
            for row, tau in zip(rows, taus, strict=True):
                row[:] = self.at(int(tau))
            return rows
        size = _TABLE // len(self)
        for at in range(0, len(taus), size):
            rows[at : at + size] = self._settled(taus[at : at + size, None])
        return rows

    def _settled(self, epochs: int | IntArray) -> IntArray:
        """Return the exact capacities for one tau, one per learner, or a column of them."""

        def quotient(block: slice, two: FloatArray, one: FloatArray, left: FloatArray) -> FloatArray:
            quotients: FloatArray = left / (two * _some(epochs, block) + one)
            return quotients

        def fits(part: Capacities, index: Index, samples: IntArray) -> npt.NDArray[np.bool_]:
            return part._keeps(_some(epochs, index), samples)

        return self._exact(np.shape(epochs), self.most, quotient, fits)

    @cached_property
    def most_epochs(self) -> IntArray:
        """The most epochs each learner can do on the smallest batch; 0 for one that cannot take part."""
        return self.epochs(self.least)

    def epochs(self, samples: int | IntArray) -> IntArray:
        """Return the most epochs with a batch, for one batch size or one per learner; 0 where none fits."""

        def quotient(block: slice, two: FloatArray, one: FloatArray, left: FloatArray) -> FloatArray:
            d = _some(samples, block)
            quotients: FloatArray = (left - np.minimum(one * d, _LAST)) / (two * d)
            return quotients

        def fits(part: Capacities, index: Index, epochs: IntArray) -> npt.NDArray[np.bool_]:
            return part._keeps(epochs, _some(samples, index))

        most = np.where(self.most < samples, 0, self.max_epochs)
        return self._exact(np.shape(samples), most, quotient, fits)

    def _exact(
        self,
        shape: tuple[int, ...],
        most: IntArray,
        quotient: Callable[[slice, FloatArray, FloatArray, FloatArray], FloatArray],
        fits: Callable[[Capacities, Index, IntArray], npt.NDArray[np.bool_]],
    ) -> IntArray:
        """Fill in the largest integers up to `most` that fit.

        Two quotients, of the least and of the most that is left, enclose each of them. Where no integer lies
        between these they are the answer; elsewhere the exact question is asked, by bisection.
        """
        rows = shape[:-1]
        found = np.empty((*rows, len(self)), dtype=np.int64)
        for at in range(0, len(self), _BLOCK):  # parts that fit into a processor's cache
            block = slice(at, at + _BLOCK)
            part = (..., None, block) if rows else (..., block)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                ends = quotient(block, *(a[part] for a in self._limits))
            # fmin: 0 / 0 is "nothing left, nothing needed", no limit.
            real = np.fmin(ends[:, 0], ends[:, 1])
            np.minimum(real, most[..., block], out=real)
            low, high = np.maximum(real, 0.0, out=real).astype(np.int64)
            if (open_ := np.nonzero(low < high))[0].size:
                index = (*open_[:-1], open_[-1] + at)
                asked = partial(fits, self.take(index[-1]), index)
                low[open_] = largest_each(low[open_], high[open_], asked)
            found[..., block] = low
        return found

    def _keeps(self, epochs: int | IntArray, samples: int | IntArray) -> npt.NDArray[np.bool_]:
        c = self.coefficients
        work = np.multiply(epochs, samples, dtype=np.float64)  # as exact as in integers below 2**53
        with np.errstate(over="ignore"):
            kept: npt.NDArray[np.bool_] = (
                (samples <= self.most)
                & (c.c2 * work + c.c1 * samples + c.c0 <= np.minimum(self.cycle_time_s, _LAST))
                & (c.g2 * work + c.g1 * samples + c.g0 <= self.energy_limit_j)
            )
        return kept

    @cached_property
    def _relaxed_most_epochs(self) -> FloatArray:
        """The most epochs on the smallest batch, as a real number; negative where the batch does not fit."""
        c, d = self.coefficients, float(self.least)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            by_time = ((np.minimum(self.cycle_time_s, _LAST) - c.c0) / d - c.c1) / c.c2
            by_energy = ((self.energy_limit_j - c.g0) / d - c.g1) / c.g2
        return np.fmin(by_time, by_energy)


def _some(numbers: int | IntArray, index: Index | slice) -> int | IntArray:
    """Pick from one number for all, one per learner, rows of these, or a column with one per row."""
    if isinstance(numbers, int):
        return numbers
    if numbers.ndim == 1 or isinstance(index, slice):
        return numbers if numbers.shape[-1] == 1 < numbers.ndim else numbers[..., index]
    some: IntArray = numbers[index[0], index[1] if numbers.shape[1] > 1 else 0]
    return some


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

    def enough(tau: float | FloatArray) -> bool:
        return bool(capacities.relaxed(tau).sum() >= total_samples)

    return high if enough(high) else float(largest_real(low, high, enough, tolerance=1e-13))
