"""How much each learner's update counts: the paper's weights, and FedNova's normalisation.

A plain average of learners that do different numbers of steps s_k minimises another loss than the one it
is weighted for: learner k's data count for p_k s_k, not for p_k. FedNova (Wang et al., NeurIPS 2020) averages
the changes per step, times the average number of steps:

    x + sum_k p_k (tau_eff / s_k) (x_k - x),    tau_eff = sum_k p_k s_k

so that data count for p_k, whatever the work was. Steps are counted in samples, s_k = tau_k d_k: the batch
size is the same for all learners and cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Any

import numpy as np
import numpy.typing as npt

from flwr_mel._npy import narrow, wide
from flwr_mel.cycle.options import Average

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Work:
    """What one learner did in a cycle.

    Parameters
    ----------
    epochs : float
        tau_k.
    samples : int
        d_k.
    held : int, optional
        n_k; None: not known, then d_k stands in.
    claimed : bool
        Whether only the learner says how many epochs it did, as in the project's own work.
    """

    epochs: float
    samples: int
    held: int | None = None
    claimed: bool = False

    @property
    def steps(self) -> int:
        """s_k, in samples."""
        return max(round(self.epochs * self.samples), 1)


@dataclass(frozen=True, slots=True)
class Blend:
    """How the updates of one cycle are averaged; one entry per learner.

    Parameters
    ----------
    weights : tuple of int
        Weights of the average.
    factors : tuple of float
        What the changes are multiplied by before. Exactly 1 where all learners did the same work.
    shares : tuple of float
        The share of the learner's data in the model.
    asked : tuple of int
        What the weights would be without `max_share`.
    steps : float
        tau_eff, the local steps (in samples) that the average stands for.
    """

    weights: tuple[int, ...]
    factors: tuple[float, ...]
    shares: tuple[float, ...]
    asked: tuple[int, ...]
    steps: float


def blend(average: Average, works: Sequence[Work], max_share: float | None = None) -> Blend:
    """Return weights, factors and shares of the learners whose updates are used.

    Parameters
    ----------
    average : Average
        The rule.
    works : sequence of Work
        What they did.
    max_share : float, optional
        The largest share of the weight that one learner may have.
    """
    held = average is Average.NOVA_HELD
    asked = [x.held if held and x.held is not None else x.samples for x in works]
    weights = asked if max_share is None or not works else capped(asked, max_share)
    steps = [x.steps for x in works]
    total, moved = sum(weights), [w * s for w, s in zip(weights, steps, strict=True)]
    effective = sum(moved)
    if average is Average.SAMPLES:
        shares, factors = [x / effective for x in moved], [1.0] * len(works)
    else:
        # A claim of more epochs than usual must not move the other learners.
        usual = median_low(x.epochs for x in works) if works else 0
        sure = [
            min(s, max(round(usual * x.samples), 1)) if x.claimed else s
            for x, s in zip(works, steps, strict=True)
        ]
        # In whole numbers, whose quotients Python rounds once: equal work gives factors of exactly 1.
        effective = sum(w * s for w, s in zip(weights, sure, strict=True))
        shares, factors = [w / total for w in weights], [effective / (total * s) for s in steps]
    return Blend(
        tuple(weights), tuple(factors), tuple(shares), tuple(asked), effective / total if total else 0.0
    )


def capped(weights: Sequence[int], share: float) -> list[int]:
    """Return weights of which none is more than a share of their sum; smaller ones stay as they are.

    Parameters
    ----------
    weights : sequence of int
        At least 1 each.
    share : float
        Of the new sum. Less than an equal share for all learners means the equal share.
    """
    share = max(share, 1 / len(weights))
    # The largest ones get as much as the bound allows beside the others: w = share (rest + n w).
    rest, most, cut = sum(weights), 0, 0
    if max(weights) <= share * rest:
        return list(weights)
    for weight in sorted(weights, reverse=True):
        if cut and weight <= most:
            break
        rest, cut = rest - weight, cut + 1
        left = 1 - cut * share
        most = int(share * rest / left) if left > 1e-9 else min(weights)
    return [min(weight, max(most, 1)) for weight in weights]


def weighted_average(updates: Sequence[Sequence[Array]], weights: Sequence[float]) -> list[Array]:
    """Average with weights d_k, Eq. (Eq_Sec03_GlobalAgg), summed in double precision.

    The same bits come out whichever Flower API brought the updates, as long as their order is the same.

    Parameters
    ----------
    updates : sequence of sequences of arrays
        Per learner the model's arrays.
    weights : sequence of numbers
        Samples per learner.
    """
    total = float(sum(weights))
    average = []
    for layer in zip(*updates, strict=True):
        exact = wide(np.zeros_like(layer[0]))
        for array, weight in zip(layer, weights, strict=True):
            exact += wide(array) * (weight / total)
        average.append(narrow(exact, layer[0].dtype))
    return average
