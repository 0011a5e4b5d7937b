"""Why a learner cannot be given work: values to compare, with the words for people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from flwr_mel import wire


class Why(Enum):
    """Kinds of doubt, by the words that tell them."""

    UNHEARD = "has not said yet what it can do"
    UNANSWERED = "did not answer when it was asked what it can do"
    SILENT = "does not say what it can do (no mel_mod)"
    UNTOLD = "does not say what it can do (no profile)"
    PROBLEM = "cannot say what it can do"
    REFUSED = "its capabilities are refused"
    NO_WORKLOAD = (
        "gives physical values (clock, link, power), so the strategy needs workload=, e.g. "
        "Workload.mlp((784, 300, 10)), to turn them into time and energy"
    )
    NO_TOTAL = (
        f"does not say how many samples it holds ({wire.MAX_SAMPLES}), which is needed because "
        "total_samples= is not given"
    )


@dataclass(frozen=True, slots=True)
class Doubt:
    """That a learner cannot be given work, and why.

    Parameters
    ----------
    why : Why
        The kind.
    detail : str
        What exactly, where the kind does not say it all.
    """

    why: Why
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.why.value}: {self.detail}" if self.detail else self.why.value

    @property
    def of_settings(self) -> bool:
        """Whether the user's settings raise it, not the learner."""
        return self.why in (Why.NO_WORKLOAD, Why.NO_TOTAL)
