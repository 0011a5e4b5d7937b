"""How long a cycle waits for answers to its questions."""

from __future__ import annotations

from dataclasses import dataclass

from flwr_mel._validate import number


@dataclass(frozen=True, slots=True)
class Patience:
    """The limits of waiting.

    Parameters
    ----------
    timeout_s : float
        How long a learner may take to answer, and how long a cycle waits for those it needs.
    idle_timeout_s : float
        How long a cycle waits for the others. 0: what has come by then counts.
    """

    timeout_s: float
    idle_timeout_s: float = 0.0

    def __post_init__(self) -> None:
        number("probe_timeout_s", self.timeout_s, above=0, remedy="Give seconds.")
        number("idle_timeout_s", self.idle_timeout_s, least=0, remedy="Give seconds.")

    def seconds(self, *, needed: bool, others: bool) -> float:
        """Return how long to wait in all.

        Parameters
        ----------
        needed : bool
            Somebody whom the cycle needs has not answered.
        others : bool
            Anybody has not.
        """
        return max(self.timeout_s if needed else 0.0, self.idle_timeout_s if others else 0.0)
