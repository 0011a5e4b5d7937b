"""Fleets, the learners of one job together, in Python and in files: TOML for people, CSV for spreadsheets.

docs/CLI.md describes both formats.
"""

from __future__ import annotations

import csv
import difflib
import io
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from flwr_mel._text import printable
from flwr_mel._validate import NOTHING, InputError, Phrase, complain, count
from flwr_mel.allocation import AllocationProblem
from flwr_mel.costs import Coefficients, Workload
from flwr_mel.devices import COEFFICIENTS, Channel, Device, Measured, watts
from flwr_mel.paper import PAPER_LAYERS

Learner = Device | Measured

#: A guard against a typing error in `count`, not a limit of the solvers.
MOST_LEARNERS = 1_000_000
_PHYSICAL = ("cpu_hz", "rate_bps", "distance_m", "tx_power_w", "tx_power_dbm", "capacitance", "exponent")
_KEYS = ("name", "energy_limit_j", "max_samples", "count", *_PHYSICAL, *COEFFICIENTS)
_FROM_LAYERS = ("model_parameters", "operations_per_sample", "features")
#: What a device by data sheet must have: the key, another way to say it, and what to write.
_REQUIRED = (
    ("cpu_hz", "cpu_hz", "Give operations per second, e.g. 2.4e9, or the measured c2, c1, c0, g2, g1, g0."),
    ("rate_bps", "distance_m", "Give bits per second, e.g. 22e6, or distance_m."),
    ("tx_power_w", "tx_power_dbm", "Give watts, or tx_power_dbm; 23 dBm are 0.2 W."),
)
_UNITS = "cpu_hz: operations per second; rate_bps: bits per second; energy_limit_j: joules per cycle"


@dataclass(frozen=True, slots=True)
class Fleet:
    """Learners, given by data sheet or by measurement, and the training job their costs are about.

    Parameters
    ----------
    learners : sequence of Device or Measured
        In order; at least one. Names are unique; an unnamed learner is called device-<number>.
    workload : Workload, optional
        The job. None: the paper's network, unless a method is given another.
    """

    learners: Sequence[Learner]
    workload: Workload | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "learners", tuple(self.learners))
        if not self.learners:
            raise complain("learners", "at least one device", Phrase("an empty fleet"))
        seen: set[str] = set()
        for learner, name in zip(self.learners, self.names, strict=True):
            if not isinstance(learner, Device | Measured):
                raise complain("learners", "Device or Measured objects", learner)
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

    @property
    def energy_limit_j(self) -> list[float | None]:
        """E_k; None where there is no limit."""
        return [learner.energy_limit_j for learner in self.learners]

    @property
    def max_samples(self) -> list[int | None]:
        """The most samples per learner; None where there is no limit."""
        return [learner.max_samples for learner in self.learners]

    def job(self, workload: Workload | None = None) -> Workload:
        """Return the given workload, else the fleet's, else the paper's."""
        return workload or self.workload or Workload.mlp(PAPER_LAYERS)

    def coefficients(self, workload: Workload | None = None) -> Coefficients:
        """Derive, or look up, the costs of all learners for the given workload or the fleet's own."""
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
        return AllocationProblem(
            self.coefficients(workload),
            energy_limit_j=self.energy_limit_j if energy_limit_j is None else energy_limit_j,
            max_samples=self.max_samples,
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
    """Read a fleet from a ``.toml`` or ``.csv`` file.

    Raises
    ------
    InputError
        Names the file, the device and the field.
    """
    kind = Path(path).suffix.lower()
    if kind not in (".toml", ".csv"):
        raise complain("the file's name", "*.toml or *.csv", str(path), where=str(path))
    try:
        raw = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        hint = "Write an example with: flwr-mel fleet --paper --seed 0 > fleet.toml"
        got = Phrase(f"none: {getattr(error, 'strerror', None) or error}")
        raise complain("the fleet", "a file that can be read", got, hint, where=str(path)) from error
    return parse_fleet(raw, str(path), csv_text=kind == ".csv")


def parse_fleet(raw: bytes, file: str, *, csv_text: bool = False) -> Fleet:
    """Parse the contents of a fleet file, UTF-8 text in TOML or CSV; errors name `file`."""
    with _at(file):
        try:
            text = raw.decode("utf-8-sig")
            document = _csv_document(text) if csv_text else tomllib.loads(text)
        except InputError:
            raise
        except (ValueError, RecursionError, csv.Error) as error:
            kind = "valid CSV in UTF-8" if csv_text else "valid TOML in UTF-8"
            raise complain("the text", kind, Phrase(str(error) or "nested tables")) from None
        return _fleet(document)


def _csv_document(text: str) -> dict[str, Any]:
    """Return the rows of a CSV file as the tables that a TOML file would have."""
    rows = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
    cells = [[cell.strip() for cell in row] for row in rows if any(cell.strip() for cell in row)]
    if not cells:
        raise complain("the first line", "a header row", Phrase("an empty file"))
    header, *rest = cells
    _only(_KEYS, dict.fromkeys(header, Phrase("such a column")), "a column", "Commas separate columns.")
    if len(set(header)) < len(header):
        raise complain("the header", "one column per key", ",".join(header))
    devices = []
    for row in rest:
        if len(row) != len(header):
            got = Phrase(f"{len(row)} cells in {','.join(row)[:60]}")
            raise complain("a row", f"{len(header)} cells, as the header", got)
        given = {key: cell for key, cell in zip(header, row, strict=True) if cell}
        devices.append({key: cell if key == "name" else _number(cell) for key, cell in given.items()})
    return {"device": devices}


def _number(cell: str) -> int | float | str:
    """Return the number in a cell; text that is none stays, for the rule of its field to refuse."""
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell


def _only(known: Sequence[str], given: Mapping[str, object], what: str, remedy: str = "") -> None:
    """Refuse unknown keys, with the nearest known one."""
    for key, value in given.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f'Did you mean "{near[0]}"?' if near else f"Known: {', '.join(known)}."
            raise complain(
                key, f"left out, {what} of this name is not known", value, f"{hint} {remedy}".strip()
            )


def _fleet(document: Mapping[str, Any]) -> Fleet:
    _only(("workload", "channel", "device"), document, "a table")
    workload = _workload(_table(document, "workload")) if "workload" in document else None
    settings = _table(document, "channel")
    _only([f.name for f in fields(Channel)], settings, "a key of [channel]")
    channel, entries = Channel(**settings), document.get("device", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise complain("device", "given as [[device]] tables, with two brackets, one per device", entries)
    learners: list[Learner] = []
    for k, entry in enumerate(entries, 1):
        name = entry.get("name", f"device-{k}")
        with _at(f'device "{printable(str(name), 80)}"'):
            if not isinstance(name, str):
                raise complain("name", "text", name)
            times = count("count", entry.get("count", 1), least=1)
            if len(learners) + times > MOST_LEARNERS:
                raise complain("count", f"at most {MOST_LEARNERS:,} learners in all", times)
            learner = _learner(entry, channel)
            copies = [f"{name}-{i}" for i in range(1, times + 1)] if "count" in entry else [name]
            learners += [replace(learner, name=copy) for copy in copies]
    if not learners:
        raise complain("device", "given at least once", Phrase("none"))
    return Fleet(learners, workload)


def _table(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise complain(name, f"a table, [{name}]", table)
    return dict(table)


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


def _learner(entry: Mapping[str, Any], channel: Channel) -> Learner:
    _only(_KEYS, entry, "a key of a device")
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
    for key, other, remedy in _REQUIRED:
        if key not in physical and other not in physical:
            raise complain(key, "given", NOTHING, remedy)
        if key != other and key in physical and other in physical:
            raise complain(other, f"left out beside {key}, which means the same", physical[other])
    if "tx_power_dbm" in physical:
        physical["tx_power_w"] = _derived("tx_power_dbm", physical.pop("tx_power_dbm"), watts)
    if "distance_m" in physical:
        power = physical["tx_power_w"]
        rate = _derived("distance_m", physical.pop("distance_m"), lambda x: channel.rate_bps(x, power))
        physical["rate_bps"] = rate
    return Device(**physical, **limits)


def _derived(key: str, value: Any, formula: Callable[[Any], float]) -> float:
    """Apply a formula to a field, and blame that field if no usable number comes out."""
    try:
        result = formula(value)
    except OverflowError:
        result = math.inf
    except InputError as error:  # a formula calls its argument by a name of its own
        name = error.field if error.field in _PHYSICAL else key
        raise complain(name, error.rule, error.value, error.remedy) from None
    if not 0 < result < math.inf:
        raise complain(key, "such that what follows from it is finite and > 0", value, "Check the units.")
    return result


# Writing


def write_fleet(
    fleet: Fleet | Sequence[Learner], workload: Workload | None = None, *, title: str = ""
) -> str:
    """Return a fleet as TOML text that `read_fleet` reads back to the last bit.

    Parameters
    ----------
    fleet : Fleet or sequence of Device or Measured
        The learners.
    workload : Workload, optional
        In place of the fleet's own; without either the file has no ``[workload]``.
    title : str
        Put into a comment on top.
    """
    import tomli_w  # noqa: PLC0415 - comes with flwr; reading does without

    fleet = fleet if isinstance(fleet, Fleet) else Fleet(fleet)
    job = workload or fleet.workload
    document: dict[str, Any] = {} if job is None else {"workload": _workload_entries(job)}
    document["device"] = _entries(fleet)
    comment = "".join(f"# {line}\n" for line in (*title.splitlines(), _UNITS))
    return f"{comment}\n{tomli_w.dumps(document)}"


def write_fleet_csv(fleet: Fleet | Sequence[Learner]) -> str:
    """Return a fleet as CSV text. CSV has no place for a workload."""
    rows = _entries(fleet if isinstance(fleet, Fleet) else Fleet(fleet))
    text = io.StringIO()
    used = [key for key in _KEYS if any(key in row for row in rows)]
    writer = csv.DictWriter(text, used, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _entries(fleet: Fleet) -> list[dict[str, Any]]:
    named = [{"name": name, **_set(x)} for name, x in zip(fleet.names, fleet.learners, strict=True)]
    return [{key: value for key, value in row.items() if value is not None} for row in named]


def _set(value: Learner | Workload) -> dict[str, Any]:
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
