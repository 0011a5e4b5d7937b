"""What a client with sample-level differential privacy may do in one round."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flwr_mel._validate import complain, count, number


@dataclass(frozen=True, slots=True)
class PrivateSteps:
    """The sampling rate and the steps per round for which epsilon was computed, for example with Opacus.

    DP-SGD's epsilon grows with the share of the data in each batch and with the number of steps. Fewer
    samples raise the first, more epochs the second. The mod rejects a task that exceeds either, before the
    app sees it, and the server receives the reason.

    Parameters
    ----------
    batch_size : int
        Samples per step, on average.
    sampling_rate : float
        Largest share of the data in a batch: batch_size over the samples of the round.
    steps : int
        Largest number of steps in one round; at least one epoch, ceil(1 / sampling_rate).
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
        least = -(-self.min_samples // self.batch_size)
        if self.steps < least:
            rule = f"at least {least}, one epoch on {self.min_samples:,} samples"
            raise complain("steps", rule, self.steps, "Declare more steps or a higher sampling rate.")

    @property
    def min_samples(self) -> int:
        """Fewest samples with which a batch keeps the sampling rate."""
        # Rounded: a quotient of 100.00000000000001 must not require 101 samples.
        return math.ceil(round(self.batch_size / self.sampling_rate, 9))

    def refusal(self, epochs: int, samples: int) -> str | None:
        """Return why a task exceeds these limits, with the formula; None if it does not.

        Parameters
        ----------
        epochs, samples : int
            tau_k and d_k.
        """
        task = f"a task of {epochs} epochs on {samples:,} samples exceeds this client's PrivateSteps"
        if samples < self.min_samples:
            return (
                f"{task}: batch_size / samples = {self.batch_size} / {samples} is above the sampling rate "
                f"{self.sampling_rate:g}. Plan with min_samples={self.min_samples}"
            )
        steps = epochs * -(-samples // self.batch_size)
        if steps > self.steps:
            return (
                f"{task}: epochs * ceil(samples / batch_size) = {epochs} * ceil({samples} / "
                f"{self.batch_size}) = {steps} steps, at most {self.steps}. Plan with a smaller max_epochs, "
                "or declare more steps"
            )
        return None
