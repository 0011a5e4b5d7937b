"""One learner, described by what its data sheet or a measurement tells."""

from __future__ import annotations

from dataclasses import dataclass

from flwr_mel._validate import NO_LIMIT_REMEDY, complain, count, number


@dataclass(frozen=True, slots=True)
class Device:
    """A learner: processor, link, transmit power and limits.

    Parameters
    ----------
    cpu_hz : float
        Operations per second, f_k.
    rate_bps : float
        Link rate in bits per second; `Channel.rate_bps` derives it from a distance.
    tx_power_w : float
        Power while sending, P_k, in watts.
    energy_limit_j : float, optional
        Joules the learner may spend per cycle, E_k. None: no limit.
    max_samples : int, optional
        Samples the learner holds or can store. None: no limit.
    capacitance, exponent : float
        Energy per operation is ``capacitance * cpu_hz ** exponent`` joules. The default, 1e-28 and 2,
        is the usual CMOS reading. It is inferred: the paper prints constants under which its energy
        limits would hardly ever bind.
    name : str
        Shown in tables and records.
    """

    cpu_hz: float
    rate_bps: float
    tx_power_w: float
    energy_limit_j: float | None = None
    max_samples: int | None = None
    capacitance: float = 1e-28
    exponent: float = 2.0
    name: str = ""

    def __post_init__(self) -> None:
        clean: dict[str, float] = {
            "cpu_hz": number(
                "cpu_hz", self.cpu_hz, above=0, remedy="Give operations per second, e.g. 2.4e9."
            ),
            "rate_bps": number("rate_bps", self.rate_bps, above=0, remedy="Give bits per second, e.g. 22e6."),
            "tx_power_w": number(
                "tx_power_w", self.tx_power_w, least=0, remedy="Give watts; 23 dBm are 0.2 W."
            ),
            "capacitance": number("capacitance", self.capacitance, least=0),
            "exponent": number("exponent", self.exponent, least=0),
        }
        if self.energy_limit_j is not None:
            clean["energy_limit_j"] = number(
                "energy_limit_j", self.energy_limit_j, above=0, remedy=NO_LIMIT_REMEDY
            )
        if self.max_samples is not None:
            clean["max_samples"] = count("max_samples", self.max_samples, remedy=NO_LIMIT_REMEDY)
        for name, value in clean.items():
            object.__setattr__(self, name, value)
        if not isinstance(self.name, str):
            raise complain("name", "text", self.name)
        try:
            number("capacitance * cpu_hz ** exponent", self.joules_per_operation, least=0)
        except OverflowError:
            raise complain(
                "exponent", "small enough that cpu_hz ** exponent is finite", self.exponent
            ) from None

    @property
    def joules_per_operation(self) -> float:
        """Energy of one operation at this clock."""
        return float(self.capacitance * self.cpu_hz**self.exponent)
