"""The simulation as a Flower app directory, made from the installed package.

`flwr run .` uses the repository's own pyproject.toml. `flwr-mel simulate` works wherever flwr_mel is
installed, so it writes an app directory that holds nothing but the configuration and names our components.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr_mel import __version__

_HEAD = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "flwr-mel-simulation"
version = "{version}"
description = "The simulation of flwr-mel"
license = "Apache-2.0"
dependencies = ["flwr-mel"]

[tool.flwr.app]
publisher = "flwr-mel"

[tool.flwr.app.components]
serverapp = "{serverapp}"
clientapp = "simulation.client_app:app"

[tool.flwr.app.config]
"""


def write_app(directory: Path, serverapp: str, config: Mapping[str, Any]) -> Path:
    """Write the app directory and return it.

    Parameters
    ----------
    directory : Path
        Made if it is not there.
    serverapp : str
        Which server app, e.g. ``simulation.server_app:app``.
    config : mapping
        The run configuration.
    """
    directory.mkdir(parents=True, exist_ok=True)
    text = _HEAD.format(version=__version__, serverapp=serverapp) + toml_lines(config) + "\n"
    (directory / "pyproject.toml").write_text(text, encoding="utf-8")
    (directory / "README.md").write_text("The simulation of flwr-mel.\n", encoding="utf-8")
    return directory


def toml_lines(values: Mapping[str, Any]) -> str:
    """Write scalars as TOML; its numbers, strings and booleans are spelled as in JSON."""
    return "\n".join(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items())


def write_connection(home: Path, port: int) -> None:
    """Tell Flower's command line where the SuperLink is.

    Parameters
    ----------
    home : Path
        FLWR_HOME.
    port : int
        Of the SuperLink, on loopback.
    """
    home.mkdir(parents=True, exist_ok=True)
    text = f'[superlink]\ndefault = "mel"\n\n[superlink.mel]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    (home / "config.toml").write_text(text, encoding="utf-8")
