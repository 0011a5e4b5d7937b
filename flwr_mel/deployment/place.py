"""The server's directory: its settings, and everything else at a known place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from re import fullmatch
from typing import Any

from flwr_mel._files import atomically
from flwr_mel._validate import NOTHING, Phrase, complain
from flwr_mel.deployment import secrets

_WORD = r"[A-Za-z0-9][A-Za-z0-9-]*"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What a server was set up with.

    Parameters
    ----------
    names : tuple of str
        Host names and addresses under which devices reach it; bundles have the first.
    host, port : str, int
        Where devices come in: the proxy.
    control_port : int
        Where the SuperLink listens, on the loopback only.
    proxy : bool
        Whether the proxy is ours. Else the operator has one of his own before the SuperLink.
    connection : str
        How `flwr` calls the server.
    """

    names: tuple[str, ...]
    host: str = "0.0.0.0"
    port: int = 8000
    control_port: int = 8001
    proxy: bool = True
    connection: str = "fleet"

    def __post_init__(self) -> None:
        if not self.names:
            rule = "the host names and addresses under which devices reach the server"
            raise complain("names", rule, NOTHING, "Give at least one.")
        for name in (*self.names, self.host):
            secrets.check_name(name)
        for field in ("port", "control_port"):
            if not 0 < getattr(self, field) < 65536:
                raise complain(field, "a port from 1 to 65535", getattr(self, field))
        if self.proxy and self.port == self.control_port:
            raise complain("control_port", Phrase("another port than {}", "port"), self.control_port)
        if not fullmatch(_WORD, self.connection):
            raise complain("connection", "a name of letters, digits and dashes", self.connection)

    @property
    def address(self) -> str:
        """Where devices are told to go."""
        name = self.names[0]
        return f"[{name}]:{self.port}" if ":" in name else f"{name}:{self.port}"

    @property
    def control(self) -> str:
        """Where operators go, on the server itself."""
        return f"localhost:{self.control_port}"


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """The server's directory.

    Parameters
    ----------
    root : Path
        Absolute.
    """

    root: Path

    @property
    def ca(self) -> Path:
        """The authority's certificate: everybody has it."""
        return self.root / "ca.pem"

    @property
    def ca_key(self) -> Path:
        """The authority's key: needed for further certificates only."""
        return self.root / "ca.key"

    @property
    def certificate(self) -> Path:
        """The server's certificate."""
        return self.root / "server.pem"

    @property
    def key(self) -> Path:
        """Its key."""
        return self.root / "server.key"

    @property
    def settings(self) -> Path:
        """What the server was set up with."""
        return self.root / "server.json"

    @property
    def state(self) -> Path:
        """Where server apps run: the database, runs, who is who."""
        return self.root / "state"

    @property
    def devices(self) -> Path:
        """Which name belongs to which node id: names are bound to keys."""
        return self.state / "devices.json"

    @property
    def proxy(self) -> Path:
        """The proxy's own files."""
        return self.root / "proxy"

    @property
    def bundles(self) -> Path:
        """What is copied to the devices."""
        return self.root / "bundles"

    @property
    def log(self) -> Path:
        """What a server in the background says."""
        return self.root / "server.log"

    @property
    def lock(self) -> Path:
        """Held by the server while it runs."""
        return self.root / "lock"

    def read(self) -> ServerSettings:
        """Return the settings; complain if there are none."""
        remedy = f"Set the server up: flwr-mel server up {self.root} NAME..."
        try:
            told = json.loads(self.settings.read_text(encoding="utf-8"))
            return ServerSettings(**{**told, "names": tuple(told["names"])})
        except FileNotFoundError:
            raise complain(
                "directory", "a server's directory", Phrase(f"{self.root} without server.json"), remedy
            ) from None
        except (ValueError, TypeError, KeyError) as error:
            where = Phrase(f"{self.settings}: {error}")
            raise complain("directory", "a server's directory", where, "Correct the file.") from None

    def names_by_node(self) -> dict[int, str]:
        """Return which name belongs to which node id."""
        if not self.devices.exists():
            return {}
        told = json.loads(self.devices.read_text(encoding="utf-8"))
        return {int(node): str(name) for node, name in told.items()}

    def remember(self, names: Mapping[int, str]) -> None:
        """Write which name belongs to which node id, for server apps to read.

        Parameters
        ----------
        names : mapping
            From node ids to names, all of them.
        """
        ordered = sorted(names.items(), key=lambda pair: pair[1])
        text = json.dumps({str(node): name for node, name in ordered}, indent=2) + "\n"
        atomically(self.devices, lambda file: file.write(text))

    def prepare(self, wanted: Mapping[str, Any], days: int) -> tuple[ServerSettings, list[str]]:
        """Make whatever is not there yet; return the settings and what was made.

        Parameters
        ----------
        wanted : mapping
            Settings by field, those that were given only.
        days : int
            How long a new certificate of the server is valid; one of the authority ten times as long.
        """
        made = []
        if self.settings.exists():
            settings = self._agreed(wanted)
        else:
            settings = ServerSettings(**{"names": (), **wanted})
        if not self.ca.exists():
            secrets.make_authority(self.ca, self.ca_key, 10 * days)
            made.append(f"an authority: {self.ca}, and {self.ca_key}, which belongs into a safe")
        if not self.certificate.exists():
            if not self.ca_key.exists():
                rule = "there to make a certificate with"
                raise complain("ca.key", rule, NOTHING, f"Put it back to {self.ca_key} for a moment.")
            authority = (self.ca, self.ca_key)
            secrets.make_certificate(self.certificate, self.key, authority, settings.names, days)
            made.append(f"a certificate for {', '.join(settings.names)}, valid for {days} days")
        self._check_certificate(settings)
        self.state.mkdir(mode=0o700, exist_ok=True)
        if not self.settings.exists():
            text = json.dumps(asdict(settings), indent=2) + "\n"
            atomically(self.settings, lambda file: file.write(text))
            made.append(f"the settings: {self.settings}")
        return settings, made

    def _agreed(self, wanted: Mapping[str, Any]) -> ServerSettings:
        settings = self.read()
        for field in fields(settings):
            old = getattr(settings, field.name)
            if field.name in wanted and wanted[field.name] != old:
                remedy = f"Leave it out, edit {self.settings}, or choose another directory."
                raise complain(
                    field.name, f"what the server was set up with ({old})", wanted[field.name], remedy
                )
        return settings

    def _check_certificate(self, settings: ServerSettings) -> None:
        have = secrets.names_in(self.certificate)
        missing = [name for name in settings.names if name not in have]
        if missing:
            remedy = f"Move {self.certificate} and {self.key} away: a new one is made then."
            raise complain("names", "names of the server's certificate", ", ".join(missing), remedy)
