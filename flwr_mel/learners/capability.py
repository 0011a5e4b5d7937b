"""What a learner says it can do, checked before anything is built on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from flwr_mel import wire
from flwr_mel._validate import MAX_COUNT, Phrase, complain, count, number
from flwr_mel.learners.device import Device

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
    wire.BATTERY_J: (0.0, 1e15),
}
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class PrivateLimits:
    """What a learner with sample-level differential privacy may do in one cycle.

    Parameters
    ----------
    samples : int
        Its least batch of data: fewer would raise the sampling rate.
    steps : int
        Its most steps.
    batch : int
        Samples per step.
    """

    samples: int
    steps: int
    batch: int

    def allow(self, epochs: int, samples: int) -> bool:
        """Whether a task keeps them.

        Parameters
        ----------
        epochs, samples : int
            tau_k and d_k.
        """
        return samples >= self.samples and epochs * -(-samples // self.batch) <= self.steps

    @classmethod
    def parse(cls, said: Mapping[str, object]) -> PrivateLimits | None:
        """Read a learner's words; None if it has no such limits.

        Parameters
        ----------
        said : mapping
            Keys of `flwr_mel.wire`.
        """
        keys = (wire.MIN_SAMPLES, wire.MAX_STEPS, wire.STEP_SAMPLES)
        given = {key: float(count(key, said[key], least=1)) for key in keys if key in said}
        limits = _all_or_none(given, keys)
        return None if limits is None else cls(*(int(x) for x in limits))


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
    battery_j : float, optional
        What is left in its battery.
    private : PrivateLimits, optional
        Of its differential privacy.
    """

    learner: str
    device: Device | None = None
    measured: Costs | None = None
    energy_limit_j: float | None = None
    max_samples: int | None = None
    battery_j: float | None = None
    private: PrivateLimits | None = None

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
            battery_j=values.get(wire.BATTERY_J),
            private=PrivateLimits.parse(said),
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
        limits = ("energy_limit_j", "max_samples", "battery_j", "private")
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
