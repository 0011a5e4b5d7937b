"""Handing out the samples once everybody's epochs are known."""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from flwr_mel._validate import FloatArray, IntArray


class Handout(StrEnum):
    """Rules for the d_k. All keep d_l <= d_k <= cap_k and use all samples."""

    PROPORTIONAL = "proportional"
    """Everybody is filled to the same share of its capacity, so all have the same slack."""
    EVEN = "even"
    """Batches as equal as the capacities allow."""
    STRONGEST_FIRST = "strongest-first"
    """Who can pass most samples in the cycle (tau_k cap_k) is filled up before the next one."""


def hand_out(rule: Handout, total: int, capacity: IntArray, least: int, epochs: IntArray) -> IntArray:
    """Return the d_k: integers between `least` and `capacity` that sum to `total`.

    Parameters
    ----------
    rule : Handout
        Which of the many possible hand-outs.
    total : int
        d, with ``len(capacity) * least <= total <= capacity.sum()``.
    capacity : int array
        cap_k(tau_k), each at least `least`.
    least : int
        d_l.
    epochs : int array
        tau_k, which the strongest-first rule looks at.
    """
    if rule is Handout.STRONGEST_FIRST:
        # Stable, so that equals are served in the fleet's order.
        order = np.argsort(-(epochs * capacity), kind="stable")
        room = (capacity - least)[order]
        before = np.cumsum(room) - room
        samples = np.full(len(capacity), least, dtype=np.int64)
        samples[order] += np.clip(total - least * len(capacity) - before, 0, room)
        return samples
    weight = capacity.astype(np.float64) if rule is Handout.PROPORTIONAL else np.ones(len(capacity))
    return _round(_water_level(total, capacity, least, weight), total, capacity, least)


def _water_level(total: int, capacity: IntArray, least: int, weight: FloatArray) -> FloatArray:
    """Real d_k = clip(level * weight_k, least, capacity_k) that sum to `total`.

    The sum grows piecewise linearly with the level and bends where a learner leaves its floor or
    meets its ceiling: sort the bends, find the piece, solve it.
    """
    rise, stop = least / weight, capacity / weight
    bends = np.concatenate([rise, stop])
    slope_change = np.concatenate([weight, -weight])
    order = np.argsort(bends, kind="stable")
    bends, slope = bends[order], np.cumsum(slope_change[order])
    filled = least * len(capacity) + np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(bends))])
    piece = max(int(np.searchsorted(filled, total, side="right")) - 1, 0)
    level = bends[piece]
    if slope[piece] > 0:
        level += (total - filled[piece]) / slope[piece]
    share: FloatArray = np.clip(level * weight, least, capacity)
    return share


def _round(share: FloatArray, total: int, capacity: IntArray, least: int) -> IntArray:
    """Round to integers with the exact sum, largest remainders first."""
    samples = np.clip(np.floor(share).astype(np.int64), least, capacity)
    missing = total - int(samples.sum())
    while missing > 0:
        open_ = np.flatnonzero(samples < capacity)
        chosen = open_[np.argsort(samples[open_] - share[open_], kind="stable")[:missing]]
        samples[chosen] += 1
        missing -= len(chosen)
    while missing < 0:
        # Only float noise gets here: a floor that came out one too high.
        open_ = np.flatnonzero(samples > least)
        chosen = open_[np.argsort(share[open_] - samples[open_], kind="stable")[:-missing]]
        samples[chosen] -= 1
        missing += len(chosen)
    return samples
