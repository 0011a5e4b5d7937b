"""Where a watched run is, and whether it has ended."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flwr_mel._text import printable
from flwr_mel._validate import Phrase, complain
from flwr_mel.records.follow import Event, Follower, History
from flwr_mel.report.numerals import finite, plural
from flwr_mel.report.run import CONFIG, RECORDS, SUMMARY, records_of


class Place:
    """Where the records are, and what lies beside them.

    Parameters
    ----------
    path : Path
        A run directory or a file of records; neither need be there yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._follower = Follower(path)
        self._read: dict[Path, tuple[int, dict[str, Any]]] = {}

    @property
    def records(self) -> Path:
        """The file that is followed."""
        return records_of(self.path)

    def check(self) -> None:
        """Refuse a directory of runs, for which one would wait in vain."""
        inside = [] if self.records.exists() else list(self.path.glob(f"*/{RECORDS}"))
        if inside:
            newest = max(inside, key=lambda file: file.stat().st_mtime).parent
            got = Phrase(f"{self.path}, which holds {len(inside):,}")
            raise complain("RUN", "one run", got, f"The newest is {newest}.")

    def poll(self) -> Iterator[Event]:
        """Yield what is new."""
        try:
            if self._follower.path != self.records:
                self._follower = Follower(self.records)
            yield from self._follower.poll()
        except OSError as error:
            raise complain("RUN", "readable", str(self.path), f"{error.strerror or error}.") from error

    @property
    def cycles(self) -> int | None:
        """How many are planned, if the run directory says so."""
        told = self._object(CONFIG)[1].get("config")
        wanted = finite(told.get("cycles")) if isinstance(told, dict) else 0.0
        return int(wanted) if wanted > 0 else None

    @property
    def age_s(self) -> float:
        """Seconds since the records were written to; 0 if they are not there."""
        try:
            return max(time.time() - self.records.stat().st_mtime, 0.0)
        except OSError:
            return 0.0

    def ending(self, history: History) -> str:
        """Say how the run ended; empty while it goes on.

        Parameters
        ----------
        history : History
            All that is on record.
        """
        last = history.last
        if last is None:
            return ""
        if last.stopped:
            return f"stopped after cycle {last.cycle:,}: {printable(last.stopped)}"
        (started, _), (ended, summary) = self._object(CONFIG), self._object(SUMMARY)
        # A resumed run has the summary of its first part until it ends: it is older, or too few cycles.
        if summary.get("cycles") == last.cycle and (ended >= started or last.cycle >= (self.cycles or 0)):
            return f"finished: {plural(last.cycle, 'cycle')} done"
        return ""

    def _object(self, name: str) -> tuple[int, dict[str, Any]]:
        """Return when a JSON file was written and what it holds; 0 and nothing if it cannot be read."""
        file = self.records.with_name(name)
        if self.records.name != RECORDS:
            return 0, {}
        try:
            written = file.stat().st_mtime_ns
            if self._read.get(file, (0, {}))[0] != written:
                value = json.loads(file.read_text(encoding="utf-8"))
                self._read[file] = (written, value if isinstance(value, dict) else {})
        except (OSError, ValueError):
            return 0, {}
        return self._read[file]
