"""Learners: what a device can do, by data sheet, by measurement, or by its own declaration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, log2, log10

from flwr_mel import wire
from flwr_mel._validate import MAX_COUNT, NO_LIMIT_REMEDY, Phrase, complain, count, number


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


Costs = tuple[float, float, float, float, float, float]

# What is physically plausible, with much room. Values outside are refused, not clipped.
_RANGES: dict[str, tuple[float, float]] = {
    wire.CPU_HZ: (1e3, 1e18),
    wire.RATE_BPS: (1.0, 1e15),
    wire.TX_POWER_W: (0.0, 1e6),
    wire.CAPACITANCE: (0.0, 1.0),
    wire.EXPONENT: (0.0, 5.0),
    wire.COEFFICIENTS[0]: (1e-15, 1e9),
    **dict.fromkeys(wire.COEFFICIENTS[1:], (0.0, 1e9)),
    wire.ENERGY_LIMIT_J: (1e-12, 1e15),
}
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Capability:
    """A learner's own account of itself.

    Parameters
    ----------
    learner : str
        A name that stays the same from run to run; orders the learners and seeds their work.
    device : Device, optional
        Physical values.
    measured : tuple of six floats, optional
        Coefficients c2, c1, c0, g2, g1, g0. They win over physical values.
    energy_limit_j : float, optional
        Joules the learner may spend in the coming cycle.
    max_samples : int, optional
        Samples it holds (federated) or can take (parallelized).
    """

    learner: str
    device: Device | None = None
    measured: Costs | None = None
    energy_limit_j: float | None = None
    max_samples: int | None = None

    @classmethod
    def parse(cls, said: Mapping[str, object], fallback_name: str) -> Capability:
        """Read a learner's words; raise ValueError with the reason when one of them is no good.

        Parameters
        ----------
        said : mapping
            Keys of `flwr_mel.wire`; others are ignored.
        fallback_name : str
            Used when the learner gives no name.
        """
        name = fallback_name
        if wire.LEARNER in said:
            name = read_name(said) or ""
            if not name:
                rule = f"a printable name of at most {_LONGEST_NAME} characters"
                raise complain(wire.LEARNER, rule, type(said[wire.LEARNER]).__name__)
        values = {key: _plausible(key, said[key]) for key in _RANGES if key in said}
        measured = _all_or_none(values, wire.COEFFICIENTS)
        physical = _all_or_none(values, (wire.CPU_HZ, wire.RATE_BPS, wire.TX_POWER_W))
        device = None
        if physical is not None:
            extras = {"capacitance": wire.CAPACITANCE, "exponent": wire.EXPONENT}
            given = {field: values[key] for field, key in extras.items() if key in values}
            cpu_hz, rate_bps, tx_power_w = physical
            device = Device(cpu_hz, rate_bps, tx_power_w, name=name, **given)  # type: ignore[arg-type]
        return cls(
            learner=name,
            device=device,
            measured=measured,  # type: ignore[arg-type]
            energy_limit_j=values.get(wire.ENERGY_LIMIT_J),
            max_samples=_samples(said.get(wire.MAX_SAMPLES)),
        )

    @property
    def able(self) -> bool:
        """Whether its costs can be derived."""
        return self.measured is not None or self.device is not None

    def over(self, base: Capability | None) -> Capability:
        """Fill what this account leaves open, if it gives limits only, from an earlier or default one.

        Parameters
        ----------
        base : Capability or None
            The other account.
        """
        if self.able or base is None:
            return self
        limits = ("energy_limit_j", "max_samples")
        said = {name: value for name in limits if (value := getattr(self, name)) is not None}
        return replace(base, learner=self.learner, **said)


def read_name(said: Mapping[str, object]) -> str | None:
    """Return the learner's name if it gives a usable one.

    Parameters
    ----------
    said : mapping
        Keys of `flwr_mel.wire`.
    """
    name = said.get(wire.LEARNER)
    if isinstance(name, int) and not isinstance(name, bool) and abs(name) < 2**64:
        name = str(name)
    if not isinstance(name, str) or len(name) > 2 * _LONGEST_NAME:
        return None
    text = name.strip()
    return text if text.isprintable() and 0 < len(text) <= _LONGEST_NAME else None


def _plausible(key: str, value: object) -> float:
    low, high = _RANGES[key]
    x = number(key, value)
    if not low <= x <= high:
        raise complain(key, f"between {low:g} and {high:g}", value)
    return x


def _samples(value: object) -> int | None:
    if value is None:
        return None
    n = number(wire.MAX_SAMPLES, value, least=0)
    if not n.is_integer() or n > MAX_COUNT:
        raise complain(wire.MAX_SAMPLES, "an integer from 0 to 2**40", value)
    return int(n)


def _all_or_none(values: Mapping[str, float], keys: tuple[str, ...]) -> tuple[float, ...] | None:
    given = [key for key in keys if key in values]
    if not given:
        return None
    missing = [key for key in keys if key not in values]
    if missing:
        got = Phrase(f"only {', '.join(given)}")
        raise complain(missing[0], f"given: {', '.join(keys)} go together", got)
    return tuple(values[key] for key in keys)
