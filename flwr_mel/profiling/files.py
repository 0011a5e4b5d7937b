"""Profile files: read with every check, written at once or not at all."""

from __future__ import annotations

import os
import tempfile
import tomllib
from pathlib import Path

from flwr_mel._validate import complain
from flwr_mel.profiling.profile import Profile, parse_profile

_LARGEST_FILE = 1 << 16


def read_profile(path: str | Path) -> Profile:
    """Read a profile file; ValueError names the file and what is wrong in it.

    Parameters
    ----------
    path : str or Path
        A TOML file as `write_profile` makes it.
    """
    try:
        with Path(path).open("rb") as file:
            raw = file.read(_LARGEST_FILE + 1)
        if len(raw) > _LARGEST_FILE:
            raise complain("its size", f"at most {_LARGEST_FILE} bytes", f"{len(raw)} or more")
        return parse_profile(tomllib.loads(raw.decode()))
    except OSError as error:
        raise ValueError(f"profile {path}: cannot be read: {error.strerror or error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"profile {path}: this is not valid TOML: {error}") from None
    except ValueError as error:
        raise ValueError(f"profile {path}: {error}") from None


def write_profile(profile: Profile, path: str | Path, *, force: bool = False) -> Path:
    """Write the file at once or not at all; return its absolute path.

    Parameters
    ----------
    profile : Profile
        What to write.
    path : str or Path
        Where.
    force : bool
        Replace a file that is there.
    """
    target = Path(path).absolute()
    check_target(target, force=force)
    try:
        _replace(target, profile.toml())
    except OSError as error:
        raise complain("out", "a file that can be written", str(target), f"{error.strerror}.") from None
    return target


def _replace(target: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)  # the SuperNode may run as another user
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def check_target(path: Path, *, force: bool = False) -> None:
    """Refuse, before anything is measured, a file that could not be written.

    Parameters
    ----------
    path : Path
        Where a profile is to be written.
    force : bool
        It may be there already.
    """
    if path.suffix != ".toml":
        raise complain("out", "a file name that ends in .toml", str(path))
    if path.is_dir() or (path.exists() and not force):
        raise complain("out", "a new file", f"{path}, which is there", "Replace it with --force.")
    if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        raise complain("out", "in a directory that can be written to", str(path))
