"""What an allocation is made for: objectives as small values that measure any allocation."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from flwr_mel._validate import IntArray

if TYPE_CHECKING:
    from flwr_mel.allocation.problem import AllocationProblem


@runtime_checkable
class Goal(Protocol):
    """An objective. `str` of it is its name in files, in tables and on the command line.

    Whatever measures an allocation can be one: an `Objective`, or a frozen object with numbers of its own.
    """

    @property
    def minimised(self) -> bool:
        """Whether less is better; the bound is then a lower one."""
        ...

    def measure(
        self, problem: AllocationProblem, epochs: IntArray, samples: IntArray
    ) -> tuple[int | float, int]:
        """Return what is counted, in integers where that is exact, and what it is divided by for people.

        Parameters
        ----------
        problem : AllocationProblem
            The learners and the limits.
        epochs, samples : int arrays
            tau_k and d_k.
        """
        ...


class Objective(StrEnum):
    """What the solvers of this package maximise."""

    EPOCHS = "epochs"
    """The paper's: the mean of tau_k."""
    PROGRESS = "progress"
    """S = sum_k tau_k d_k^2 / d: samples passed, weighted as the average weights them."""

    @property
    def minimised(self) -> bool:
        """Both are maximised."""
        return False

    def measure(
        self,
        problem: AllocationProblem,  # noqa: ARG002 - tau and d are all that counts here
        epochs: IntArray,
        samples: IntArray,
    ) -> tuple[int, int]:
        """Return sum_k tau_k and K, or sum_k tau_k d_k^2 and sum_k d_k."""
        if self is Objective.EPOCHS:
            return int(epochs.sum()), len(epochs)
        return weighted_squares(epochs, samples), max(int(samples.sum()), 1)


def in_words(objective: object) -> str:
    """Name an objective, or the name of one on record, for people.

    Parameters
    ----------
    objective : Goal or str
        Others than the two above are called by their own names.
    """
    name = str(objective)
    return {"epochs": "mean epochs", "progress": "progress S"}.get(name, name)


def weighted_squares(epochs: IntArray, samples: IntArray) -> int:
    """Return sum_k tau_k d_k^2, exactly."""
    largest = int(epochs.max(initial=0)) * int(samples.max(initial=0)) ** 2
    if largest * len(epochs) < 2**62:
        return int((epochs * samples * samples).sum())
    return sum(t * d * d for t, d in zip(epochs.tolist(), samples.tolist(), strict=True))
