"""A run directory, read with tolerance: only its records are needed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr_mel.records import CycleRecord, read_jsonl
from flwr_mel.report.numerals import finite, plural

RECORDS, CONFIG, SUMMARY = "records.jsonl", "config.json", "summary.json"


@dataclass(frozen=True, slots=True)
class Run:
    """What a run left behind.

    Parameters
    ----------
    path : Path
        The run directory.
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
        """The directory's name."""
        return self.path.resolve().name or str(self.path)

    def setting(self, key: str) -> Any:
        """Return a setting by its name with hyphens, or with underscores; None if it is not known."""
        return self.config.get(key, self.config.get(key.replace("-", "_")))

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


def load_run(path: str | Path) -> Run:
    """Read a run directory. Only ``records.jsonl`` is needed.

    Parameters
    ----------
    path : str or Path
        The directory.

    Returns
    -------
    Run
        Everything that is there. An unfinished last line is left out and noticed.

    Raises
    ------
    ValueError
        Names the path and what is missing or broken.
    """
    directory = Path(path)
    records, remarks = _records(directory)
    told, summary = _read(directory / CONFIG, remarks), _read(directory / SUMMARY, remarks)
    config = _mapping(told.get("config"))
    fleet = told.get("fleet")
    return Run(
        path=directory,
        records=records,
        config=config,
        versions=_mapping(told.get("versions")),
        fleet=tuple(_mapping(row) for row in fleet) if isinstance(fleet, list) else (),
        summary=summary,
        notices=tuple(dict.fromkeys([*_notices(told, config, summary), *remarks])),
    )


def _records(directory: Path) -> tuple[tuple[CycleRecord, ...], list[str]]:
    file = directory / RECORDS
    if not directory.exists():
        raise ValueError(f"{directory}: there is no such run directory")
    if not directory.is_dir():
        raise ValueError(
            f"{directory}: a run directory is needed, this is a file. Give the directory it is in."
        )
    if not file.is_file():
        raise ValueError(f"{directory}: not a run directory, it has no {RECORDS}")
    try:
        read = list(read_jsonl(file))
        lines = sum(1 for line in file.read_text(encoding="utf-8").split("\n") if line.strip())
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    except OSError as error:
        raise ValueError(f"{file}: cannot be read: {error.strerror or error}") from None
    if not read:
        raise ValueError(f"{file}: no cycle was finished, so there is nothing to report")
    remarks = []
    if lines > len(read):
        remarks.append(f"The last line of {RECORDS} is cut off; that cycle is not shown.")
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
