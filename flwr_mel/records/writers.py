"""Callbacks that keep the cycles: JSON lines, TensorBoard."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from flwr_mel._validate import complain
from flwr_mel.records.cycle import CycleRecord

log = logging.getLogger("flwr.mel")

#: Anything that takes a finished cycle.
Callback = Callable[[CycleRecord], None]


class JsonlWriter:
    """Append one line of JSON per cycle; each line is on disk before the next cycle starts.

    Parameters
    ----------
    path : path
        The file; its directory is made. An existing file is continued; a last line that a crash cut off
        is dropped first. With checkpoints (docs/CHECKPOINTS.md) a resumed training also drops the lines of
        cycles that it does again.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            content = self.path.read_bytes()
            whole = content.rfind(b"\n") + 1
            if whole < len(content):
                os.truncate(self.path, whole)

    def __call__(self, record: CycleRecord) -> None:
        """Write one record."""
        line = json.dumps(record.as_dict(), allow_nan=False) + "\n"
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def snapshot(self) -> dict[str, int]:
        """Return how far the file goes now, for a checkpoint."""
        return {"bytes": self.path.stat().st_size if self.path.exists() else 0}

    def restore(self, snapshot: Mapping[str, int], records: Sequence[CycleRecord]) -> None:
        """Bring the file to where a checkpoint was written: no cycle twice, none missing.

        Lines after that point are of cycles which are done again, and are dropped. A file that is not there
        any more, or is new, gets all records. One that is neither is left alone, with an error.

        Parameters
        ----------
        snapshot : mapping
            From `snapshot`; empty when this writer was not there then.
        records : sequence of CycleRecord
            The cycles in the checkpoint.
        """
        content = self.path.read_bytes() if self.path.exists() else b""
        if not content:
            for record in records:
                self(record)
            return
        end = snapshot.get("bytes", -1)
        if not _ends_with(content[: max(end, 0)], end, records):
            raise complain(
                "JsonlWriter's path",
                "the file that the resumed training wrote, or a new one",
                str(self.path),
                "Give another path (it gets the earlier cycles too), or put the file back.",
            )
        if len(content) > end:
            text = "%s: %d cycles after the checkpoint are dropped, they are done again"
            log.info(text, self.path, content.count(b"\n", end))
            with self.path.open("r+b") as file:
                file.truncate(end)
                os.fsync(file.fileno())


def _ends_with(kept: bytes, end: int, records: Sequence[CycleRecord]) -> bool:
    """Whether `end` bytes are there, in whole lines of which the last is the last record's."""
    if len(kept) != end or (kept and not kept.endswith(b"\n")):
        return False
    if not records:
        return True
    try:
        cycle: object = json.loads(kept.splitlines()[-1])["cycle"]
    except (ValueError, LookupError, TypeError):
        return False
    return cycle == records[-1].cycle


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
            raise ValueError(f"{path}, line {number}: not a cycle record ({error})") from None


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
            "mel/bound": record.bound,
            "mel/makespan_s": record.makespan_s,
            "mel/energy_j": record.energy_j,
            "mel/learners_used": sum(r.weight > 0 for r in record.learners),
            **{f"metrics/{key}": value for key, value in record.metrics.items()},
        }
        for key, value in scalars.items():
            self._writer.add_scalar(key, value, record.cycle)
        self._writer.flush()
