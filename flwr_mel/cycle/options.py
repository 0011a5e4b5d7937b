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
        The share of replies that should arrive within the planned time. 0.5 plans with expected times.
    noise : float
        First guess of how much a single time deviates from its mean, as a share. It is learned.
    memory : int
        About how many of the latest replies count.
    """

    on_time: float = 0.95
    noise: float = 0.1
    memory: int = 30

    def __post_init__(self) -> None:
        if not 0.5 <= number("on_time", self.on_time) <= 0.9999:
            raise complain("on_time", "a share from 0.5 to 0.9999", self.on_time, "0.95 is a good start.")
        if number("noise", self.noise, above=0) > 2:
            raise complain("noise", "at most 2", self.noise, "0.1 means about 10 percent.")
        count("memory", self.memory, least=5)
