"""What comes back from `allocate`: the allocation, its certificate and who was left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context, Decimal
from enum import Enum, StrEnum

from flwr_mel._validate import FloatArray, IntArray


class Objective(StrEnum):
    """What an allocation maximises."""

    EPOCHS = "epochs"
    """The paper's: the mean of tau_k."""
    PROGRESS = "progress"
    """S = sum_k tau_k d_k^2 / d: samples passed, weighted as the average weights them."""


class Status(Enum):
    """How an allocation ended; the value is the explanation."""

    OPTIMAL = "Optimal: no allocation within the limits has a higher objective."
    FEASIBLE = "Feasible: every limit is kept; the bound tells how far the optimum can be."
    PARTIAL = (
        "Partial: equal batches; learners that cannot carry theirs are left out, so some samples are "
        "not used this cycle."
    )
    INFEASIBLE = "Infeasible: the learners cannot carry all samples within the limits."

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
    MIN_BATCH_TIME = "one epoch on the least batch does not fit into the cycle time"
    MIN_BATCH_ENERGY = "one epoch on the least batch does not fit into the energy limit"
    MIN_BATCH_DATA = "it holds fewer samples than the least batch"
    BATCH = "one epoch on the equal batch does not fit into its limits"
    STRAGGLER = "without it the others can do more epochs in sum"
    WEAK = "its share of the samples makes more progress elsewhere"

    @property
    def explanation(self) -> str:
        """One clause for people."""
        return self.value

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why no allocation exists, and what would mend it.

    Parameters
    ----------
    total_samples : int
        The samples asked for.
    carried : int
        The samples the learners can carry at one epoch each: the largest total_samples that fits
        (0: none, when it is below what the least batches need).
    cycle_time_s : float or None
        The smallest cycle time that works, all else equal; None when none does.
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
                f"at one epoch each the learners carry {self.carried:,} of {self.total_samples:,} samples, "
                f"{short:,} too few"
            )
        if 0 < self.carried < self.total_samples:
            parts.append(f"the largest total_samples that fits is {self.carried:,}")
        if self.cycle_time_s is not None:
            parts.append(f"the smallest cycle time that works is {round_up(self.cycle_time_s)} s")
        else:
            parts.append("no cycle time is long enough: energy limits, max_samples or the fleet must grow")
        return "; ".join(parts)


def round_up(x: float, digits: int = 6) -> str:
    """Write a positive number with a few digits, never below its value, so that it can be typed back in."""
    return f"{float(Context(prec=digits, rounding=ROUND_CEILING).plus(Decimal(x))):.{digits}g}"


class Infeasible(Exception):
    """No allocation keeps all limits. The message says why and what would mend it."""

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
    mean_epochs : float
        The paper's objective (sum_k tau_k) / K, over all K learners of the problem.
    bound : float
        Proven upper bound on mean_epochs, over all allocations of the solver's kind (for
        `EqualBatches`: over all equal batches). It is one whatever was maximised.
    status : Status
        The outcome, with its explanation.
    excluded : mapping of int to Reason
        Learners left out.
    time_s, energy_j : float arrays
        Predicted time and energy per learner; 0 for those left out.
    diagnosis : Diagnosis, optional
        Only when infeasible.
    stats : mapping
        What the solver tells about its work.
    objective : Objective
        What was maximised; `status` and `gap` are about it.
    progress_bound : float, optional
        Proven upper bound on `progress`. Only when that was maximised.
    """

    epochs: IntArray
    samples: IntArray
    mean_epochs: float
    bound: float
    status: Status
    excluded: Mapping[int, Reason]
    time_s: FloatArray
    energy_j: FloatArray
    diagnosis: Diagnosis | None = None
    stats: Mapping[str, float | str] = field(default_factory=dict)
    objective: Objective = Objective.EPOCHS
    progress_bound: float | None = None

    @property
    def progress(self) -> float:
        """S = sum_k tau_k d_k^2 / sum_k d_k, whatever was maximised."""
        used = int(self.samples.sum())
        return weighted_squares(self.epochs, self.samples) / used if used else 0.0

    @property
    def gap(self) -> float:
        """How far the optimum can be above this solution, as a share of the solution."""
        if self.progress_bound is not None:
            return self.progress_bound / self.progress - 1 if self.progress else float("inf")
        return self.bound / self.mean_epochs - 1 if self.mean_epochs else float("inf")

    @property
    def staleness(self) -> int:
        """Largest difference between two participants' epochs."""
        taking_part = self.epochs[self.epochs > 0]
        return int(taking_part.max() - taking_part.min()) if len(taking_part) else 0


def weighted_squares(epochs: IntArray, samples: IntArray) -> int:
    """Return sum_k tau_k d_k^2, exactly."""
    largest = int(epochs.max(initial=0)) * int(samples.max(initial=0)) ** 2
    if largest * len(epochs) < 2**62:
        return int((epochs * samples * samples).sum())
    return sum(t * d * d for t, d in zip(epochs.tolist(), samples.tolist(), strict=True))
