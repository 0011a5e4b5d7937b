"""Fleets, the learners of one job together, in Python and in TOML files; docs/CLI.md describes the format."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from flwr_mel._text import printable
from flwr_mel._validate import NOTHING, InputError, Phrase, complain, count, number
from flwr_mel.allocation import AllocationProblem
from flwr_mel.costs import Coefficients, Workload
from flwr_mel.devices import COEFFICIENTS, Device, Measured
from flwr_mel.paper import PAPER_LAYERS


@dataclass(frozen=True, slots=True)
class Relative:
    """A learner relative to the machine on which an app was measured; `flwr-mel try` prices it.

    Parameters
    ----------
    slowness : float
        How many times as long as that machine it takes for a sample.
    rate_bps : float, optional
        Link rate in bits per second. None: sending takes no time.
    power_w, tx_power_w : float
        Power while training and while sending, in watts.
    energy_limit_j : float, optional
        Joules the learner may spend per cycle. None: no limit.
    name : str
        Shown in tables and records.
    """

    slowness: float
    rate_bps: float | None = None
    power_w: float = 0.0
    tx_power_w: float = 0.0
    energy_limit_j: float | None = None
    name: str = ""

    def __post_init__(self) -> None:
        number("slowness", self.slowness, above=0)
        for field in ("rate_bps", "energy_limit_j"):
            if getattr(self, field) is not None:
                number(field, getattr(self, field), above=0)
        for field in ("power_w", "tx_power_w"):
            number(field, getattr(self, field), least=0)


Learner = Device | Measured

#: A guard against a typing error in `count`, not a limit of the solvers.
MOST_LEARNERS = 1_000_000
_PHYSICAL = ("cpu_hz", "rate_bps", "tx_power_w", "capacitance", "exponent")
_RELATIVE = ("slowness", "power_w")
_KEYS = ("name", "energy_limit_j", "max_samples", "count", "share", *_RELATIVE, *_PHYSICAL, *COEFFICIENTS)
_FROM_LAYERS = ("model_parameters", "operations_per_sample", "features")
#: What a device by data sheet must have, and what to write.
_REQUIRED = {
    "cpu_hz": "Give operations per second, e.g. 2.4e9, or the measured c2, c1, c0, g2, g1, g0.",
    "rate_bps": "Give bits per second, e.g. 22e6.",
    "tx_power_w": "Give watts; 23 dBm are 0.2 W.",
}
_UNITS = "cpu_hz: operations per second; rate_bps: bits per second; energy_limit_j: joules per cycle"


@dataclass(frozen=True, slots=True)
class Fleet:
    """Learners, by data sheet, by measurement or relative to a machine, and the job their costs are about.

    Parameters
    ----------
    learners : sequence of Device or Measured
        In order; at least one. Names are unique; an unnamed learner is called device-<number>.
    workload : Workload, optional
        The job. None: the paper's network, unless a method is given another.
    shares : sequence of float
        Of the clients of an app, one per learner; empty: equal.
    """

    learners: Sequence[Learner | Relative]
    workload: Workload | None = None
    shares: Sequence[float] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "learners", tuple(self.learners))
        object.__setattr__(self, "shares", tuple(self.shares))
        if not self.learners:
            raise complain("learners", "at least one device", Phrase("an empty fleet"))
        seen: set[str] = set()
        for learner, name in zip(self.learners, self.names, strict=True):
            if not isinstance(learner, Learner | Relative):
                raise complain("learners", "Device, Measured or Relative objects", learner)
            if not name.strip() or not name.isprintable():
                raise complain("name", "text of printable characters", name)
            if name in seen:
                raise complain("name", "unique in the fleet", name)
            seen.add(name)

    def __len__(self) -> int:
        return len(self.learners)

    @property
    def names(self) -> list[str]:
        """What the learners are called."""
        return [getattr(x, "name", "") or f"device-{k}" for k, x in enumerate(self.learners, 1)]

    def job(self, workload: Workload | None = None) -> Workload:
        """Return the given workload, else the fleet's, else the paper's."""
        return workload or self.workload or Workload.mlp(PAPER_LAYERS)

    def coefficients(self, workload: Workload | None = None) -> Coefficients:
        """Derive, or look up, the costs of all learners for the given workload or the fleet's own."""
        if self.shares or any(isinstance(learner, Relative) for learner in self.learners):
            field, remedy = "share" if self.shares else "slowness", "Use the file with: flwr-mel try"
            raise complain(field, "left out, its costs depend on an app", Phrase("one"), remedy)
        columns = {key: np.empty(len(self)) for key in COEFFICIENTS}
        described = [k for k, learner in enumerate(self.learners) if isinstance(learner, Device)]
        if described:
            devices = [learner for learner in self.learners if isinstance(learner, Device)]
            try:
                derived = Coefficients.from_devices(devices, self.job(workload))
            except InputError as error:
                where = f'device "{self.names[described[error.index or 0]]}"'
                remedy = error.remedy or "Check the units of this device and of the workload."
                raise complain(error.field, error.rule, error.value, remedy, where=where) from None
            for key in COEFFICIENTS:
                columns[key][described] = getattr(derived, key)
        for k, learner in enumerate(self.learners):
            if isinstance(learner, Measured):
                for key in COEFFICIENTS:
                    columns[key][k] = getattr(learner, key)
        return Coefficients(**columns)

    def problem(
        self, *, energy_limit_j: float | None = None, workload: Workload | None = None, **limits: Any
    ) -> AllocationProblem:
        """Build the allocation problem of this fleet.

        Parameters
        ----------
        energy_limit_j : float, optional
            One limit for all, in place of the learners' own.
        workload : Workload, optional
            In place of the fleet's own.
        **limits
            cycle_time_s, total_samples, staleness, min_samples and max_epochs of `AllocationProblem`.
        """
        own = [learner.energy_limit_j for learner in self.learners]
        return AllocationProblem(
            self.coefficients(workload),
            energy_limit_j=own if energy_limit_j is None else energy_limit_j,
            max_samples=[getattr(learner, "max_samples", None) for learner in self.learners],
            **limits,
        )


@contextmanager
def _at(where: str) -> Iterator[None]:
    """Have complaints about a field say where it stands."""
    try:
        yield
    except InputError as error:
        place = f"{where}, {error.where}" if error.where else where
        told = error.field, error.rule, error.value, error.remedy
        raise complain(*told, where=place, index=error.index) from error.__cause__


# Reading


def read_fleet(path: str | Path) -> Fleet:
    """Read a fleet from a file; a missing one is named with its reason.

    Raises
    ------
    InputError
        Names the file, the device and the field.
    """
    try:
        raw = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        hint = "Write an example with: flwr-mel fleet --paper --seed 0 > fleet.toml"
        got = Phrase(f"none: {getattr(error, 'strerror', None) or error}")
        raise complain("the fleet", "a file that can be read", got, hint, where=str(path)) from error
    return parse_fleet(raw, str(path))


def parse_fleet(raw: bytes, file: str) -> Fleet:
    """Parse the contents of a fleet file, TOML in UTF-8; errors name `file`."""
    with _at(file):
        try:
            document = tomllib.loads(raw.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            rule, got = "valid TOML in UTF-8", Phrase(str(error) or "nested tables")
            raise complain("the text", rule, got) from None
        return _fleet(document)


def _only(known: Sequence[str], given: Mapping[str, object], what: str) -> None:
    """Refuse unknown keys, with the nearest known one."""
    for key, value in given.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f'Did you mean "{near[0]}"?' if near else f"Known: {', '.join(known)}."
            raise complain(key, f"left out, {what} of this name is not known", value, hint)


def _fleet(document: Mapping[str, Any]) -> Fleet:
    _only(("workload", "device"), document, "a table")
    given = document.get("workload")
    if given is not None and not isinstance(given, dict):
        raise complain("workload", "a table, [workload]", given)
    workload = None if given is None else _workload(dict(given))
    entries = document.get("device", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise complain("device", "given as [[device]] tables, with two brackets, one per device", entries)
    learners: list[Learner | Relative] = []
    shares: list[float] = []
    for k, entry in enumerate(entries, 1):
        name = entry.get("name", f"device-{k}")
        with _at(f'device "{printable(str(name), 80)}"'):
            if not isinstance(name, str):
                raise complain("name", "text", name)
            times = count("count", entry.get("count", 1), least=1)
            if ("share" in entry) != (len(shares) == k - 1 and "share" in entries[0]):
                raise complain("share", "given for all devices or for none", entry.get("share", NOTHING))
            if "share" in entry:
                if times > 1:
                    raise complain("share", "left out beside count", entry["share"])
                shares.append(number("share", entry["share"], above=0))
            if len(learners) + times > MOST_LEARNERS:
                raise complain("count", f"at most {MOST_LEARNERS:,} learners in all", times)
            learner = _learner(entry)
            copies = [f"{name}-{i}" for i in range(1, times + 1)] if "count" in entry else [name]
            learners += [replace(learner, name=copy) for copy in copies]
    if not learners:
        raise complain("device", "given at least once", Phrase("none"))
    return Fleet(learners, workload, shares)


def _workload(given: dict[str, Any]) -> Workload:
    """Build the job from layers, or from the three sizes that layers determine."""
    _only(("layers", *(f.name for f in fields(Workload))), given, "a key of [workload]")
    if "layers" in given:
        twice = [key for key in _FROM_LAYERS if key in given]
        if twice:
            raise complain(twice[0], "left out beside layers, which determines it", given[twice[0]])
        if not isinstance(given["layers"], list):
            raise complain("layers", "a list of layer sizes", given["layers"])
        return replace(Workload.mlp(given.pop("layers")), **given)
    for key in _FROM_LAYERS:
        if key not in given:
            raise complain(key, "given", NOTHING, "Or give layers = [784, 300, 10].")
    return Workload(**given)


def _learner(entry: Mapping[str, Any]) -> Learner | Relative:
    _only(_KEYS, entry, "a key of a device")
    if "slowness" in entry:
        own = {key: value for key, value in entry.items() if key not in ("name", "count", "share")}
        _only([f.name for f in fields(Relative)], own, "beside slowness a key")
        return Relative(**own)
    limits = {key: entry[key] for key in ("energy_limit_j", "max_samples") if key in entry}
    physical = {key: entry[key] for key in _PHYSICAL if key in entry}
    measured = {key: entry[key] for key in COEFFICIENTS if key in entry}
    if measured:
        if physical:
            key = next(iter(physical))
            raise complain(key, "left out beside measured coefficients", physical[key])
        for key in COEFFICIENTS:
            if key not in measured:
                rule = "given, as all of c2, c1, c0, g2, g1, g0"
                raise complain(key, rule, NOTHING, "Use 0 for a cost that does not exist.")
        return Measured(**measured, **limits)
    for key, remedy in _REQUIRED.items():
        if key not in physical:
            raise complain(key, "given", NOTHING, remedy)
    return Device(**physical, **limits)


# Writing


def write_fleet(fleet: Fleet, *, title: str = "") -> str:
    """Return a fleet as TOML text that `read_fleet` reads back to the last bit.

    Parameters
    ----------
    fleet : Fleet
        The learners and, if it has one, the workload.
    title : str
        Put into a comment on top.
    """
    document: dict[str, Any] = {}
    if fleet.workload is not None:
        document["workload"] = _workload_entries(fleet.workload)
    document["device"] = _entries(fleet)
    comment = "".join(f"# {line}\n" for line in (*title.splitlines(), _UNITS))
    return f"{comment}\n{tomli_w.dumps(document)}"


def _entries(fleet: Fleet) -> list[dict[str, Any]]:
    named = [{"name": name, **_set(x)} for name, x in zip(fleet.names, fleet.learners, strict=True)]
    for row, share in zip(named, fleet.shares, strict=False):
        row["share"] = share
    return [{key: value for key, value in row.items() if value is not None} for row in named]


def _set(value: Learner | Relative | Workload) -> dict[str, Any]:
    """Return the fields that differ from their defaults, without the name."""
    every = {f.name: (getattr(value, f.name), f.default) for f in fields(value) if f.name != "name"}
    return {key: x for key, (x, default) in every.items() if default is MISSING or x != default}


def _workload_entries(job: Workload) -> dict[str, Any]:
    paper = Workload.mlp(PAPER_LAYERS)
    given = {**_set(job), "ship_data": job.ship_data}
    if all(getattr(job, key) == getattr(paper, key) for key in _FROM_LAYERS):
        rest = {key: value for key, value in given.items() if key not in _FROM_LAYERS}
        return {"layers": list(PAPER_LAYERS), **rest}
    return given
