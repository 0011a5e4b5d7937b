"""What a client's words mean: its profile, and the report that rides on its reply.

Values come from the network: a declaration that cannot be right is rejected with the reason, a measurement
that cannot be right counts as unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from flwr_mel import wire
from flwr_mel._text import printable
from flwr_mel._validate import MAX_COUNT, Phrase, complain, number
from flwr_mel.costs import Coefficients, Workload
from flwr_mel.cycle.estimate import Costs
from flwr_mel.devices import Device, Measured

#: What a client sends: keys of `flwr_mel.wire` with their values.
Words = Mapping[str, object]

# Smaller costs are none: quotients of subnormal numbers overflow.
_NEGLIGIBLE = 1e-30
# What is physically plausible, with much room. Values outside are rejected, not clipped.
_RANGES: dict[str, tuple[float, float]] = {
    wire.CPU_HZ: (1e3, 1e18),
    wire.RATE_BPS: (1.0, 1e15),
    wire.TX_POWER_W: (0.0, 1e6),
    wire.CAPACITANCE: (0.0, 1.0),
    wire.EXPONENT: (0.0, 5.0),
    wire.COEFFICIENTS[0]: (1e-15, 1e9),
    **dict.fromkeys(wire.COEFFICIENTS[1:], (0.0, 1e9)),
    wire.ENERGY_LIMIT_J: (1e-12, 1e15),
    wire.MAX_SAMPLES: (0, MAX_COUNT),
}
_LONGEST_NAME, _LONGEST_LINE = 200, 300
# Seconds or joules; more than that in one cycle is no measurement.
_LARGEST_MEASUREMENT = 1e12
# Node ids are larger, so that no client can take the identity of another by its partition id.
_PARTITIONS = 2**31
_NEEDS_WORKLOAD = (
    "it reports physical values (clock, link, power), so MelStrategy needs workload=, e.g. "
    "Workload.mlp((784, 300, 10)), to turn them into time and energy"
)


@dataclass(frozen=True, slots=True)
class Profile:
    """What a client declared last, as a whole: what it does not declare any more does not hold any more.

    Parameters
    ----------
    costs : tuple of six floats, optional
        Its costs; None: it declares none.
    energy_limit_j : float, optional
        Joules that it may spend in the coming cycle.
    max_samples : int, optional
        Samples that it holds (federated) or can take (parallelized).
    kind : str
        The class of device that it belongs to; "" if it declares none.
    problem : str
        Why its declaration is not used.
    said : tuple of pairs
        The words that this was read from; equal words need not be read again.
    """

    costs: Costs | None = None
    energy_limit_j: float | None = None
    max_samples: int | None = None
    kind: str = ""
    problem: str = ""
    said: tuple[tuple[str, object], ...] = ()

    def after(self, words: Words, workload: Workload | None, default: Device | Measured | None) -> Profile:
        """Return the profile after an answer or a reply; a declaration that cannot be right changes nothing.

        Parameters
        ----------
        words : mapping
            What the client sent.
        workload : Workload, optional
            Turns physical values into costs.
        default : Device or Measured, optional
            Assumed for what the client does not declare.
        """
        said = tuple((key, words[key]) for key in (*_RANGES, wire.KIND) if key in words)
        if said == self.said and (said or default is None):
            return self
        try:
            return replace(declared(dict(said), workload, default), said=said)
        except ValueError as error:
            return replace(self, problem=f"its capability was rejected: {error}", said=said)


def declared(words: Words, workload: Workload | None, default: Device | Measured | None) -> Profile:
    """Read a declaration; raise ValueError with the reason if a value cannot be right.

    Parameters
    ----------
    words : mapping
        What the client sent.
    workload : Workload, optional
        Turns physical values into costs.
    default : Device or Measured, optional
        Assumed for what the client does not declare.
    """
    values = {key: _plausible(key, words[key]) for key in _RANGES if key in words}
    limit, most = values.get(wire.ENERGY_LIMIT_J), values.get(wire.MAX_SAMPLES)
    if most is not None and not most.is_integer():
        raise complain(wire.MAX_SAMPLES, "an integer", most)
    device = default
    if measured := _all_or_none(values, wire.COEFFICIENTS):
        c2, c1, c0, g2, g1, g0 = measured
        device = Measured(c2, c1, c0, g2, g1, g0)
    elif physical := _all_or_none(values, (wire.CPU_HZ, wire.RATE_BPS, wire.TX_POWER_W)):
        cpu_hz, rate_bps, tx_power_w = physical
        capacitance, exponent = values.get(wire.CAPACITANCE, 1e-28), values.get(wire.EXPONENT, 2.0)
        device = Device(cpu_hz, rate_bps, tx_power_w, capacitance=capacitance, exponent=exponent)
    if default is not None:
        limit = default.energy_limit_j if limit is None else limit
        most = default.max_samples if most is None else most
    return Profile(
        costs=_costs(device, workload),
        energy_limit_j=limit,
        max_samples=None if most is None else int(most),
        kind=printable(str(words.get(wire.KIND, "")), _LONGEST_NAME),
        problem=_NEEDS_WORKLOAD if isinstance(device, Device) and workload is None else "",
    )


def _costs(device: Device | Measured | None, workload: Workload | None) -> Costs | None:
    """Return the six coefficients; None if they are not declared or need a workload that is missing."""
    if isinstance(device, Measured):
        return device.c2, device.c1, device.c0, device.g2, device.g1, device.g0
    if device is None or workload is None:
        return None
    c = Coefficients.from_devices([device], workload)
    return tuple(float(x[0]) for x in (c.c2, c.c1, c.c0, c.g2, c.g1, c.g0))  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Report:
    """What a client's mod measured of one task; None where it is not known.

    Parameters
    ----------
    train_s, joules : float, optional
        Seconds inside the app; energy, if the app measured it.
    own_epochs : int, optional
        The project's own number of epochs.
    read : bool, optional
        Whether the app read its number of epochs.
    used, held : int, optional
        Samples chosen by `Assignment.choose` or `loader`, and how many there were to choose from.
    drawn : float, optional
        Samples drawn from `Assignment.loader` in all epochs together.
    stops, stopped : bool
        Whether the app can stop when its seconds are over, and whether it did.
    virtual : bool
        Whether time and energy are those of a virtual device.
    """

    train_s: float | None = None
    joules: float | None = None
    own_epochs: int | None = None
    read: bool | None = None
    used: int | None = None
    held: int | None = None
    drawn: float | None = None
    stops: bool = False
    stopped: bool = False
    virtual: bool = False

    @classmethod
    def parse(cls, words: Words) -> Report:
        """Read what came with a reply."""
        read = words.get(wire.EPOCHS_READ)
        return cls(
            measurement(words.get(wire.TRAIN_SECONDS)) or None,
            measurement(words.get(wire.TRAIN_JOULES)),
            whole(words.get(wire.OWN_EPOCHS)),
            bool(read) if read in (0, 1) else None,
            whole(words.get(wire.SAMPLES_USED)),
            whole(words.get(wire.SAMPLES_HELD)),
            measurement(words.get(wire.SAMPLES_DRAWN)) or None,
            words.get(wire.STOPS) == 1,
            words.get(wire.STOPPED) == 1,
            words.get(wire.VIRTUAL) == 1,
        )

    def with_examples(self, examples: object) -> Report:
        """Return the report with the app's number of examples where a task was cut and nothing was counted.

        Fewer examples than were chosen are the first epoch up to the cut.
        """
        claimed = whole(examples)
        if not self.stopped or self.drawn is not None or not self.used or not claimed:
            return self
        return replace(self, used=claimed, drawn=float(claimed)) if claimed < self.used else self

    @property
    def epochs_done(self) -> float | None:
        """Epochs over the chosen samples, as counted at the loader."""
        return round(self.drawn / self.used, 3) if self.drawn and self.used else None


def label_of(words: Words) -> str | None:
    """Return the label that a client reports, if it is usable."""
    name = words.get(wire.LEARNER)
    if isinstance(name, int) and not isinstance(name, bool) and abs(name) < 2**64:
        name = str(name)
    if not isinstance(name, str) or len(name) > 2 * _LONGEST_NAME:
        return None
    text = name.strip()
    return text if text.isprintable() and 0 < len(text) <= _LONGEST_NAME else None


def partition_of(words: Words) -> str | None:
    """Return the partition id of a simulated client, which identifies it."""
    if wire.SIMULATED not in words:
        return None
    partition = words.get(wire.PARTITION)
    if isinstance(partition, bool) or not isinstance(partition, int) or not 0 <= partition < _PARTITIONS:
        return None
    return str(partition)


def problem_of(words: Words) -> str:
    """Return the problem that the client reports, in one line."""
    return printable(str(words.get(wire.PROBLEM, "")), _LONGEST_LINE)


def measurement(value: object) -> float | None:
    """Return a time, an energy or a count that a client reports; None if it cannot be one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= _LARGEST_MEASUREMENT else None


def whole(value: object) -> int | None:
    """Return a count of at least 1 that a client reports, rounded; None if it cannot be one."""
    found = measurement(value)
    return None if found is None or not 0.5 <= found <= MAX_COUNT else round(found)


def _plausible(key: str, value: object) -> float:
    """Return a number within its plausible range."""
    low, high = _RANGES[key]
    x = number(key, value)
    if not low <= x <= high:
        raise complain(key, f"between {low:g} and {high:g}", value)
    return x if x >= _NEGLIGIBLE else 0.0


def _all_or_none(values: Mapping[str, float], keys: tuple[str, ...]) -> tuple[float, ...] | None:
    """Return the values of keys that go together."""
    given = [key for key in keys if key in values]
    if not given:
        return None
    missing = [key for key in keys if key not in values]
    if missing:
        got = Phrase(f"only {', '.join(given)}")
        raise complain(missing[0], f"given: {', '.join(keys)} go together", got)
    return tuple(values[key] for key in keys)
