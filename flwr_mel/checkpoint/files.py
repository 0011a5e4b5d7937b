"""One checkpoint in one file: a line with format and SHA-256, then numpy's npz; whole or not there at all."""

from __future__ import annotations

import hashlib
import json
import os
import re
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from flwr_mel._files import atomically
from flwr_mel.checkpoint.trees import Arrays, pack, unpack

#: Grows when older versions could not read the file any more.
FORMAT = 1

_HEAD = re.compile(rb"flwr-mel checkpoint ([0-9]{1,9}) sha256 ([0-9a-f]{64})\n")
_LONGEST_HEAD = 128
_LEFTOVER = re.compile(r"\.mel-[0-9]{8}\.ckpt\.[0-9a-f]{8}\.tmp")


class Refused(ValueError):
    """A file that is no usable checkpoint, with the reason."""


def _head(digest: str) -> bytes:
    return f"flwr-mel checkpoint {FORMAT} sha256 {digest}\n".encode()


def write(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint whole or not at all; it is on the disk when this returns.

    Parameters
    ----------
    path : Path
        The file; replaced if it is there.
    content : dict
        As `trees.pack` takes it.
    """
    arrays: Arrays = []
    text = json.dumps(pack(content, arrays)).encode()
    members = {"about": np.frombuffer(text, np.uint8)} | {f"a{i}": a for i, a in enumerate(arrays)}

    def fill(file: BinaryIO) -> None:
        start = file.write(_head("0" * 64))
        np.savez(file, **members)  # type: ignore[arg-type]
        file.seek(start)
        digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
        file.seek(0)
        file.write(_head(digest))

    atomically(path, fill, "w+b")
    sync_directory(path.parent)


def read(path: Path) -> dict[str, Any]:
    """Return a checkpoint's content, or refuse it.

    Parameters
    ----------
    path : Path
        The file; a symbolic link is not followed.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError as error:
        raise Refused(f"it cannot be opened: {error.strerror}") from None
    with open(handle, "rb") as file:
        try:
            _verify(file)
            with np.load(file, allow_pickle=False) as members:
                arrays = [members[f"a{i}"] for i in range(len(members.files) - 1)]
                content = unpack(json.loads(members["about"].tobytes()), arrays)
        except Refused:
            raise
        except Exception as error:  # whatever strange content causes, it is refused
            raise Refused(f"it cannot be read: {type(error).__name__}: {error}") from None
    if not isinstance(content, dict):
        raise Refused("it cannot be read: there is no dictionary in it")
    return content


def _verify(file: BufferedReader) -> None:
    """Check the first line and the sum, and leave the file at the start of numpy's part."""
    head = _HEAD.fullmatch(file.readline(_LONGEST_HEAD))
    if head is None:
        raise Refused("it is no checkpoint of flwr_mel, or its first line is damaged")
    if int(head[1]) > FORMAT:
        raise Refused(
            f"it has format {int(head[1])}, of a newer flwr_mel; this one reads up to {FORMAT}. Update it"
        )
    if head[0] != _head(head[2].decode()):
        raise Refused(f"it has the unknown format {head[1].decode()}")
    if hashlib.file_digest(file, "sha256").hexdigest() != head[2].decode():
        raise Refused("it is damaged or cut off: its SHA-256 is not the one in its first line")
    file.seek(head.end())


def sync_directory(directory: Path) -> None:
    """Make renames in a directory last, on systems where that takes an extra step."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def drop_leftovers(directory: Path) -> None:
    """Remove what killed processes left half written."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if _LEFTOVER.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                os.unlink(entry.path)
