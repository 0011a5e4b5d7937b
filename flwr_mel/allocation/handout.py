"""Handing out the samples once the epochs are known."""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import FloatArray, IntArray, complain


class Handout(StrEnum):
    """Rules for the d_k. All keep d_l <= d_k <= cap_k and use all samples."""

    PROPORTIONAL = "proportional"
    """All learners get the same share of their capacity and so have the same slack."""
    EVEN = "even"
    """Batches as equal as the capacities allow."""
    STRONGEST_FIRST = "strongest-first"
    """The learner that can process most samples in a cycle (tau_k cap_k) is filled first, then the next."""

    @classmethod
    def _missing_(cls, value: object) -> None:
        raise complain("handout", f"one of {', '.join(repr(str(rule)) for rule in cls)}", value)


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
    rule = Handout(rule)
    if not least * len(capacity) <= total <= capacity.sum() or (capacity < least).any():
        limits = f"from {least} * {len(capacity)} to the sum of capacities, each at least {least}"
        raise complain("total", limits, total)
    if rule is Handout.STRONGEST_FIRST:
        # Stable, so that equals are served in the fleet's order.
        order = np.argsort(-(epochs * capacity), kind="stable")
        room = (capacity - least)[order]
        before = np.cumsum(room) - room
        samples = np.full(len(capacity), least, dtype=np.int64)
        samples[order] += np.clip(total - least * len(capacity) - before, 0, room)
        return samples
    share = _proportional(total, capacity, least) if rule is Handout.PROPORTIONAL else _even(total, capacity)
    return _round(share, total, capacity, least)


def _proportional(total: int, capacity: IntArray, least: int) -> FloatArray:
    """Real d_k = max(level * cap_k, d_l) with the sum d. The level is at most 1, so no ceiling binds."""
    free = np.ones(len(capacity), dtype=np.bool_)
    while True:
        level = (total - least * int((~free).sum())) / max(int(capacity[free].sum()), 1)
        low = free & (level * capacity < least)
        if not low.any():
            return np.where(free, level * capacity, float(least))
        free &= ~low


def _even(total: int, capacity: IntArray) -> FloatArray:
    """Real d_k = min(level, cap_k) with the sum d. The level is at least d/K >= d_l: no floor binds."""
    free = np.ones(len(capacity), dtype=np.bool_)
    while True:
        level = (total - int(capacity[~free].sum())) / max(int(free.sum()), 1)
        high = free & (capacity < level)
        if not high.any():
            return np.where(free, level, capacity)
        free &= ~high


def _round(share: FloatArray, total: int, capacity: IntArray, least: int) -> IntArray:
    """Round to integers with the exact sum, largest remainders first, equals in the fleet's order."""
    samples = np.clip(np.floor(share).astype(np.int64), least, capacity)
    while (missing := total - int(samples.sum())) > 0:
        open_ = np.flatnonzero(samples < capacity)
        samples[open_[_first_largest(share[open_] - samples[open_], missing)]] += 1
    while missing < 0:  # only float noise gets here: a floor that came out one too high
        open_ = np.flatnonzero(samples > least)
        samples[open_[_first_largest(samples[open_] - share[open_], -missing)]] -= 1
        missing = total - int(samples.sum())
    return samples


def _first_largest(values: FloatArray, n: int) -> npt.NDArray[np.intp]:
    """Indices of the n largest values, of equal ones the first, without a full sort."""
    if n >= len(values):
        return np.arange(len(values))
    edge = np.partition(values, len(values) - n)[len(values) - n]
    above = np.flatnonzero(values > edge)
    return np.concatenate([above, np.flatnonzero(values == edge)[: n - len(above)]])
