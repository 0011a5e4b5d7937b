"""Callbacks that keep the cycles: JSON lines, TensorBoard."""

from __future__ import annotations

import json
import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from flwr_mel._files import check_room
from flwr_mel._validate import complain
from flwr_mel.records.cycle import CycleRecord

log = logging.getLogger("flwr.mel")

_MOST_WAITING, _BLOCK = 100, 1 << 20
#: Free bytes without which there is no point in beginning.
_LEAST_ROOM = 1 << 20

#: Anything that takes a finished cycle.
Callback = Callable[[CycleRecord], None]


class JsonlWriter:
    """Append one line of JSON per cycle; each line is on disk before the next cycle starts.

    What the disk does not take is held back and written with the next cycle: the last 100 lines.

    Parameters
    ----------
    path : path
        The file; its directory is made. An existing file is continued; a last line that a crash cut off
        is dropped first. With checkpoints (docs/CHECKPOINTS.md) a resumed training also drops the lines of
        cycles that it does again.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            check_room(self.path.parent, _LEAST_ROOM)
            self.path.open("ab").close()
        except OSError as error:
            raise complain(
                "JsonlWriter's path", "a file that can be written", str(self.path), f"It cannot: {error}."
            ) from error
        self._waiting: deque[tuple[int, str]] = deque(maxlen=_MOST_WAITING)
        if self.path.exists():
            size = self.path.stat().st_size
            whole = _line_before(self.path, size)[0]
            if whole < size:
                os.truncate(self.path, whole)

    def __call__(self, record: CycleRecord) -> None:
        """Write one record, after those that could not be written before."""
        self._waiting.append((record.cycle, json.dumps(record.as_dict(), allow_nan=False) + "\n"))
        data = memoryview("".join(line for _, line in self._waiting).encode())
        # Without a buffer, which would write its rest when the file is closed, whatever went wrong before.
        with self.path.open("ab", buffering=0) as file:
            end = file.tell()
            try:
                while data:
                    data = data[file.write(data) :]
                os.fsync(file.fileno())
            except OSError as error:
                # Half a line would spoil the next one.
                with suppress(OSError):
                    os.truncate(self.path, end)
                first, last = self._waiting[0][0], self._waiting[-1][0]
                held = f"cycle {last} is" if first == last else f"cycles {first} to {last} are"
                raise OSError(
                    error.errno, f"{error.strerror}: {held} held back until there is room", str(self.path)
                ) from error
        self._waiting.clear()

    def snapshot(self) -> dict[str, int]:
        """Return how far the file goes now and how many cycles are held back, for a checkpoint."""
        size = self.path.stat().st_size if self.path.exists() else 0
        return {"bytes": size, "waiting": len(self._waiting)}

    def restore(self, snapshot: Mapping[str, int], records: Sequence[CycleRecord]) -> None:
        """Bring the file to where a checkpoint was written: no cycle twice, none missing.

        Lines after that point are of cycles which are done again, and are dropped. A file that is not there
        any more, or is new, gets all records that the checkpoint has. One that is neither is left alone, with
        an error. What was held back when the checkpoint was written follows.

        Parameters
        ----------
        snapshot : mapping
            From `snapshot`; empty when this writer was not there then.
        records : sequence of CycleRecord
            The last cycles in the checkpoint.
        """
        size = self.path.stat().st_size if self.path.exists() else 0
        if not size:
            for record in records:
                self(record)
            return
        end, written = snapshot.get("bytes", -1), len(records) - snapshot.get("waiting", 0)
        if not _ends_with(self.path, end, size, records[:written]):
            raise complain(
                "JsonlWriter's path",
                "the file that the resumed training wrote, or a new one",
                str(self.path),
                "Give another path (it gets the earlier cycles too), or put the file back.",
            )
        if size > end:
            with self.path.open("r+b") as file:
                file.seek(end)
                text = "%s: %d cycles after the checkpoint are dropped, they are done again"
                log.info(text, self.path, sum(1 for _ in file))
                file.truncate(end)
                os.fsync(file.fileno())
        for record in records[max(written, 0) :]:
            self(record)


def _ends_with(path: Path, end: int, size: int, records: Sequence[CycleRecord]) -> bool:
    """Whether `end` bytes are there, in whole lines of which the last is the last record's."""
    if not 0 <= end <= size:
        return False
    whole, line = _line_before(path, end)
    if whole != end or not records:
        return whole == end
    try:
        cycle: object = json.loads(line)["cycle"]
    except (ValueError, LookupError, TypeError):
        return False
    return cycle == records[-1].cycle


def _line_before(path: Path, end: int) -> tuple[int, bytes]:
    """Return where the last whole line before `end` ends, and that line. The file may be a large one."""
    tail, start = b"", end
    with path.open("rb") as file:
        # Until the end of the line before it, which is the third piece from the end, or the whole file.
        while start and tail.count(b"\n") < 2:
            start = max(start - _BLOCK, 0)
            file.seek(start)
            tail = file.read(end - start)
    *lines, _ = tail.split(b"\n")
    return start + tail.rfind(b"\n") + 1, lines[-1] if lines else b""


def read_jsonl(path: str | os.PathLike[str]) -> Iterator[CycleRecord]:
    """Read records back. A last line cut off by a crash is left out; a broken one elsewhere is an error.

    Parameters
    ----------
    path : path
        What a `JsonlWriter` wrote.
    """
    lines = Path(path).read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield CycleRecord.from_dict(json.loads(line))
        except (ValueError, TypeError, KeyError) as error:
            if number == len(lines):
                return
            where = f"{path}, line {number}"
            raise complain("the line", "a cycle record", line, f"{error}.", where=where) from None


class TensorBoardWriter:
    """Write the cycles' scalars for TensorBoard; needs the ``tensorboard`` package and torch.

    Parameters
    ----------
    directory : path
        Log directory.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415
        except ImportError as error:
            raise ImportError("TensorBoardWriter needs: pip install tensorboard torch") from error
        self._writer: Any = SummaryWriter(str(directory))

    def __call__(self, record: CycleRecord) -> None:
        """Write one record's scalars."""
        scalars = {
            "mel/mean_epochs": record.mean_epochs,
            f"mel/{record.objective}/value": record.value,
            f"mel/{record.objective}/bound": record.bound,
            "mel/makespan_s": record.makespan_s,
            "mel/energy_j": record.energy_j,
            "mel/learners_used": sum(r.weight > 0 for r in record.learners),
            **{f"metrics/{key}": value for key, value in record.metrics.items()},
        }
        for key, value in scalars.items():
            self._writer.add_scalar(key, value, record.cycle)
        self._writer.flush()
