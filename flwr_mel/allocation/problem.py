"""The allocation problem: who can do what, and the limits everybody has to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_mel._validate import (
    MAX_COUNT,
    FloatArray,
    IntArray,
    complain,
    count,
    counts,
    entries,
    frozen,
    number,
    numbers,
)
from flwr_mel.costs.coefficients import Coefficients

if TYPE_CHECKING:
    from flwr_mel.costs.workload import Workload
    from flwr_mel.learners.device import Device

Limits = float | Sequence[float | None] | FloatArray | None
CountLimits = int | Sequence[int | None] | IntArray | None

#: Stands for "no limit" in the integer limit arrays.
NO_LIMIT = MAX_COUNT


@dataclass(frozen=True, slots=True, init=False, eq=False)
class AllocationProblem:
    """One cycle's task allocation, problem (Eq_13_OurProb) of the paper.

    Choose integers tau_k (epochs) and d_k (samples) for every learner k to ::

        maximise   (1/K) sum_k tau_k
        subject to c2_k tau_k d_k + c1_k d_k + c0_k <= cycle_time_s
                   g2_k tau_k d_k + g1_k d_k + g0_k <= energy_limit_j[k]
                   |tau_k - tau_l| <= staleness
                   sum_k d_k = total_samples,  min_samples <= d_k <= max_samples[k]

    A learner that cannot take part has tau_k = d_k = 0 and the constraints are about the others.

    Parameters
    ----------
    coefficients : Coefficients
        The learners' costs.
    cycle_time_s : float
        T, seconds.
    energy_limit_j : float or sequence of float, optional
        E_k per learner, or one limit for all. None, also as an entry: no limit (stored as infinity).
    total_samples : int
        d.
    staleness : int
        c, the largest allowed difference between two learners' epochs.
    min_samples : int
        d_l, the least batch of a learner that takes part, at least 1.
    max_samples : int or sequence of int, optional
        The most samples per learner: its own data in FL, its memory in PL. None: no limit.
    max_epochs : int, optional
        The most epochs anybody may do. None: no limit.
    """

    coefficients: Coefficients
    cycle_time_s: float
    energy_limit_j: FloatArray
    total_samples: int
    staleness: int
    min_samples: int
    max_samples: IntArray
    max_epochs: int

    def __init__(
        self,
        coefficients: Coefficients,
        cycle_time_s: float,
        energy_limit_j: Limits = None,
        *,
        total_samples: int,
        staleness: int = 0,
        min_samples: int = 1,
        max_samples: CountLimits = None,
        max_epochs: int | None = None,
    ) -> None:
        if not isinstance(coefficients, Coefficients):
            raise complain("coefficients", "a flwr_mel.Coefficients", coefficients)
        learners = len(coefficients)
        fields: dict[str, Any] = {
            "coefficients": coefficients,
            "cycle_time_s": number("cycle_time_s", cycle_time_s, above=0, remedy="Give seconds."),
            "energy_limit_j": _energy_limits(energy_limit_j, learners),
            "total_samples": count("total_samples", total_samples, least=1),
            "staleness": count("staleness", staleness, remedy="0 is the synchronous scheme."),
            "min_samples": count(
                "min_samples",
                min_samples,
                least=1,
                remedy="A learner that takes part trains on something.",
            ),
            "max_samples": _sample_limits(max_samples, learners),
            "max_epochs": NO_LIMIT
            if max_epochs is None
            else count("max_epochs", max_epochs, least=1, remedy="Use None for no limit."),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        self._check_across_fields()

    def _check_across_fields(self) -> None:
        learners = len(self)
        needed = learners * self.min_samples
        if self.total_samples < needed:
            raise complain(
                "total_samples",
                f"at least learners * min_samples = {learners} * {self.min_samples} = {needed}",
                self.total_samples,
                "Lower min_samples, drop learners or use more samples.",
            )
        fastest = float(self.coefficients.c2.min())
        if self.cycle_time_s / fastest > 2**53:
            raise complain(
                "cycle_time_s",
                "less than 2**53 times the smallest c2, or epochs times samples is no exact number",
                f"{self.cycle_time_s:g} s with c2 = {fastest:g} s",
                "Check the units of cpu_hz and cycle_time_s.",
            )

    @classmethod
    def from_devices(
        cls,
        devices: Sequence[Device],
        workload: Workload,
        *,
        cycle_time_s: float,
        total_samples: int,
        staleness: int = 0,
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

    def replace(self, **changes: Any) -> AllocationProblem:
        """Return a copy with some fields changed, validated anew."""
        fields: dict[str, Any] = {
            "coefficients": self.coefficients,
            "cycle_time_s": self.cycle_time_s,
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
        merged = fields | changes
        if "energy_limit_j" in changes or np.isfinite(self.energy_limit_j).all():
            return AllocationProblem(**merged)
        fresh = AllocationProblem(**merged | {"energy_limit_j": None})
        if len(fresh) != len(self):
            rule = f"one value per learner ({len(fresh)})"
            raise complain("energy_limit_j", rule, f"{len(self)} values", "Replace it as well.")
        # "No limit" is stored as infinity, which users may not give.
        object.__setattr__(fresh, "energy_limit_j", self.energy_limit_j)
        return fresh


def _energy_limits(value: Limits, learners: int) -> FloatArray:
    remedy = "Use None for no limit."
    if value is None:
        return frozen(np.full(learners, np.inf))
    if np.isscalar(value):
        return frozen(np.full(learners, number("energy_limit_j", value, above=0, remedy=remedy)))
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiu":
        return numbers("energy_limit_j", value, length=learners, above=0)
    value = list(entries("energy_limit_j", value, learners))
    limits = [
        np.inf if e is None else number(f"energy_limit_j[{k}]", e, above=0, remedy=remedy)
        for k, e in enumerate(value)
    ]
    return frozen(np.array(limits))


def _sample_limits(value: CountLimits, learners: int) -> IntArray:
    if value is None:
        return frozen(np.full(learners, NO_LIMIT, dtype=np.int64))
    if np.isscalar(value):
        return frozen(
            np.full(
                learners,
                count("max_samples", value, remedy="Use None for no limit."),
                dtype=np.int64,
            )
        )
    if not isinstance(value, np.ndarray) or value.dtype == object:
        given = entries("max_samples", value, learners)
        value = [NO_LIMIT if n is None else n for n in given]
    return counts("max_samples", value, length=learners)
