"""Flower's own configuration: where `flwr` finds the server."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from flwr_mel._files import atomically
from flwr_mel._validate import Phrase, complain


def config_file() -> Path:
    """Return Flower's configuration file of this user."""
    return Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr") / "config.toml"


def connect(name: str, address: str, ca: Path) -> bool:
    """Add a connection, so that `flwr run APP NAME` finds the server; return False if it is there already.

    Parameters
    ----------
    name : str
        Of the connection.
    address : str
        HOST:PORT of the SuperLink.
    ca : Path
        The authority's certificate.
    """
    path = config_file()
    text = path.read_text(encoding="utf-8") if path.exists() else _flowers_own()
    wanted = {"address": address, "root-certificates": str(ca)}
    try:
        there = tomllib.loads(text).get("superlink", {})
    except tomllib.TOMLDecodeError as error:
        raise complain("Flower's configuration", "TOML", Phrase(f"{path}: {error}")) from None
    if name in there:
        if there[name] == wanted:
            return False
        remedy = f"Choose another name, or edit {path}."
        raise complain("connection", "a name that Flower's configuration does not have", name, remedy)
    if any(sign in str(ca) for sign in '"\\\n'):
        raise complain("directory", "a path without quotes or backslashes", str(ca))
    lines = [f'{key} = "{value}"' for key, value in wanted.items()]
    new = f"{text.rstrip()}\n\n" if text.strip() else ""
    new += "\n".join([f"[superlink.{name}]", *lines]) + "\n"
    atomically(path, lambda file: file.write(new))
    return True


def _flowers_own() -> str:
    """Return what Flower writes itself where it finds no configuration: simulations on this machine."""
    from flwr.cli.constant import DEFAULT_FLOWER_CONFIG_TOML  # noqa: PLC0415 - Flower, a second or two

    return DEFAULT_FLOWER_CONFIG_TOML
