"""Whose data count for how much in the model: the paper's weights, and FedNova's normalisation.

A plain average of learners that do different numbers of steps s_k minimises another loss than the one it is
weighted for: learner k's data count for p_k s_k, not for p_k. FedNova (Wang et al., NeurIPS 2020) takes
everybody's change per step, times the average number of steps:

    x + sum_k p_k (tau_eff / s_k) (x_k - x),    tau_eff = sum_k p_k s_k

so that data count for p_k, whatever the work was. Steps are counted in samples, s_k = tau_k d_k: the batch
size is everybody's and cancels.

An update that took m cycles counts for its weight over sqrt(m), as the model has moved on meanwhile. Where
data count as they are held, who reports every m-th cycle has to count m times as often as that, or its data
would count for less than it holds. Counting m-fold at once, which was tried, made the model swing: between
two reports it forgot labels that only slow learners hold. So such an update counts in each of m cycles, for
n_k / sqrt(m), each time moved onto the present model (`flwr_mel.orchestrator.echoes`).

Weights follow from what learners hold and how fast they are, which is their word. So that no word makes one
of them the model, nobody has more than a share of the weight: half of it, or twice the mean share where that
is less. Half, because who has more than that moves the model where it wants, whatever the others do; twice,
because so one liar in five, or two in ten, stay a minority (bench/attacks.py), and honest fleets seldom have
anybody far above it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

#: The default of `Settings.max_share`: see `bounded_share`.
AUTO = "auto"
_MOST, _TIMES_THE_MEAN = 0.5, 2.0
#: Of fewer learners none is in the minority.
FEWEST = 3


class Average(StrEnum):
    """How the learners' models become one."""

    SAMPLES = "samples"
    """Weighted by d_k, as the paper and FedAvg do."""
    NOVA = "nova"
    """FedNova's, with p_k = d_k / d: data count as they were used."""
    NOVA_HELD = "nova-held"
    """FedNova's, with p_k = n_k / n: data count as learners hold them, however little they used.

    An update that took m cycles counts in m cycles."""


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
        How many it took: the weight is divided by their square root, as the model has moved on meanwhile.
    learner : str
        Whose it is.
    """

    epochs: float
    samples: int
    held: int | None = None
    cycles: int = 1
    learner: str = ""

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
    asked : tuple of int
        What the weights would be without a bound on their shares.
    """

    weights: tuple[int, ...]
    factors: tuple[float, ...]
    shares: tuple[float, ...]
    asked: tuple[int, ...]

    @property
    def bounded(self) -> tuple[bool, ...]:
        """Whose weight would be larger without the bound."""
        return tuple(new < old for new, old in zip(self.weights, self.asked, strict=True))


def bounded_share(asked: float | str | None, learners: int) -> float | None:
    """Return the largest share of the weight that a learner may have; None: there is no bound.

    Parameters
    ----------
    asked : float or str, optional
        Of the settings; "auto": half, or twice the mean share where that is less, and no bound for fewer
        than three learners, of whom none is in the minority.
    learners : int
        How many there are.
    """
    if asked is None:
        return None
    if isinstance(asked, str):
        return min(_MOST, _TIMES_THE_MEAN / learners) if learners >= FEWEST else None
    return max(asked, 1 / max(learners, 1))


def capped(weights: Sequence[int], owners: Sequence[str], share: float) -> list[int]:
    """Return weights of which no owner's are more than a share of the sum; others stay as they are.

    Parameters
    ----------
    weights : sequence of int
        At least 1 each.
    owners : sequence of str
        Whose they are; one may have several.
    share : float
        Of the new sum; if that is less than an equal share for everybody, the equal share.
    """
    sums: dict[str, int] = {}
    for owner, weight in zip(owners, weights, strict=True):
        sums[owner] = sums.get(owner, 0) + weight
    share = max(share, 1 / len(sums))
    # The largest ones have as much as the bound allows beside the others: w = share (rest + n w).
    rest, most, cut = sum(sums.values()), 0, 0
    if max(sums.values()) <= share * rest:
        return list(weights)
    for weight in sorted(sums.values(), reverse=True):
        if cut and weight <= most:
            break
        rest, cut = rest - weight, cut + 1
        left = 1 - cut * share
        most = int(share * rest / left) if left > 1e-9 else min(sums.values())
    most = max(most, 1)
    return [
        weight if sums[owner] <= most else max(weight * most // sums[owner], 1)
        for owner, weight in zip(owners, weights, strict=True)
    ]


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


def blend(average: Average, works: Sequence[Work], max_share: float | None = None) -> Blend:
    """Return weights, factors and shares of the learners whose updates are used.

    Parameters
    ----------
    average : Average
        The rule.
    works : sequence of Work
        Theirs.
    max_share : float, optional
        What share of the weight a learner may have.
    """
    held = average is Average.NOVA_HELD
    asked = [discounted(x.held if held and x.held is not None else x.samples, x.cycles) for x in works]
    weights = asked
    if max_share is not None and works:
        weights = capped(asked, [x.learner or f"#{k}" for k, x in enumerate(works)], max_share)
    steps = [x.steps for x in works]
    # In whole numbers, whose quotients Python rounds once: equal work gives factors of exactly 1.
    total, moved = sum(weights), [w * s for w, s in zip(weights, steps, strict=True)]
    effective = sum(moved)
    if average is Average.SAMPLES:
        shares, factors = [x / effective for x in moved], [1.0] * len(works)
    else:
        shares, factors = [w / total for w in weights], [effective / (total * s) for s in steps]
    return Blend(tuple(weights), tuple(factors), tuple(shares), tuple(asked))
