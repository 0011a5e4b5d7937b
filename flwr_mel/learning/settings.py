"""What the user asks of the online estimate."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from flwr_mel._validate import complain, count, number


class Of(StrEnum):
    """Of what the promised share is in time."""

    LEARNER = "learner"
    """Single reports: each learner keeps its time with this probability."""
    CYCLE = "cycle"
    """Whole cycles: all learners together keep it with this probability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """Plan with times and energies that are learnt from the replies, not only with declared ones.

    Parameters
    ----------
    on_time : float
        Share of reports, or of cycles, that meet the cycle time.
    of : str
        "learner": of reports; "cycle": of whole cycles, so that each of K learners keeps its time with
        probability on_time ** (1 / K).
    drift : float
        By how much a learner's speed wanders from cycle to cycle, as a standard deviation of the logarithm.
        Steps, such as throttling, are noticed apart from that.
    noise : float
        First guess of how much a single cycle deviates, likewise. It is learnt.
    declared_spread : float
        How far declared values may be off, likewise.
    undeclared_spread : float
        The same for learners that declare nothing. Large: their first report is believed.
    memory : int
        Over how many reports the noise is averaged.
    """

    on_time: float = 0.95
    of: Of = Of.LEARNER
    drift: float = 0.02
    noise: float = 0.1
    declared_spread: float = 0.2
    undeclared_spread: float = 3.0
    memory: int = 40

    def __post_init__(self) -> None:
        share = number("on_time", self.on_time)
        if not 0.5 <= share <= 0.9999:
            raise complain("on_time", "a share from 0.5 to 0.9999", self.on_time, "0.95 is a good start.")
        if self.of not in list(Of):
            raise complain("of", f"one of {', '.join(repr(str(o)) for o in Of)}", self.of)
        object.__setattr__(self, "of", Of(self.of))
        for name in ("drift", "noise", "declared_spread", "undeclared_spread"):
            value = number(name, getattr(self, name), above=0, remedy="0.1 means about 10 percent.")
            if value > 5:
                raise complain(
                    name, "at most 5, in units of the logarithm", value, "0.1 is about 10 percent."
                )
        count("memory", self.memory, least=5)

    def level(self, learners: int) -> float:
        """Return the probability with which each of so many learners has to keep its time."""
        return self.on_time if self.of is Of.LEARNER else self.on_time ** (1 / max(learners, 1))
