"""One training per directory: Flower may start a ServerApp twice when its first process is slow to report."""

from __future__ import annotations

import os
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows; two trainings at once are then the user's to avoid
    fcntl = None  # type: ignore[assignment]

# Kept open until the process ends, however it ends: the system then lets go of the claim.
_CLAIMED: dict[tuple[int, Path], int] = {}


def claim(directory: Path) -> None:
    """Keep other processes out of a directory of checkpoints for as long as this one lives.

    Parameters
    ----------
    directory : Path
        Made if it is not there; one that cannot be written to is left to the first save to complain about.
    """
    key = (os.getpid(), directory.resolve())
    if fcntl is None or key in _CLAIMED:
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        return
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise RuntimeError(
            f"another process trains with the checkpoints in {directory}: wait for it, stop it, or give "
            "another directory"
        ) from None
    _CLAIMED[key] = file
