"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any


def atomically(path: str | os.PathLike[str], write: Callable[[Any], object], mode: str = "w") -> None:
    """Write a file whole or not at all: readers see the old one or the new one, never half of it.

    Parameters
    ----------
    path : path
        The file; its directory is created.
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
            error.filename = error.filename or str(target)
            del error.filename2  # None would be printed
        raise
