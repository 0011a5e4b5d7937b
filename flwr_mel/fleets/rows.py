"""The devices of a fleet file, whatever its format, and errors that point into it."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn, TypeVar

from flwr_mel._validate import NOTHING, InputError, count
from flwr_mel.costs import Workload
from flwr_mel.devices import COEFFICIENTS, Channel, Device, Measured, watts
from flwr_mel.fleets.fleet import Fleet, check_name

T = TypeVar("T")

#: Keys of a device by data sheet. Some have an alternative: distance_m, tx_power_dbm.
PHYSICAL = ("cpu_hz", "rate_bps", "distance_m", "tx_power_w", "tx_power_dbm", "capacitance", "exponent")
COMMON = ("name", "energy_limit_j", "max_samples", "count")
DEVICE_KEYS = (*COMMON, *PHYSICAL, *COEFFICIENTS)
#: A guard against a typing error in `count`, not a limit of the solvers.
MOST_LEARNERS = 1_000_000

_REQUIRED = {
    "cpu_hz": "Give operations per second, e.g. 2.4e9, or the measured c2, c1, c0, g2, g1, g0.",
    "rate_bps": "Give bits per second, e.g. 22e6, or distance_m.",
    "tx_power_w": "Give watts, or tx_power_dbm; 23 dBm are 0.2 W.",
}


class FleetError(InputError):
    """A fleet file that cannot be used: where, which field, which rule, and what was there.

    Parameters
    ----------
    field, rule, value, remedy, index
        As in `InputError`; the field is a key or a column, or says which part of the file.
    file : str
        As given by the user.
    line : int, optional
        Counted from 1.
    device : str
        Its name in quotes, or its number.
    """

    def __init__(
        self,
        field: str,
        rule: str,
        value: object,
        remedy: str = "",
        index: int | None = None,
        *,
        file: str,
        line: int | None = None,
        device: str = "",
    ) -> None:
        where = file + (f", line {line}" if line else "") + (f", device {device}" if device else "")
        super().__init__(field, rule, value, remedy, where, index)
        self.file, self.line, self.device = file, line, device

    def __reduce__(self) -> tuple[Any, ...]:
        _, (field, rule, value, remedy, _, index) = super().__reduce__()
        build = partial(type(self), file=self.file, line=self.line, device=self.device)
        return build, (field, rule, value, remedy, index)


@dataclass(frozen=True, slots=True)
class Place:
    """A table of a file or a row, so that errors can point into it."""

    file: str
    line: int | None = None
    keys: Mapping[str, int] = field(default_factory=dict)
    device: str = ""

    def fail(
        self, name: str, rule: str, value: object, remedy: str = "", index: int | None = None
    ) -> NoReturn:
        """Raise the error about a key, or about the whole table."""
        line = self.keys.get(name, self.line)
        raise FleetError(name, rule, value, remedy, index, file=self.file, line=line, device=self.device)

    def check(self, build: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call, and turn a complaint about a field into one that names the place."""
        try:
            return build(*args, **kwargs)
        except InputError as error:
            self.fail(error.field, error.rule, error.value, error.remedy, error.index)

    def only(self, known: Iterable[str], given: Mapping[str, Any], what: str) -> None:
        """Refuse unknown keys, with the nearest known one."""
        known = list(known)
        for key, value in given.items():
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f'Did you mean "{near[0]}"?' if near else f"Known: {', '.join(known)}."
                self.fail(key, f"left out, {what} of this name is not known", value, hint)


def build_fleet(
    rows: list[tuple[dict[str, Any], Place]], channel: Channel, workload: Workload | None
) -> Fleet:
    """Turn rows of keys and values into a fleet.

    Parameters
    ----------
    rows : list of (dict, Place)
        One per device of the file.
    channel : Channel
        Gives the rate of devices that have a distance.
    workload : Workload or None
        Of the file.
    """
    learners: list[Device | Measured] = []
    first: dict[str, int | None] = {}
    for k, (row, at) in enumerate(rows, 1):
        here = replace(at, device=label(row, k))
        here.only(DEVICE_KEYS, row, "a key of a device")
        name = here.check(check_name, row.get("name", f"device-{k}"))
        times = here.check(count, "count", row.get("count", 1), least=1)
        if len(learners) + times > MOST_LEARNERS:
            here.fail("count", f"at most {MOST_LEARNERS:,} learners in all", times)
        learner = _learner(row, channel, here)
        copies = [name] if "count" not in row else [f"{name}-{i}" for i in range(1, times + 1)]
        for copy in copies:
            if copy in first:
                other = f"line {first[copy]}" if first[copy] else "an earlier device"
                here.fail("name", f"unique; {other} has it too", copy)
            first[copy] = here.keys.get("name", here.line)
            learners.append(replace(learner, name=copy))
    return Fleet(learners, workload)


def label(row: Mapping[str, Any], number: int | None = None) -> str:
    """Return how errors call the device of a row: by its name, else by its number."""
    name = row.get("name")
    if isinstance(name, str) and name.strip() and name.isprintable():
        return f'"{name}"'
    return "" if number is None else str(number)


def _learner(row: Mapping[str, Any], channel: Channel, at: Place) -> Device | Measured:
    limits = {key: row[key] for key in ("energy_limit_j", "max_samples") if key in row}
    most = limits.get("max_samples")
    if isinstance(most, float) and most.is_integer():
        limits["max_samples"] = int(most)
    if not any(key in row for key in COEFFICIENTS):
        return _device(row, limits, channel, at)
    for key in PHYSICAL:
        if key in row:
            at.fail(key, "left out beside measured coefficients", row[key])
    for key in COEFFICIENTS:
        if key not in row:
            remedy = "Use 0 for a cost that does not exist."
            at.fail(key, "given, as all of c2, c1, c0, g2, g1, g0", NOTHING, remedy)
    return at.check(Measured, **{key: row[key] for key in COEFFICIENTS}, **limits)


def _device(row: Mapping[str, Any], limits: Mapping[str, Any], channel: Channel, at: Place) -> Device:
    given = {key: row[key] for key in PHYSICAL if key in row}
    for key, other in (("rate_bps", "distance_m"), ("tx_power_w", "tx_power_dbm")):
        if key in given and other in given:
            at.fail(other, f"left out beside {key}, which says it", given[other])
    for key, remedy in _REQUIRED.items():
        other = {"rate_bps": "distance_m", "tx_power_w": "tx_power_dbm"}.get(key, key)
        if key not in given and other not in given:
            at.fail(key, "given", NOTHING, remedy)
    if "tx_power_dbm" in given:
        given["tx_power_w"] = _derive(at, "tx_power_dbm", given.pop("tx_power_dbm"), watts, "power")
    if "distance_m" in given:
        power = given["tx_power_w"]
        given["rate_bps"] = _derive(
            at, "distance_m", given.pop("distance_m"), lambda metres: channel.rate_bps(metres, power), "rate"
        )
    return at.check(Device, **given, **limits)


def _derive(at: Place, key: str, value: Any, formula: Callable[[Any], float], what: str) -> float:
    """Apply a formula to a field, and blame that field if no usable number comes out."""
    try:
        result = formula(value)
    except OverflowError:
        result = math.inf
    except InputError as error:
        # A formula calls its argument by a name of its own.
        name = error.field if error.field in PHYSICAL else key
        at.fail(name, error.rule, error.value, error.remedy)
    if not 0 < result < math.inf:
        at.fail(key, f"such that the {what} is finite and > 0", value, "Check the units.")
    return result
