"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryFile
from typing import Any

#: Bytes that are written to see whether a disk takes them.
_TRIED = 1 << 16


def atomically(path: str | os.PathLike[str], write: Callable[[Any], object], mode: str = "w") -> None:
    """Write a file whole or not at all: readers see the old one or the new one, never half of it.

    Parameters
    ----------
    path : path
        The file; its directory is made. It has the rights that the user's files have.
    write : callable
        Takes the open file.
    mode : str
        "w" for text (UTF-8), "wb" or "w+b".

    Raises
    ------
    OSError
        With the name of the file, whatever step failed.
    """
    target = Path(path)
    part = target.with_name(f".{target.name}.{token_hex(4)}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with part.open(mode.replace("w", "x"), encoding=None if "b" in mode else "utf-8") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except BaseException as error:
        with suppress(OSError):
            part.unlink()
        if isinstance(error, OSError):
            _about(error, error.filename or str(target))
        raise


def _about(error: OSError, path: str) -> None:
    """Have an error name this file alone."""
    error.filename = path
    del error.filename2  # None would be printed


def check_room(directory: str | os.PathLike[str], needed: int) -> None:
    """See that a directory can be written to and has room, before there is anything to lose.

    Parameters
    ----------
    directory : path
        Made if it is not there.
    needed : int
        Bytes.

    Raises
    ------
    OSError
        With the directory's name and what is wrong.
    """
    place = Path(directory)
    try:
        place.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=place) as file:
            # Disks that are full tell so when something is written, others only by a limit of the user's.
            file.write(bytes(min(needed, _TRIED)))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        _about(error, str(place))
        raise
    free = shutil.disk_usage(place).free
    if free < needed:
        text = f"{free / 1e6:,.1f} MB are free, {needed / 1e6:,.1f} MB are needed"
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {text}", str(place))
