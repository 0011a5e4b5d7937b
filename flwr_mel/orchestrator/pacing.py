"""The pace of a cycle: how many epochs most learners keep up with, and how long a task the others get.

In the paper the slowest learner that can do one epoch holds everybody down to its epochs plus c. Here no
claim does: the pace is the number of epochs tau with the highest throughput, ::

    maximise  tau * sum_k 1 / m_k(tau)

where m_k(tau) is the least number of cycles in which learner k does tau epochs on what it must carry, and a
learner that needs more cycles than there may be counts nothing. At least half of the learners must keep up
within one cycle, and those who are free must carry all samples, so that neither the slowest nor the fastest
word sets the pace: one learner among N that asks for a slower pace is worth it only if the pace falls by
less than 1 / (2 N).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import FloatArray, IntArray
from flwr_mel.allocation import AllocationProblem
from flwr_mel.allocation.allocate import Proposal
from flwr_mel.allocation.bisection import largest, largest_each
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.screening import screen
from flwr_mel.allocation.solution import Status

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Pace:
    """How fast a cycle goes.

    Parameters
    ----------
    epochs : int
        The least number of epochs of those who take part.
    spans : int array
        Cycles that each learner needs for a task at this pace; 0: more than there may be.
    """

    epochs: int
    spans: IntArray


def find_pace(ways: Sequence[Capacities], needs: IntArray, total: int | None, free: Flags) -> Pace:
    """Return the pace with the highest throughput.

    Parameters
    ----------
    ways : sequence of Capacities
        Of all learners with one cycle for a task, with two, and so on.
    needs : int array
        What each learner must carry: the least batch, or its own data where all data are to be used.
    total : int, optional
        Samples that those who are free and keep up must carry together.
    free : array of bool
        Who can be given a task now. The busy ones count for the pace, or it would change with who is busy.
    """
    most = np.stack([_epochs_on(way, needs) for way in ways])
    pace = _best(most, _fastest(ways[0], most[0], total, free))
    spans = _spans(most, pace)
    # Whoever holds more than it can carry at this pace carries what it can.
    least = np.stack([way.most_epochs for way in ways])
    return Pace(pace, np.where(spans > 0, spans, _spans(least, pace)))


def _epochs_on(way: Capacities, needs: IntArray) -> IntArray:
    """Return the most epochs that each learner can do on what it must carry."""
    most = way.most_epochs
    if (needs <= way.least).all():
        return most

    def carries(epochs: IntArray) -> Flags:
        found: Flags = (epochs == 0) | (way.at(np.maximum(epochs, 1)) >= needs)
        return found

    return largest_each(np.zeros_like(most), most, carries)


def _fastest(way: Capacities, most: IntArray, total: int | None, free: Flags) -> int:
    """Return the fastest pace with which half of the learners keep up and all samples are carried."""
    half = len(most) // 2
    quorum = int(np.partition(most, half)[half])

    def carried(tau: int) -> bool:
        return total is None or int(way.at(tau)[free & (most >= tau)].sum()) >= total

    return largest(1, quorum, carried) if quorum > 1 else 1


def _best(most: IntArray, fastest: int) -> int:
    """Return the pace, up to the fastest, with the highest throughput; of equal ones the slowest."""
    paces = np.unique(np.append(np.minimum(most, fastest), [1, fastest]))
    paces = paces[paces >= 1]
    done: FloatArray = np.zeros(len(paces))
    before = np.zeros(len(paces), dtype=np.int64)
    for m, row in enumerate(most, 1):
        keeping_up = len(row) - np.searchsorted(np.sort(row), paces)
        done += (keeping_up - before) / m
        before = keeping_up
    return int(paces[np.argmax(paces * done)])


def _spans(most: IntArray, pace: int) -> IntArray:
    """Return the least number of cycles in which each learner keeps the pace; 0: none does."""
    enough = most >= pace
    return np.where(enough.any(axis=0), enough.argmax(axis=0) + 1, 0)


@dataclass(frozen=True, slots=True)
class OwnPace:
    """A solver for learners that do not wait for each other: each does as many epochs as it can.

    On as many samples as it can carry then, at least the least batch.
    """

    def solve(self, problem: AllocationProblem) -> Proposal:
        """Propose the allocation. Samples that nobody carries are left over."""
        capacities = Capacities.of(problem)
        able, excluded = screen(capacities)
        epochs = np.zeros(len(problem), dtype=np.int64)
        samples = np.zeros(len(problem), dtype=np.int64)
        epochs[able] = capacities.most_epochs[able]
        samples[able] = capacities.take(able).at(epochs[able])
        return Proposal(epochs, samples, int(epochs.sum()), Status.PARTIAL, excluded)
