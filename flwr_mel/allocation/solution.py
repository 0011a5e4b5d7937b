"""What comes back from `allocate`: the allocation, its certificate and the excluded learners."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context, Decimal
from enum import Enum

from flwr_mel._validate import FloatArray, IntArray
from flwr_mel.allocation.objectives import EPOCHS, Goal


class Status(Enum):
    """How an allocation ended; the value is the explanation."""

    OPTIMAL = "Optimal: no allocation within the limits has a higher objective."
    FEASIBLE = "Feasible: every limit is kept; the bound shows how far away the optimum can be."
    PARTIAL = (
        "Partial: equal batches; learners that cannot process theirs are left out, so some samples are "
        "not used this cycle."
    )
    INFEASIBLE = "Infeasible: the learners cannot process all samples within the limits."

    @property
    def explanation(self) -> str:
        """One sentence for people."""
        return self.value

    @property
    def ok(self) -> bool:
        """Whether there is an allocation to use."""
        return self is not Status.INFEASIBLE

    def __str__(self) -> str:
        return self.name.lower()


class Reason(Enum):
    """Why a learner was left out; the value is the explanation."""

    DEADLINE = "exchanging the model alone takes the whole cycle time"
    ENERGY = "sending the model back alone takes the whole energy limit"
    MIN_BATCH_TIME = "one epoch on the smallest batch does not fit into the cycle time"
    MIN_BATCH_ENERGY = "one epoch on the smallest batch does not fit into the energy limit"
    MIN_BATCH_DATA = "it holds fewer samples than the smallest batch"
    BATCH = "one epoch on the equal batch does not fit into its limits"
    STRAGGLER = "without it the others can do more epochs in total"

    @property
    def explanation(self) -> str:
        """One clause for people."""
        return self.value

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why no allocation exists, and which values would work.

    Parameters
    ----------
    total_samples : int
        The samples asked for.
    carried : int
        The samples the learners can carry at one epoch each: the largest total_samples that fits
        (0: none).
    cycle_time_s : float or None
        The smallest cycle time for all that works, all else equal; None when none does.
    detail : str
        What a special rule adds, e.g. equal batches.
    """

    total_samples: int
    carried: int
    cycle_time_s: float | None
    detail: str = ""

    def __str__(self) -> str:
        parts = []
        if self.detail:
            parts.append(self.detail)
        else:
            short = self.total_samples - self.carried
            parts.append(
                f"with one epoch each, the learners can process {self.carried:,} of {self.total_samples:,} "
                f"samples, {short:,} too few"
            )
        if 0 < self.carried < self.total_samples:
            parts.append(f"the largest total_samples that fits is {self.carried:,}")
        if self.cycle_time_s is not None:
            parts.append(f"the smallest cycle time that works is {round_up(self.cycle_time_s)} s")
        else:
            parts.append(
                "no cycle time is long enough: energy limits, max_samples or the fleet must grow, "
                "or min_samples fall"
            )
        return "; ".join(parts)


def round_up(x: float, digits: int = 6) -> str:
    """Write a positive number with a few digits, never below its value, so that it can be typed back in."""
    return f"{float(Context(prec=digits, rounding=ROUND_CEILING).plus(Decimal(x))):.{digits}g}"


class Infeasible(Exception):
    """No allocation keeps all limits. The message states the reason and values that would work."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(f"{Status.INFEASIBLE.explanation} {str(diagnosis)[0].upper()}{str(diagnosis)[1:]}.")
        self.diagnosis = diagnosis


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """An allocation that keeps every limit, or the reason why there is none.

    Parameters
    ----------
    epochs, samples : int arrays
        tau_k and d_k; 0 for learners left out.
    value : float
        Of the objective, e.g. the mean epochs.
    bound : float
        Proven upper bound on that objective, over all allocations of the
        solver's kind; for `EqualBatches`: over all equal batches.
    status : Status
        The outcome, with its explanation.
    excluded : mapping of int to Reason
        Learners left out.
    time_s, energy_j : float arrays
        Predicted time and energy per learner; 0 for those left out.
    diagnosis : Diagnosis, optional
        Only when infeasible.
    stats : mapping
        Figures about the solver's work.
    objective : Goal
        What the allocation was made for; `value`, `bound`, `gap` and `status` are about it.
    """

    epochs: IntArray
    samples: IntArray
    value: float
    bound: float
    status: Status
    excluded: Mapping[int, Reason]
    time_s: FloatArray
    energy_j: FloatArray
    diagnosis: Diagnosis | None = None
    stats: Mapping[str, float | str] = field(default_factory=dict)
    objective: Goal = EPOCHS

    @property
    def mean_epochs(self) -> float:
        """The paper's objective (sum_k tau_k) / K over all K learners, whatever was maximised."""
        return int(self.epochs.sum()) / len(self.epochs)

    @property
    def progress(self) -> float:
        """S = sum_k tau_k d_k^2 / sum_k d_k: samples passed, weighted as the average weights them."""
        used = float(self.samples.sum())
        return float(self.epochs @ self.samples.astype(float) ** 2) / used if used else 0.0

    @property
    def gap(self) -> float:
        """How far the optimum can be from this solution, as a share of its value."""
        if self.value == self.bound and self.status.ok:
            return 0.0
        return self.bound / self.value - 1 if self.value else float("inf")

    @property
    def staleness(self) -> int:
        """Largest difference between two participants' epochs."""
        taking_part = self.epochs[self.epochs > 0]
        return int(taking_part.max() - taking_part.min()) if len(taking_part) else 0
