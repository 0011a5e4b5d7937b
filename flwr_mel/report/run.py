"""A run directory, read with tolerance: only its records are needed."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr_mel._validate import complain
from flwr_mel.records import CycleRecord, read_jsonl
from flwr_mel.report.numerals import finite, plural

RECORDS, CONFIG, SUMMARY = "records.jsonl", "config.json", "summary.json"


@dataclass(frozen=True, slots=True)
class Run:
    """What a run left behind.

    Parameters
    ----------
    path : Path
        The run directory, or the file of its records.
    records : tuple of CycleRecord
        At least one, by cycle.
    config : mapping
        The run's configuration; empty if it is not known.
    versions : mapping
        Of the software that ran.
    fleet : tuple of mappings
        The learners' data sheets, as far as known.
    summary : mapping
        The run's own summary; empty for an interrupted run.
    notices : tuple of str
        What a reader should know before believing the numbers.
    """

    path: Path
    records: tuple[CycleRecord, ...]
    config: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, Any] = field(default_factory=dict)
    fleet: tuple[Mapping[str, Any], ...] = ()
    summary: Mapping[str, Any] = field(default_factory=dict)
    notices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The directory's name, or that of a file with a name of its own, without its suffix."""
        file = records_of(self.path).resolve()
        return (file.parent.name if file.name == RECORDS else file.stem) or str(self.path)

    def setting(self, key: str) -> Any:
        """Return a setting by its name with hyphens, or with underscores; None if it is not known."""
        return self.config.get(key, self.config.get(key.replace("-", "_")))

    @property
    def real(self) -> bool:
        """Whether the run was on real devices, with the server's clock on record."""
        return all(record.duration_s is not None for record in self.records)

    @property
    def ending(self) -> str:
        """Why the run ended, in one phrase."""
        last = self.records[-1]
        if last.stopped:
            return str(last.stopped)
        wanted = finite(self.config.get("cycles"))
        if wanted > last.cycle:
            return f"interrupted after cycle {last.cycle:,} of {int(wanted):,}"
        return f"{plural(last.cycle, 'cycle')} done"

    @property
    def complete(self) -> bool:
        """Whether the run ended by itself."""
        return (
            bool(self.records[-1].stopped) or not finite(self.config.get("cycles")) > self.records[-1].cycle
        )


def records_of(path: Path) -> Path:
    """Return the file of a run's records: ``records.jsonl`` in its directory, or the file that is given."""
    return path / RECORDS if path.is_dir() else path


def load_run(path: str | Path) -> Run:
    """Read a run: a directory, of which only ``records.jsonl`` is needed, or a file that `JsonlWriter` wrote.

    Parameters
    ----------
    path : str or Path
        The directory or the file.

    Returns
    -------
    Run
        Everything that is there. An unfinished last line is left out and noticed.

    Raises
    ------
    ValueError
        Names the path and what is missing or broken.
    """
    given = Path(path)
    records, remarks = _records(given)
    beside = records_of(given)
    # What lies beside a file of another name need not belong to it.
    told, summary = (
        _read(beside.with_name(name), remarks) if beside.name == RECORDS else {} for name in (CONFIG, SUMMARY)
    )
    config = _mapping(told.get("config"))
    fleet = told.get("fleet")
    return Run(
        path=given,
        records=records,
        config=config,
        versions=_mapping(told.get("versions")),
        fleet=tuple(_mapping(row) for row in fleet) if isinstance(fleet, list) else (),
        summary=summary,
        notices=tuple(dict.fromkeys([*_notices(told, config, summary), *remarks])),
    )


def _records(given: Path) -> tuple[tuple[CycleRecord, ...], list[str]]:
    file = records_of(given)
    if not given.exists():
        missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(given))
        raise complain("a run", "a directory or a file", str(given), f"{missing.strerror}.") from missing
    if not file.is_file():
        others = sorted(given.glob("*.jsonl"))
        remedy = f"Perhaps {others[0]} is meant." if others else ""
        raise complain("a run", f"a directory with {RECORDS}", str(given), remedy)
    try:
        read = list(read_jsonl(file))
        lines = sum(1 for line in file.read_text(encoding="utf-8").split("\n") if line.strip())
    except UnicodeDecodeError as error:
        why = f"{error.reason} at byte {error.start}".capitalize()
        raise complain(
            "the text", "UTF-8", error.object[error.start :][:1], f"{why}.", where=str(file)
        ) from None
    except OSError as error:
        raise complain("a run", "readable", str(file), f"{error.strerror or error}.") from error
    if not read:
        raise complain("a run", "one with a finished cycle", str(file))
    remarks = []
    if lines > len(read):
        remarks.append(f"The last line of {file.name} is cut off; that cycle is not shown.")
    latest = {record.cycle: record for record in read}
    if len(latest) < len(read):
        remarks.append("Some cycles are on record more than once; the last record of each is shown.")
    return tuple(latest[cycle] for cycle in sorted(latest)), remarks


def _read(file: Path, remarks: list[str]) -> Mapping[str, Any]:
    """Read a JSON object that the report can do without."""
    if not file.is_file():
        return {}
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        remarks.append(f"{file.name} cannot be read and is left out: {error}.")
        return {}
    if not isinstance(value, dict):
        remarks.append(f"{file.name} is left out: it holds no JSON object.")
    return _mapping(value)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _notices(*places: Mapping[str, Any]) -> Iterator[str]:
    """Find what runs leave under "notice" or "notices", at the top or under "data"."""
    for place in places:
        for where in (place, _mapping(place.get("data"))):
            for found in (where.get("notice"), where.get("notices")):
                for text in found if isinstance(found, list) else [found]:
                    if isinstance(text, str) and text.strip():
                        yield text.strip()
