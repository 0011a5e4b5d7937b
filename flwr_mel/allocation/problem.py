"""The allocation problem: what the learners can do, and the limits they have to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_mel._validate import (
    MAX_COUNT,
    NO_LIMIT_REMEDY,
    FloatArray,
    IntArray,
    Phrase,
    complain,
    count,
    counts,
    entries,
    frozen,
    number,
    numbers,
)
from flwr_mel.costs import Coefficients

if TYPE_CHECKING:
    from flwr_mel.costs import Workload
    from flwr_mel.devices import Device

Deadlines = float | Sequence[float] | FloatArray
Limits = float | Sequence[float | None] | FloatArray | None
CountLimits = int | Sequence[int | None] | IntArray | None

#: Stands for "no limit" in the integer limit arrays.
NO_LIMIT = MAX_COUNT


@dataclass(frozen=True, slots=True, init=False, eq=False)
class AllocationProblem:
    """One cycle's task allocation, problem (Eq_13_OurProb) of the paper.

    Choose integers tau_k (epochs) and d_k (samples) for every learner k to ::

        maximise   (1/K) sum_k tau_k
        subject to c2_k tau_k d_k + c1_k d_k + c0_k <= deadline_s[k]
                   g2_k tau_k d_k + g1_k d_k + g0_k <= energy_limit_j[k]
                   |tau_k - tau_l| <= staleness
                   sum_k d_k = total_samples,  min_samples <= d_k <= max_samples[k]

    A learner that cannot take part has tau_k = d_k = 0; the constraints apply to the others.

    Parameters
    ----------
    coefficients : Coefficients
        The learners' costs.
    cycle_time_s : float or sequence of float
        T in seconds, or one deadline per learner, e.g. the time until which it is available. The attribute
        is the longest deadline; `deadline_s` has one per learner.
    energy_limit_j : float or sequence of float, optional
        E_k per learner, or one limit for all. None or infinity, also as an entry: no limit.
    total_samples : int
        d.
    staleness : int, optional
        c, the largest allowed difference between two learners' epochs. None: no limit.
    min_samples : int
        d_l, the smallest batch of a learner that takes part, at least 1.
    max_samples : int or sequence of int, optional
        Largest number of samples per learner: its own data in FL, its memory in PL. None: no limit.
    max_epochs : int, optional
        Largest number of epochs of a learner. None: no limit.

    Notes
    -----
    This is the one place that turns "no limit" into numbers: infinity for energy, ``NO_LIMIT`` for counts.
    """

    coefficients: Coefficients
    cycle_time_s: float
    deadline_s: FloatArray
    energy_limit_j: FloatArray
    total_samples: int
    staleness: int
    min_samples: int
    max_samples: IntArray
    max_epochs: int

    def __init__(
        self,
        coefficients: Coefficients,
        cycle_time_s: Deadlines,
        energy_limit_j: Limits = None,
        *,
        total_samples: int,
        staleness: int | None = 0,
        min_samples: int = 1,
        max_samples: CountLimits = None,
        max_epochs: int | None = None,
    ) -> None:
        if not isinstance(coefficients, Coefficients):
            raise complain("coefficients", "a flwr_mel.Coefficients", coefficients)
        learners = len(coefficients)
        fields: dict[str, Any] = {
            "coefficients": coefficients,
            "energy_limit_j": _energy_limits(energy_limit_j, learners),
            "total_samples": count("total_samples", total_samples, least=1),
            "staleness": _most("staleness", staleness, 0, "0 is the synchronous scheme, None is no limit."),
            "min_samples": count(
                "min_samples",
                min_samples,
                least=1,
                remedy="A learner that takes part trains on something.",
            ),
            "max_samples": _sample_limits(max_samples, learners),
            "max_epochs": _most("max_epochs", max_epochs, 1, NO_LIMIT_REMEDY),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        deadline_s = _deadlines(cycle_time_s, learners)
        object.__setattr__(self, "deadline_s", deadline_s)
        object.__setattr__(self, "cycle_time_s", float(deadline_s.max()))
        self._check_across_fields()

    def _check_across_fields(self) -> None:
        if self.total_samples < self.min_samples:
            rule = Phrase(f"at least {{}} = {self.min_samples}", "min_samples")
            remedy = Phrase("Lower {} or use more samples.", "min_samples")
            raise complain("total_samples", rule, self.total_samples, remedy)
        if self.max_epochs < NO_LIMIT and self.total_samples * self.max_epochs <= 2**53:
            return
        c2 = self.coefficients.c2
        with np.errstate(over="ignore"):
            fastest = int(np.argmax(self.deadline_s / c2))
            steps = float(self.deadline_s[fastest] / c2[fastest])
        if steps > 2**53:
            raise complain(
                "cycle_time_s",
                "less than 2**53 times the smallest c2, or epochs times samples is no exact number",
                f"{self.deadline_s[fastest]:g} s with c2 = {c2[fastest]:g} s",
                Phrase("Check the units of cpu_hz and {}.", "cycle_time_s"),
            )

    @classmethod
    def from_devices(
        cls,
        devices: Sequence[Device],
        workload: Workload,
        *,
        cycle_time_s: Deadlines,
        total_samples: int,
        staleness: int | None = 0,
        min_samples: int = 1,
        max_epochs: int | None = None,
    ) -> AllocationProblem:
        """Build the problem from devices, with their own energy and sample limits."""
        return cls(
            Coefficients.from_devices(devices, workload),
            cycle_time_s=cycle_time_s,
            energy_limit_j=[d.energy_limit_j for d in devices],
            total_samples=total_samples,
            staleness=staleness,
            min_samples=min_samples,
            max_samples=[d.max_samples for d in devices],
            max_epochs=max_epochs,
        )

    def __len__(self) -> int:
        return len(self.coefficients)

    @property
    def own_deadlines(self) -> bool:
        """Whether the learners' deadlines differ."""
        return bool((self.deadline_s != self.cycle_time_s).any())

    def replace(self, **changes: Any) -> AllocationProblem:
        """Return a copy with some fields changed, validated anew."""
        fields: dict[str, Any] = {
            "coefficients": self.coefficients,
            "cycle_time_s": self.deadline_s if self.own_deadlines else self.cycle_time_s,
            "energy_limit_j": self.energy_limit_j,
            "total_samples": self.total_samples,
            "staleness": self.staleness,
            "min_samples": self.min_samples,
            "max_samples": self.max_samples,
            "max_epochs": self.max_epochs,
        }
        unknown = changes.keys() - fields.keys()
        if unknown:
            raise TypeError(
                f"AllocationProblem has no field {sorted(unknown)[0]!r}; it has {', '.join(fields)}"
            )
        return AllocationProblem(**fields | changes)


def _most(field: str, value: int | None, least: int, remedy: str) -> int:
    return NO_LIMIT if value is None else count(field, value, least=least, remedy=remedy)


def _deadlines(value: Deadlines, learners: int) -> FloatArray:
    if isinstance(value, list | tuple) or np.ndim(value):
        return numbers("cycle_time_s", value, length=learners, above=0)
    return frozen(np.full(learners, number("cycle_time_s", value, above=0, remedy="Give seconds.")))


def _energy_limits(value: Limits, learners: int) -> FloatArray:
    if value is None or (isinstance(value, float) and value == np.inf):
        return frozen(np.full(learners, np.inf))
    if np.isscalar(value):
        limit = number("energy_limit_j", value, above=0, remedy=NO_LIMIT_REMEDY)
        return frozen(np.full(learners, limit))
    given = entries("energy_limit_j", value, learners)
    if isinstance(given, np.ndarray) and given.dtype.kind in "fiu":
        limits = numbers("energy_limit_j", np.where(given == np.inf, 1.0, given), above=0)
        return frozen(np.where(given == np.inf, np.inf, limits))
    free_ = np.array([e is None or (isinstance(e, float) and e == np.inf) for e in given])
    kept = [1.0 if free else e for free, e in zip(free_, given, strict=True)]
    limits = numbers("energy_limit_j", kept, above=0, remedy=NO_LIMIT_REMEDY)
    return frozen(np.where(free_, np.inf, limits))


def _sample_limits(value: CountLimits, learners: int) -> IntArray:
    if value is None or np.isscalar(value):
        limit = NO_LIMIT if value is None else count("max_samples", value, remedy=NO_LIMIT_REMEDY)
        return frozen(np.full(learners, limit, dtype=np.int64))
    if not isinstance(value, np.ndarray) or value.dtype == object:
        value = [NO_LIMIT if n is None else n for n in entries("max_samples", value, learners)]
    return counts("max_samples", value, length=learners)
