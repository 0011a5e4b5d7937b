"""What keeps each learner of an allocation from more."""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from flwr_mel._validate import IntArray
from flwr_mel.allocation.problem import AllocationProblem


class Limit(StrEnum):
    """What keeps a learner from doing more work."""

    NONE = ""
    """It has no work."""
    TIME = "time"
    ENERGY = "energy"
    DATA = "data"
    """It holds no more samples."""
    STALENESS = "staleness"
    """One more epoch would fit, but the slowest learner is already c epochs behind."""
    MAX_EPOCHS = "max_epochs"
    """One more epoch would fit, but `max_epochs` forbids it."""


def limiting(problem: AllocationProblem, epochs: IntArray, samples: IntArray) -> list[Limit]:
    """Say for every learner what keeps it from more.

    A cap on epochs is named where one more epoch on the same batch keeps time and energy: lifting it
    alone would help. Elsewhere the nearest of time, energy and data is named, counted in samples that
    could still be added.

    Parameters
    ----------
    problem : AllocationProblem
        The limits.
    epochs, samples : int arrays
        The allocation; 0 for learners left out.
    """
    c, taking_part = problem.coefficients, epochs > 0
    if not taking_part.any():
        return [Limit.NONE] * len(problem)
    with np.errstate(divide="ignore", invalid="ignore"):
        by_time = (problem.deadline_s - c.time_s(epochs, samples)) / (c.c2 * epochs + c.c1)
        by_energy = (problem.energy_limit_j - c.energy_j(epochs, samples)) / (c.g2 * epochs + c.g1)
    spare = np.stack([by_time, np.nan_to_num(by_energy, nan=np.inf), problem.max_samples - samples])
    more = np.where(taking_part, epochs + 1, 0)
    fits = (c.time_s(more, samples) <= problem.deadline_s) & (
        c.energy_j(more, samples) <= problem.energy_limit_j
    )
    # Equal batches that a learner cannot carry: that learner's 0 epochs count as the least.
    slowest = int(epochs[taking_part].min()) if samples.sum() == problem.total_samples else 0
    names = np.array([Limit.TIME, Limit.ENERGY, Limit.DATA], dtype=object)[spare.argmin(axis=0)]
    names[fits & (epochs >= slowest + problem.staleness)] = Limit.STALENESS
    names[fits & (epochs >= problem.max_epochs)] = Limit.MAX_EPOCHS
    names[~taking_part] = Limit.NONE
    return list(names)
