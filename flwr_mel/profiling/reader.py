"""The device's side of a profile file: read when first needed, and again when it changes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

#: Key of the node config that names a profile file. It stays on the device, so it is no wire key.
PROFILE = "mel-profile"

log = logging.getLogger("flwr.mel")


class ProfileReader:
    """Reads profile files and remembers them until they change. A bad file is logged, once per change."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[object, dict[str, Any]]] = {}

    def words(self, path: object) -> dict[str, Any]:
        """Return a file's words of the wire; nothing if it is no good.

        Parameters
        ----------
        path : str
            From the device's own node config, never from a message: it is opened as it stands.
        """
        if not isinstance(path, str) or not path:
            log.error("%s must be the path of a profile file, got %r; it is not used", PROFILE, path)
            return {}
        stamp = _stamp(path)
        seen = self._seen.get(path)
        if seen is None or seen[0] != stamp:
            self._seen[path] = seen = (stamp, _read(path))
        return seen[1]


def _stamp(path: str) -> object:
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(path: str) -> dict[str, Any]:
    # Only devices with a profile need what checks it.
    from flwr_mel.profiling.files import read_profile  # noqa: PLC0415

    try:
        return read_profile(path).words()
    except ValueError as error:
        log.error("%s. This learner goes on without a profile", error)  # noqa: TRY400 - the text says it all
        return {}
