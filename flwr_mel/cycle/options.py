"""Validated options of a run."""

from __future__ import annotations

from dataclasses import dataclass

from flwr_mel._validate import complain, count, number


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimation:
    """How costs are learned from replies.

    Parameters
    ----------
    on_time : float
        Share of the tasks that shall end within the cycle time. 0.5 plans with the expected times.
    noise : float
        First guess of how much the time of single tasks deviates: 0.1 is about 10 percent. It is learned.
    drift : float
        By how much a client's speed changes from round to round, likewise. Larger values forget faster.
    memory : int
        Over how many tasks the noise is averaged.
    """

    on_time: float = 0.95
    noise: float = 0.1
    drift: float = 0.02
    memory: int = 40

    def __post_init__(self) -> None:
        share = number("on_time", self.on_time)
        if not 0.5 <= share <= 0.9999:
            raise complain("on_time", "a share from 0.5 to 0.9999", self.on_time, "0.95 is a good start.")
        for name in ("noise", "drift"):
            if number(name, getattr(self, name), above=0) > 1:
                raise complain(name, "at most 1", getattr(self, name), "0.1 means about 10 percent.")
        count("memory", self.memory, least=5)
