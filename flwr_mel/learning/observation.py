"""What came back of one task, as the estimate takes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known of one finished task.

    Parameters
    ----------
    epochs, samples : int
        What was done.
    train_s, joules : float, optional
        What the learner says it took.
    round_trip_s : float, optional
        From sending to arrival, by the server's clock.
    late_after_s : float, optional
        It did not reply within this time.
    planned_s : float
        What the plan expected, safety included.
    """

    epochs: int
    samples: int
    train_s: float | None = None
    joules: float | None = None
    round_trip_s: float | None = None
    late_after_s: float | None = None
    planned_s: float = 0.0
