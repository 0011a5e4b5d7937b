"""Profile files: read with every check, written at once or not at all."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from flwr_mel._files import atomically
from flwr_mel._validate import InputError, Phrase, complain
from flwr_mel.profiling.profile import Profile, parse_profile

_LARGEST_FILE = 1 << 16


def read_profile(path: str | Path) -> Profile:
    """Read a profile file; ValueError names the file and what is wrong in it.

    Parameters
    ----------
    path : str or Path
        A TOML file as `write_profile` makes it.
    """
    where = f"profile {path}"
    try:
        with Path(path).open("rb") as file:
            raw = file.read(_LARGEST_FILE + 1)
        if len(raw) > _LARGEST_FILE:
            raise complain("its size", f"at most {_LARGEST_FILE} bytes", Phrase(f"{len(raw)} or more"))
        return parse_profile(tomllib.loads(raw.decode()))
    except OSError as error:
        got = Phrase(f"none: {error.strerror or error}")
        raise complain("the profile", "a file that can be read", got, where=where) from error
    except InputError as error:
        told = (error.field, error.rule, error.value, error.remedy)
        raise complain(*told, where=where, index=error.index) from None
    except ValueError as error:
        raise complain("the text", "valid TOML", Phrase("something else"), f"{error}.", where=where) from None


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
        atomically(target, lambda file: file.write(profile.toml()))
    except OSError as error:
        raise complain("out", "a file that can be written", str(target), f"{error.strerror}.") from error
    return target


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
        raise complain("out", "a new file", f"{path}, which is there", Phrase("Replace it with {}.", "force"))
    if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        raise complain("out", "in a directory that can be written to", str(path))
