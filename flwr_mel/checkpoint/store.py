"""The checkpoints of one training: the last few, in one directory."""

from __future__ import annotations

import gzip
import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from flwr_mel import __version__
from flwr_mel._validate import Phrase, complain, count
from flwr_mel.checkpoint.files import Refused, drop_leftovers, read, sync_directory, write
from flwr_mel.records import CycleRecord

log = logging.getLogger("flwr.mel")

#: What may differ from process to process: through which of Flower's APIs a training goes.
_API = "api"
_NAME = re.compile(r"mel-([0-9]{8})\.ckpt")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All that a training leaves to the process that goes on with it.

    Parameters
    ----------
    cycle : int
        Cycles done.
    model : dict of str to array
        The model after them.
    fingerprint : dict
        What must be the same in the process that goes on.
    state : dict
        The orchestrator's.
    records : sequence of CycleRecord
        Of the last cycles done.
    inner : list
        State of the wrapped strategy.
    callbacks : list
        State of the callbacks that have one.
    stopping : dict
        The criteria that were in force.
    earlier : dict of str to dict of str to array
        The models of earlier cycles with which tasks in progress, or updates that count again, began, by
        cycle.
    updates : dict of str to dict
        Updates that count again.
    """

    cycle: int
    model: dict[str, npt.NDArray[Any]]
    fingerprint: dict[str, Any] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    records: Sequence[CycleRecord] = ()
    inner: list[Any] = field(default_factory=list)
    callbacks: list[Any] = field(default_factory=list)
    stopping: dict[str, Any] = field(default_factory=dict)
    earlier: dict[str, dict[str, npt.NDArray[Any]]] = field(default_factory=dict)
    updates: dict[str, dict[str, Any]] = field(default_factory=dict)


class Checkpoints:
    """Keeps a training's last checkpoints in a directory.

    Parameters
    ----------
    directory : path
        One for each training; made when it is first written to.
    keep : int
        How many to keep, the newest.
    generators : mapping of str to np.random.Generator, optional
        Generators of yours to keep and restore along with the model. flwr_mel itself has none: all its
        randomness follows from the seed and the cycle.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        keep: int = 3,
        generators: Mapping[str, np.random.Generator] | None = None,
    ) -> None:
        self.directory = Path(directory)
        self.keep = count("keep", keep, least=1)
        self.generators = dict(generators or {})
        for name, generator in self.generators.items():
            if not isinstance(generator, np.random.Generator):
                raise complain(f"generators[{name!r}]", "a np.random.Generator", generator)
        # Every record is compressed once, not again with every later checkpoint that has it.
        self._lines: dict[int, tuple[CycleRecord, bytes]] = {}

    def files(self) -> list[Path]:
        """Return the files that are there, newest first. Links and other odd things do not count."""
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.directory) as entries:
            names = [e.name for e in entries if _NAME.fullmatch(e.name) and e.is_file(follow_symlinks=False)]
            return [self.directory / name for name in sorted(names, reverse=True)]
        return []

    # --- writing ------------------------------------------------------------------------------------

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint and remove those that are too old.

        Parameters
        ----------
        checkpoint : Checkpoint
            What to keep.

        Raises
        ------
        OSError
            If the disk does not take it. The older ones are still there then.
        TypeError
            If there is something in it that cannot be kept.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / f"mel-{checkpoint.cycle:08d}.ckpt"
        drop_leftovers(self.directory)
        content = {name: getattr(checkpoint, name) for name in Checkpoint.__slots__}
        states = {name: g.bit_generator.state for name, g in self.generators.items()}
        content |= {
            "flwr_mel": __version__,
            "fingerprint": self._whole(checkpoint.fingerprint),
            "records": self._packed(checkpoint.records),
            "generators": states,
        }
        write(path, content)
        # Only older ones: a newer number can be there only if it was refused or is of another training.
        older = [file for file in self.files() if file.name < path.name]
        for file in older[self.keep - 1 :]:
            try:
                file.unlink()
            except OSError as error:
                log.warning("the old checkpoint %s cannot be removed: %s", file, error)
        return path

    def _packed(self, records: Sequence[CycleRecord]) -> bytes:
        before, self._lines = self._lines, {}
        for record in records:
            line = before[id(record)][1] if id(record) in before else b""
            if not line:
                text = json.dumps(record.as_dict(), allow_nan=False).encode() + b"\n"
                line = gzip.compress(text, mtime=0)
            self._lines[id(record)] = (record, line)
        return b"".join(line for _, line in self._lines.values())

    def _whole(self, fingerprint: Mapping[str, Any]) -> dict[str, Any]:
        kinds = {name: type(g.bit_generator).__name__ for name, g in self.generators.items()}
        return {**fingerprint, "generators": kinds}

    # --- reading ------------------------------------------------------------------------------------

    def load(self, fingerprint: Mapping[str, Any] | None = None) -> Checkpoint | None:
        """Return the newest usable checkpoint; None when there is no file at all.

        Refused ones are logged. When an older one is used in their place they are renamed to
        ``*.refused``, so that they cannot be mistaken for later cycles of the training that goes on.

        Parameters
        ----------
        fingerprint : mapping, optional
            What must be the same as in the checkpoint. Entries of None are not compared.

        Raises
        ------
        ValueError
            If there are files and none is usable: starting from zero would not be what anybody expects.
        """
        refused: dict[Path, str] = {}
        for path in self.files():
            try:
                content = self._check(path, self._whole(fingerprint or {}))
            except Refused as error:
                refused[path] = str(error)
                log.warning("checkpoint %s is refused: %s", path, error)
                continue
            self._set_aside(refused)
            for name, generator in self.generators.items():
                generator.bit_generator.state = content["generators"][name]
            return Checkpoint(**{name: content[name] for name in Checkpoint.__slots__})
        if refused:
            reasons = "; ".join(f"{path.name}: {why}" for path, why in refused.items())
            got = Phrase(
                f"{self.directory}, which has {len(refused)} checkpoints and none is usable ({reasons})"
            )
            anew = "to start from zero, give another directory or remove the files"
            remedy = f"Put right what is named there; or, {anew}."
            raise complain("checkpoints", "a directory to go on from", got, remedy)
        return None

    def _check(self, path: Path, fingerprint: Mapping[str, Any]) -> dict[str, Any]:
        content = read(path)
        content.setdefault("earlier", {})  # those of version 0.1 have no tasks in progress
        content.setdefault("updates", {})
        try:
            lines = gzip.decompress(content["records"]).splitlines() if content["records"] else []
            content["records"] = [CycleRecord.from_dict(json.loads(line)) for line in lines]
            last = content["records"][-1].cycle if lines else content["cycle"]
            missing = [name for name in Checkpoint.__slots__ if name not in content]
            kept, name = content["fingerprint"], f"mel-{content['cycle']:08d}.ckpt"
        except (KeyError, TypeError, ValueError, OSError, EOFError) as error:
            raise Refused(f"it cannot be read: {type(error).__name__}: {error}") from None
        if missing:
            raise Refused(f"it lacks {', '.join(missing)}")
        if path.name != name or last != content["cycle"]:
            raise Refused(f"it is of cycle {content['cycle']}, which is not the one in its name")
        across = _API in fingerprint and kept.get(_API, fingerprint[_API]) != fingerprint[_API]
        for fact in fingerprint:
            pair = [kept.get(fact), fingerprint[fact]]
            if fact == _API or None in pair:
                continue
            old, now = (_in_any_api(fact, x) for x in pair) if across else pair
            if old != now:
                raise Refused(f"it is of another training: {_difference(fact, old, now)}")
        return content

    def _set_aside(self, refused: Mapping[Path, str]) -> None:
        for path in refused:
            try:
                os.replace(path, path.with_name(f"{path.name}.refused"))
            except OSError as error:
                log.warning("the refused checkpoint %s cannot be renamed: %s", path, error)
        if refused:
            with suppress(OSError):
                sync_directory(self.directory)


def _in_any_api(fact: str, value: Any) -> Any:
    """Return what of a fact does not depend on the API.

    Strategies of the same name live in another module there, and arrays have numbers in place of names.
    """
    if fact == "strategy":
        return [name.rpartition(".")[2] for name in value]
    return [entry[1:] for entry in value] if fact == "model" else value


def _difference(name: str, old: Any, new: Any) -> str:
    """Say what differs; of long lists only the first entry that does."""
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        old, new = next((a, b) for a, b in zip(old, new, strict=True) if a != b)
    elif isinstance(old, list) and isinstance(new, list):
        old, new = f"{len(old)} entries", f"{len(new)} entries"
    return f"{name} was {old}, is now {new}"
