"""One server app per run directory: Flower starts a run twice when its first process is slow to report."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Hold a directory for this process; the system lets go of it however the process ends.

    Parameters
    ----------
    directory : Path
        Made if it is not there.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RuntimeError(
                f"another run works in {directory}: wait for it, stop it (flwr stop RUN-ID), or give another "
                "run-dir"
            ) from None
        yield
