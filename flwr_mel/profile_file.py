"""Profile files: what a device measured of itself with ``flwr-mel profile``, read by its client.

A file names the learner, its coefficients and its limits with the keys of `flwr_mel.wire`. A device names its
file in its node config, and it is read again when it changes.
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr_mel import wire
from flwr_mel._validate import NOTHING, InputError, Phrase, complain

#: Key of the node config that names a profile file. It stays on the device, so it is no wire key.
PROFILE = "mel-profile"
#: A battery's level is not among them: it would be old when the file is read.
KEYS = (wire.LEARNER, *wire.COEFFICIENTS, wire.ENERGY_LIMIT_J, wire.MAX_SAMPLES)
_LARGEST_FILE = 1 << 16

log = logging.getLogger("flwr.mel")


def read_profile(path: str | Path) -> dict[str, Any]:
    """Return what a profile file says, with the keys of `flwr_mel.wire`.

    Raises
    ------
    InputError
        Names the file and what is wrong in it.
    """
    where = f"profile {path}"
    try:
        with Path(path).open("rb") as file:
            raw = file.read(_LARGEST_FILE + 1)
        if len(raw) > _LARGEST_FILE:
            raise complain("its size", f"at most {_LARGEST_FILE} bytes", Phrase("more"))
        return check_profile(tomllib.loads(raw.decode()))
    except OSError as error:
        got = Phrase(f"none: {error.strerror or error}")
        raise complain("the profile", "a file that can be read", got, where=where) from error
    except InputError as error:
        told = (error.field, error.rule, error.value, error.remedy)
        raise complain(*told, where=where, index=error.index) from None
    except (ValueError, RecursionError) as error:
        raise complain("the text", "valid TOML", Phrase(str(error)), where=where) from None


def check_profile(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a profile without its table ``[measured]``, within the ranges that servers accept."""
    from flwr_mel.learners.capability import Capability  # noqa: PLC0415 - only devices with a profile need it

    words = {key: value for key, value in document.items() if key != "measured"}
    for key in words:
        if key not in KEYS:
            raise complain("every key", f"one of {', '.join(KEYS)} and [measured]", key)
    if Capability.parse(words, "device").measured is None:
        raise complain(wire.COEFFICIENTS[0], "given, with the other five coefficients", NOTHING)
    return words


class ProfileReader:
    """Reads profile files and remembers them until they change. A bad file is logged, once per change."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[object, dict[str, Any]]] = {}

    def words(self, path: object) -> dict[str, Any]:
        """Return what a file says; nothing if it is no good.

        Parameters
        ----------
        path : str
            From the device's own node config, never from a message: it is opened as it stands.
        """
        if not isinstance(path, str) or not path:
            log.error("%s must be the path of a profile file, got %r; it is not used", PROFILE, path)
            return {}
        try:
            status = Path(path).stat()
            stamp: object = status.st_mtime_ns, status.st_size, status.st_ino
        except (OSError, ValueError):
            stamp = None
        if path not in self._seen or self._seen[path][0] != stamp:
            self._seen[path] = stamp, self._read(path)
        return self._seen[path][1]

    def _read(self, path: str) -> dict[str, Any]:
        try:
            return read_profile(path)
        except ValueError as error:
            log.error("%s. This client goes on without a profile", error)  # noqa: TRY400 - the text says it all
            return {}
