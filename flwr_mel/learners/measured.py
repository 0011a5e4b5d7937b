"""A learner given by measurement instead of a data sheet."""

from __future__ import annotations

from dataclasses import dataclass

from flwr_mel._validate import NO_LIMIT_REMEDY, count, number

#: The names of the coefficients, in the order of `Coefficients`.
COEFFICIENTS = ("c2", "c1", "c0", "g2", "g1", "g0")


@dataclass(frozen=True, slots=True)
class Measured:
    """A learner whose costs were measured: t = c2 tau d + c1 d + c0, e = g2 tau d + g1 d + g0.

    Parameters
    ----------
    c2, c1, c0 : float
        Seconds per sample and epoch (> 0), per sample, and per cycle.
    g2, g1, g0 : float
        Joules per sample and epoch, per sample, and per cycle.
    energy_limit_j : float, optional
        Joules the learner may spend per cycle. None: no limit.
    max_samples : int, optional
        Samples the learner holds or can store. None: no limit.
    name : str
        Shown in tables and records.
    """

    c2: float
    c1: float
    c0: float
    g2: float
    g1: float
    g0: float
    energy_limit_j: float | None = None
    max_samples: int | None = None
    name: str = ""

    def __post_init__(self) -> None:
        number("c2", self.c2, above=0, remedy="Give seconds per sample and epoch.")
        for field in COEFFICIENTS[1:]:
            number(field, getattr(self, field), least=0, remedy="Use 0 for a cost that does not exist.")
        if self.energy_limit_j is not None:
            number("energy_limit_j", self.energy_limit_j, above=0, remedy=NO_LIMIT_REMEDY)
        if self.max_samples is not None:
            count("max_samples", self.max_samples, remedy=NO_LIMIT_REMEDY)
