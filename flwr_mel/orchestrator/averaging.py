"""Whose data count for how much in the model: the paper's weights, and FedNova's normalisation.

A plain average of learners that do different numbers of steps s_k minimises another loss than the one it is
weighted for: learner k's data count for p_k s_k, not for p_k. FedNova (Wang et al., NeurIPS 2020) takes
everybody's change per step, times the average number of steps:

    x + sum_k p_k (tau_eff / s_k) (x_k - x),    tau_eff = sum_k p_k s_k

so that data count for p_k, whatever the work was. Steps are counted in samples, s_k = tau_k d_k: the batch
size is everybody's and cancels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Average(StrEnum):
    """How the learners' models become one."""

    SAMPLES = "samples"
    """Weighted by d_k, as the paper and FedAvg do."""
    NOVA = "nova"
    """FedNova's, with p_k = d_k / d: data count as they were used."""
    NOVA_HELD = "nova-held"
    """FedNova's, with p_k = n_k / n: data count as learners hold them, however little they used."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one learner did in a cycle.

    Parameters
    ----------
    epochs : float
        tau_k; 0: as many as everybody.
    samples : int
        d_k.
    held : int, optional
        n_k; None: not known, then d_k stands in.
    cycles : int
        How many it took: the weight is divided by their square root, as the model has moved on meanwhile;
        where data count as they are held, it is multiplied by them before.
    """

    epochs: float
    samples: int
    held: int | None = None
    cycles: int = 1

    @property
    def steps(self) -> int:
        """s_k, in samples."""
        return max(round((self.epochs or 1) * self.samples), 1)


@dataclass(frozen=True, slots=True)
class Blend:
    """How one cycle's updates are blended; one entry per learner.

    Parameters
    ----------
    weights : tuple of int
        What they are averaged by.
    factors : tuple of float
        What their changes are multiplied by before. Exactly 1 where all did the same work.
    shares : tuple of float
        What part of the model's loss their data are.
    """

    weights: tuple[int, ...]
    factors: tuple[float, ...]
    shares: tuple[float, ...]


def discounted(weight: int, cycles: int) -> int:
    """Return what an update counts for that took so many cycles: weight / sqrt(cycles), at least 1.

    Parameters
    ----------
    weight : int
        Its samples.
    cycles : int
        From the one with whose model it began to the one in which it is used, both included.
    """
    return max(weight if cycles == 1 else round(weight / math.sqrt(cycles)), 1)


def blend(average: Average, works: Sequence[Work]) -> Blend:
    """Return weights, factors and shares of the learners whose updates are used.

    Parameters
    ----------
    average : Average
        The rule.
    works : sequence of Work
        Theirs.
    """
    held = average is Average.NOVA_HELD
    # Who reports every m-th cycle counts m-fold then: else its data would count for less than it holds.
    weights = [
        discounted(x.held * x.cycles if held and x.held is not None else x.samples, x.cycles) for x in works
    ]
    steps = [x.steps for x in works]
    # In whole numbers, whose quotients Python rounds once: equal work gives factors of exactly 1.
    total, moved = sum(weights), [w * s for w, s in zip(weights, steps, strict=True)]
    effective = sum(moved)
    if average is Average.SAMPLES:
        shares, factors = [x / effective for x in moved], [1.0] * len(works)
    else:
        shares, factors = [w / total for w in weights], [effective / (total * s) for s in steps]
    return Blend(tuple(weights), tuple(factors), tuple(shares))
