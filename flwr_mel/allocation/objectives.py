"""Objectives: what an allocation is made for, as small frozen objects that measure any allocation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from flwr_mel._validate import IntArray, complain, number

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


@dataclass(frozen=True, slots=True)
class Progress:
    """S = sum_k tau_k d_k^2 / d, FedNova's effective number of steps times the batch size.

    It leaves out the variance of the gradients, so it concentrates the work on the strong learners; a cap on
    the share of one learner spreads it again, at a price in S.

    Parameters
    ----------
    max_share : float
        No learner has more than this share of the samples. 1: no cap.
    """

    max_share: float = 1.0

    def __post_init__(self) -> None:
        share = number("max_share", self.max_share, above=0)
        if share > 1:
            raise complain("max_share", "at most 1", self.max_share)
        object.__setattr__(self, "max_share", share)

    @property
    def minimised(self) -> bool:
        """It is maximised."""
        return False

    def most(self, total: int) -> int:
        """Return how many of so many samples one learner may have."""
        n = int(self.max_share * total)
        return n + ((n + 1) / total <= self.max_share)  # 0.29 * 100 is 28.999...

    def measure(self, problem: AllocationProblem, epochs: IntArray, samples: IntArray) -> tuple[int, int]:
        """Return sum_k tau_k d_k^2 and sum_k d_k."""
        return Objective.PROGRESS.measure(problem, epochs, samples)

    def __str__(self) -> str:
        return "progress"


@dataclass(frozen=True, slots=True)
class PerCost:
    """Progress per cost: S / (seconds * makespan + joules * energy of all).

    For IID data the cycles to an accuracy go as 1 / S to leading order, so this is least time, least energy,
    or least money to an accuracy. The cycle may end before the problem's T: T is part of the answer, the
    allocation's makespan.

    Parameters
    ----------
    seconds, joules : float
        What a second of the cycle and a joule of any learner cost; not both 0.
    tolerance : float
        Where T is part of the answer: the proven gap at which the search ends.
    """

    seconds: float = 1.0
    joules: float = 0.0
    tolerance: float = 0.01

    def __post_init__(self) -> None:
        for name in ("seconds", "joules"):
            object.__setattr__(self, name, number(name, getattr(self, name), least=0))
        object.__setattr__(self, "tolerance", number("tolerance", self.tolerance, above=0))
        if not self.seconds and not self.joules:
            raise complain("seconds", "above 0 unless joules is", self.seconds)

    @property
    def minimised(self) -> bool:
        """It is maximised."""
        return False

    def measure(self, problem: AllocationProblem, epochs: IntArray, samples: IntArray) -> tuple[float, int]:
        """Return progress per cost, and 1."""
        cost = self.cost(problem, epochs, samples)
        progress = weighted_squares(epochs, samples) / max(int(samples.sum()), 1)
        return (progress / cost if cost else float("inf")), 1

    def cost(self, problem: AllocationProblem, epochs: IntArray, samples: IntArray) -> float:
        """Return what a cycle costs.

        Parameters
        ----------
        problem : AllocationProblem
            The learners.
        epochs, samples : int arrays
            tau_k and d_k.
        """
        time_s = float(problem.coefficients.time_s(epochs, samples).max())
        return self.seconds * time_s + self.joules * float(
            problem.coefficients.energy_j(epochs, samples).sum()
        )

    def __str__(self) -> str:
        if not self.joules:
            return "soonest"
        return "cheapest" if not self.seconds else f"per-cost:{self.seconds:g},{self.joules:g}"


@dataclass(frozen=True, slots=True)
class Soonest(PerCost):
    """Most progress per second: least time to an accuracy."""


@dataclass(frozen=True, slots=True)
class Cheapest(PerCost):
    """Most progress per joule: least energy to an accuracy."""

    seconds: float = 0.0
    joules: float = 1.0


#: Objectives by name.
NAMED: dict[str, Goal] = {o.value: o for o in Objective} | {"soonest": Soonest(), "cheapest": Cheapest()}


#: Objectives with numbers after a colon, and what that looks like.
_NUMBERED: dict[str, tuple[Callable[..., Goal], str]] = {
    "per-cost": (PerCost, "per-cost:1,0.1"),
}


def goal_of(value: object) -> Goal:
    """Turn a name or an object into an objective, or say which there are.

    Parameters
    ----------
    value : Goal or str
        "epochs", "progress", "soonest", "cheapest", "per-cost:SECONDS,JOULES", or one of the
        objects of this module.
    """
    if isinstance(value, Objective):
        return value
    if isinstance(value, Progress):
        return Objective.PROGRESS if value.max_share == 1 else value
    if isinstance(value, PerCost):
        return value
    if isinstance(value, str) and value in NAMED:
        return NAMED[value]
    kind, colon, numbers = value.partition(":") if isinstance(value, str) else ("", "", "")
    if colon and kind in _NUMBERED:
        make, example = _NUMBERED[kind]
        try:
            return make(*map(float, numbers.split(",")))
        except (ValueError, TypeError):
            raise complain("objective", f"like {example}", value) from None
    every = [*map(repr, NAMED), *(repr(example) for _, example in _NUMBERED.values())]
    raise complain("objective", f"one of {', '.join(every)}", value)
