"""Follow a file of records while somebody else writes it."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, TypeAlias

from flwr_mel._text import message
from flwr_mel._validate import complain, count
from flwr_mel.records.cycle import CycleRecord

#: Bytes before the place reached that must still be there; the end of a record has the cycle's metrics.
_TAIL = 4096
_BROKEN = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Entry:
    """A cycle that was read.

    Parameters
    ----------
    record : CycleRecord
        The cycle.
    again : bool
        The very same was read before: the file was replaced, and this part of it has not changed.
    """

    record: CycleRecord
    again: bool = False


@dataclass(frozen=True, slots=True)
class Damage:
    """A line that is skipped.

    Parameters
    ----------
    line : int
        From 1.
    why : str
        What is wrong with it.
    """

    line: int
    why: str

    def __str__(self) -> str:
        return f"line {self.line} is no cycle record and is skipped ({self.why})"


@dataclass(frozen=True, slots=True)
class Restart:
    """The file was cut or replaced, as a resumed run does; what it has now follows from its start."""

    def __str__(self) -> str:
        return "the records were cut or replaced, as a resumed run does; they are read again"


Event: TypeAlias = Entry | Damage | Restart


class Follower:
    """Reads what was appended to a file of JSON lines since the last look.

    The file is closed between two looks, and never written to: the job that writes it is not disturbed.

    Parameters
    ----------
    path : path
        What a `JsonlWriter` writes; it need not be there yet.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._looked: tuple[int, int, int] | None = None
        self._known: dict[int, bytes] = {}
        self._rewind()

    def poll(self) -> Iterator[Event]:
        """Yield what is new; nothing while the file is not there.

        Yields
        ------
        Entry, Damage or Restart
            In the order of the file. A last line that is still being written waits for the next look.

        Raises
        ------
        ValueError
            If the path leads to something that is no file.
        OSError
            If the file cannot be read.
        """
        try:
            found = self.path.stat()
            if not stat.S_ISREG(found.st_mode):
                raise complain("records", "a regular file", str(self.path), "Give a file of JSON lines")
            now = (found.st_ino, found.st_size, found.st_mtime_ns)
            if now == self._looked:
                return
            with self.path.open("rb") as file:
                yield from self._read(file)
            # Taken before reading, so that what was appended meanwhile is seen by the next look.
            self._looked = now
        except FileNotFoundError:
            self._looked = None

    def _rewind(self) -> None:
        self._offset, self._line, self._tail = 0, 0, b""

    def _read(self, file: BinaryIO) -> Iterator[Event]:
        file.seek(self._offset - len(self._tail))
        # Shorter, or other bytes: a resumed run has taken cycles back.
        if file.read(len(self._tail)) != self._tail:
            self._rewind()
            yield Restart()
        file.seek(self._offset)
        for line in file:
            event = self._event(line)
            # Half an object is never JSON, so a line that can be read is whole even without its end.
            if isinstance(event, Damage) and not line.endswith(b"\n"):
                return
            self._offset += len(line)
            self._line += line.endswith(b"\n")
            self._tail = (self._tail + line)[-_TAIL:]
            if event is not None:
                yield event

    def _event(self, line: bytes) -> Entry | Damage | None:
        if not line.strip():
            return None
        try:
            record = CycleRecord.from_dict(json.loads(line))
            _check(record)
        except _BROKEN as error:
            why = f"{error} is missing" if isinstance(error, KeyError) else message(error)
            return Damage(self._line + 1, why)
        digest = hashlib.blake2b(line.strip(), digest_size=16).digest()
        again = self._known.get(record.cycle) == digest
        self._known[record.cycle] = digest
        return Entry(record, again)


def _check(record: CycleRecord) -> None:
    """Refuse values of types that nobody could show; a record itself does not look."""
    count("cycle", record.cycle)
    if not all(isinstance(text, str) for text in [*record.notes, record.stopped, record.status]):
        raise complain("notes, status and stopped", "text", record.notes)
    for key, value in record.metrics.items():
        if not isinstance(value, int | float):
            raise complain(f"metric {key}", "a number", value)
    for row in record.learners:
        # The thorough check takes microseconds, which add up over thousands of learners.
        if not (type(row.epochs) is type(row.samples) is int and row.epochs >= 0 <= row.samples):
            count("epochs", row.epochs)
            count("samples", row.samples)
        if not (isinstance(row.learner, str) and isinstance(row.reason, str)):
            raise complain("learner and reason", "text", [row.learner, row.reason])


@dataclass(slots=True)
class History:
    """What is known of a run: its last cycle whole, of the others their metrics only.

    Parameters
    ----------
    last : CycleRecord, optional
        The cycle that was written last.
    metrics : dict
        By cycle, in rising order.
    """

    last: CycleRecord | None = None
    metrics: dict[int, dict[str, float]] = field(default_factory=dict)

    def add(self, record: CycleRecord) -> None:
        """Take in a cycle; if it was there before it counts anew, and those beyond it are forgotten.

        Parameters
        ----------
        record : CycleRecord
            In the order of the file.
        """
        if self.last is not None and record.cycle <= self.last.cycle:
            self.metrics = {c: m for c, m in self.metrics.items() if c < record.cycle}
        self.last, self.metrics[record.cycle] = record, record.metrics

    def clear(self) -> None:
        """Forget everything."""
        self.last, self.metrics = None, {}
