"""One learner, described by what its data sheet or a measurement tells."""

from __future__ import annotations

from dataclasses import dataclass

from flwr_mel._validate import complain, count, number


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
        number("cpu_hz", self.cpu_hz, above=0, remedy="Give operations per second, e.g. 2.4e9.")
        number("rate_bps", self.rate_bps, above=0, remedy="Give bits per second, e.g. 22e6.")
        number("tx_power_w", self.tx_power_w, least=0, remedy="Give watts; 23 dBm are 0.2 W.")
        number("capacitance", self.capacitance, least=0)
        number("exponent", self.exponent, least=0)
        if self.energy_limit_j is not None:
            number("energy_limit_j", self.energy_limit_j, above=0, remedy="Use None for no limit.")
        if self.max_samples is not None:
            count("max_samples", self.max_samples, remedy="Use None for no limit.")
        try:
            number("capacitance * cpu_hz ** exponent", self.joules_per_operation, least=0)
        except OverflowError:
            raise complain(
                "exponent", "small enough that cpu_hz ** exponent is finite", self.exponent
            ) from None

    @property
    def joules_per_operation(self) -> float:
        """Energy of one operation at this clock."""
        return float(self.capacitance * float(self.cpu_hz) ** self.exponent)
