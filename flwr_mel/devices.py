"""Learners: what a device can do, by its data sheet or by measurement."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log2, log10

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
        is the usual CMOS model. It is our interpretation: with the constants that the paper prints, its
        energy limits would hardly ever bind.
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


def watts(dbm: float) -> float:
    """Convert dBm to watts."""
    try:
        return float(10 ** (number("dbm", dbm) / 10 - 3))
    except OverflowError:
        raise complain("dbm", "a power that is finite in watts", dbm) from None


@dataclass(frozen=True, slots=True)
class Channel:
    """Path loss and Shannon rate.

    Attenuation is ``loss_at_1km_db + loss_per_decade_db * log10(R in km)``; the rate is
    ``W log2(1 + P h / (N0 W))``. N0 is a density, so it is multiplied by W; the paper's formula
    omits that.

    Parameters
    ----------
    bandwidth_hz : float
        W.
    noise_dbm_per_hz : float
        N0.
    loss_at_1km_db, loss_per_decade_db : float
        The attenuation model.
    """

    bandwidth_hz: float = 5e6
    noise_dbm_per_hz: float = -174.0
    loss_at_1km_db: float = 128.0
    loss_per_decade_db: float = 37.1

    def __post_init__(self) -> None:
        for name in ("noise_dbm_per_hz", "loss_at_1km_db"):
            object.__setattr__(self, name, number(name, getattr(self, name)))
        object.__setattr__(self, "bandwidth_hz", number("bandwidth_hz", self.bandwidth_hz, above=0))
        slope = number("loss_per_decade_db", self.loss_per_decade_db, least=0)
        object.__setattr__(self, "loss_per_decade_db", slope)
        try:
            number("noise", watts(self.noise_dbm_per_hz) * self.bandwidth_hz, above=0)
        except ValueError:
            rule = "such that the noise in watts is finite and > 0"
            raise complain("noise_dbm_per_hz", rule, self.noise_dbm_per_hz) from None

    def attenuation_db(self, distance_m: float) -> float:
        """Path loss at a distance."""
        km = number("distance_m", distance_m, above=0) / 1000
        return self.loss_at_1km_db + self.loss_per_decade_db * (log10(km) if km else -inf)

    def rate_bps(self, distance_m: float, tx_power_w: float) -> float:
        """Shannon rate at a distance for a transmit power."""
        number("tx_power_w", tx_power_w, above=0)
        attenuation = self.attenuation_db(distance_m)
        noise_w = watts(self.noise_dbm_per_hz) * self.bandwidth_hz
        try:
            rate = self.bandwidth_hz * log2(1 + tx_power_w * 10 ** (-attenuation / 10) / noise_w)
        except OverflowError:
            rate = inf
        if not 0 < rate < inf:
            what = f"{distance_m!r} m: {attenuation:g} dB"
            raise complain("distance_m", "such that the rate is finite and > 0", what, "Check the units.")
        return rate
