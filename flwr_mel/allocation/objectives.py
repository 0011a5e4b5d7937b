"""Objectives: what an allocation is made for, as small frozen objects that measure any allocation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from flwr_mel._validate import IntArray

if TYPE_CHECKING:
    from flwr_mel.allocation.problem import AllocationProblem


@runtime_checkable
class Goal(Protocol):
    """An objective that is maximised. `str` of it is its name in files and tables."""

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


@dataclass(frozen=True, slots=True)
class MeanEpochs:
    """The paper's objective: the mean of tau_k."""

    def measure(
        self,
        problem: AllocationProblem,  # noqa: ARG002 - epochs are all that counts here
        epochs: IntArray,
        samples: IntArray,  # noqa: ARG002
    ) -> tuple[int, int]:
        """Return sum_k tau_k and K."""
        return int(epochs.sum()), len(epochs)

    def __str__(self) -> str:
        return "epochs"


EPOCHS = MeanEpochs()
