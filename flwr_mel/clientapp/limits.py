"""What a learner with sample-level differential privacy may do in one cycle."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flwr_mel import wire
from flwr_mel._validate import complain, count, number


@dataclass(frozen=True, slots=True)
class PrivateSteps:
    """The sampling rate and the steps per cycle on which a learner's epsilon was computed (e.g. with Opacus).

    DP-SGD's epsilon grows with the share of the data in each batch and with the number of steps. A task with
    few samples raises the first, one with many epochs the second. With these limits a task is cut before the
    app sees it: at least batch_size / sampling_rate samples, at most `steps` batches in a cycle.

    Parameters
    ----------
    batch_size : int
        Samples per step, on average.
    sampling_rate : float
        Largest share of the data in a batch: batch_size over the samples of the cycle.
    steps : int
        Most steps in one cycle, at least one pass: ceil(1 / sampling_rate).
    """

    batch_size: int
    sampling_rate: float
    steps: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch_size", count("batch_size", self.batch_size, least=1))
        rate = number("sampling_rate", self.sampling_rate, above=0)
        if rate > 1:
            raise complain("sampling_rate", "at most 1: batch_size over the samples held", rate)
        object.__setattr__(self, "sampling_rate", rate)
        object.__setattr__(self, "steps", count("steps", self.steps, least=1))
        if self.steps < self._steps_of(self.min_samples):
            rule = f"at least {self._steps_of(self.min_samples)}, one pass over {self.min_samples:,} samples"
            raise complain("steps", rule, self.steps, "Declare more steps or a higher sampling rate.")

    @property
    def min_samples(self) -> int:
        """Fewest samples with which a batch keeps the sampling rate."""
        # A quotient that is an integer but for rounding must not ask for one sample more.
        return math.ceil(round(self.batch_size / self.sampling_rate, 9))

    def _steps_of(self, samples: int) -> int:
        return -(-samples // self.batch_size)

    def within(self, epochs: int, samples: int) -> tuple[int, int]:
        """Cut a task to these limits.

        Parameters
        ----------
        epochs, samples : int
            tau_k and d_k.
        """
        kept = min(max(samples, self.min_samples), self.steps * self.batch_size)
        return min(epochs, self.steps // self._steps_of(kept)), kept

    def words(self) -> dict[str, int]:
        """Return these limits in the words of the wire, so that the plan keeps them too."""
        return {
            wire.MIN_SAMPLES: self.min_samples,
            wire.MAX_STEPS: self.steps,
            wire.STEP_SAMPLES: self.batch_size,
        }
