"""What a device gets: one directory with its name, its key, the authority, its settings and a unit."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from re import fullmatch

from flwr_mel import wire
from flwr_mel._validate import NOTHING, Phrase, complain
from flwr_mel.deployment import running, secrets, units

Value = str | int | float | bool
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_NODE_KEY = r"[A-Za-z][A-Za-z0-9._-]*"
#: Numerical libraries use one thread, so that what a device measures of itself holds when it is busy.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

_TEXT = """# A device of flwr-mel. Name and key belong together and stay: the server knows the device by them.
name = {name}
server = {server}

# What this device tells of itself to Flower and to the app: data-dir, mel-profile, mel-energy-limit-j,
# mel-max-samples, ... (docs/DEPLOY.md). Change it as you like, then start the device again.
[node]
{node}"""


@dataclass(frozen=True, slots=True)
class Bundle:
    """A device's directory.

    Parameters
    ----------
    root : Path
        Absolute.
    """

    root: Path

    @property
    def ca(self) -> Path:
        """The authority's certificate."""
        return self.root / "ca.pem"

    @property
    def key(self) -> Path:
        """The device's private key."""
        return self.root / "device.key"

    @property
    def settings(self) -> Path:
        """Name, server, node configuration."""
        return self.root / "settings.toml"

    @property
    def unit(self) -> Path:
        """For systemd; `flwr-mel device start` fills in the paths and puts it in place."""
        return self.root / units.DEVICE_FILE

    @property
    def home(self) -> Path:
        """Where Flower keeps its files."""
        return self.root / "flwr"

    @property
    def log(self) -> Path:
        """What a device in the background says."""
        return self.root / "device.log"

    @property
    def lock(self) -> Path:
        """Held by the SuperNode while it runs."""
        return self.root / "lock"

    def public(self, name: str) -> Path:
        """Return where the device's public key is."""
        return self.root / f"{name}.pub"

    def read(self) -> DeviceSettings:
        """Return the settings; complain about what is missing or wrong."""
        remedy = "Copy it from the server, where flwr-mel server devices makes it."
        for path in (self.settings, self.ca):
            if not path.is_file():
                raise complain("bundle", f"a directory with {path.name}", Phrase(str(self.root)), remedy)
        try:
            told = tomllib.loads(self.settings.read_text(encoding="utf-8"))
            return DeviceSettings(told["name"], told["server"], told.get("node", {}), told.get("port"))
        except (tomllib.TOMLDecodeError, KeyError) as error:
            what = Phrase(f"{error} in {self.settings}")
            raise complain("bundle", "settings with name and server", what, remedy) from None

    def command(self, settings: DeviceSettings) -> tuple[list[str], dict[str, str]]:
        """Return the SuperNode's command line and environment.

        Parameters
        ----------
        settings : DeviceSettings
            As read.
        """
        # Drawn, not Flower's usual one: several devices may start on one machine at the same moment.
        port = running.free_port() if settings.port is None else settings.port
        env = running.environment(self.home)
        threads = env.get("OMP_NUM_THREADS", "1")
        env |= dict.fromkeys(_THREADS, threads)
        words = [
            *(sys.executable, "-m", "flwr_mel.deployment.supernode", "--superlink", settings.server),
            *("--root-certificates", str(self.ca), "--auth-supernode-private-key", str(self.key)),
            *("--host", "127.0.0.1", "--port", str(port)),
            *("--node-config", settings.node_config),
        ]
        return words, env


@dataclass(frozen=True, slots=True)
class DeviceSettings:
    """Who a device is, and what it tells of itself.

    Parameters
    ----------
    name : str
        In records, for ever.
    server : str
        HOST:PORT.
    node : mapping
        Flower's node configuration.
    port : int, optional
        On the device's loopback, for Flower's helpers. By default one that is free.
    """

    name: str
    server: str
    node: Mapping[str, Value] = field(default_factory=dict)
    port: int | None = None

    def __post_init__(self) -> None:
        check_device_name(self.name)
        for key, value in self.node.items():
            if not fullmatch(_NODE_KEY, key) or key == wire.LEARNER:
                raise complain("node", "names of letters, digits and dashes", key)
            if not isinstance(value, Value):
                raise complain("node", "texts, numbers, true or false", value)
            if isinstance(value, str) and any(sign in value for sign in "\"'\\\n"):
                raise complain("node", "texts without quotes, backslashes and line ends", value)

    @property
    def node_config(self) -> str:
        """In Flower's form: pairs of TOML."""
        pairs = {wire.LEARNER: self.name, **self.node}
        return " ".join(f"{key}={_toml(value)}" for key, value in pairs.items())


def check_device_name(name: object) -> None:
    """Complain about what is no name for a device."""
    if not isinstance(name, str) or not fullmatch(_NAME, name):
        raise complain("name", "of letters, digits, dots and dashes", name)


def parse_pairs(pairs: Sequence[str]) -> dict[str, Value]:
    """Read KEY=VALUE: what is neither a number nor true or false is text.

    Parameters
    ----------
    pairs : sequence of str
        As given on the command line.
    """
    found: dict[str, Value] = {}
    for pair in pairs:
        key, sign, text = pair.partition("=")
        if not sign or not fullmatch(_NODE_KEY, key):
            raise complain("node", "KEY=VALUE", pair, "For instance data-dir=/srv/data.")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        found[key] = value if isinstance(value, int | float | bool) else text
    return found


def make_bundle(bundle: Bundle, settings: DeviceSettings, ca: Path, public_key: Path | None) -> bool:
    """Make a device's directory; return False if it is there already, and then leave it as it is.

    Parameters
    ----------
    bundle : Bundle
        Where.
    settings : DeviceSettings
        Who.
    ca : Path
        The authority's certificate.
    public_key : Path or None
        Of a key that was made on the device; None makes a key here.
    """
    if bundle.settings.exists():
        _check_same(bundle, settings.name, public_key)
        return False
    if public_key is not None:
        secrets.read_public_key(public_key)
        secrets.write_new(bundle.public(settings.name), public_key.read_bytes())
    else:
        secrets.make_device_key(bundle.key, bundle.public(settings.name), settings.name)
    os.chmod(bundle.root, 0o700)
    secrets.write_new(bundle.ca, ca.read_bytes())
    secrets.write_new(bundle.unit, units.DEVICE.encode())
    # Last: a bundle with settings is whole.
    secrets.write_new(bundle.settings, _settings_text(settings).encode())
    return True


def _check_same(bundle: Bundle, name: str, public_key: Path | None) -> None:
    if public_key is None:
        return
    ours = secrets.read_public_key(bundle.public(name))
    if ours != secrets.read_public_key(public_key):
        remedy = f"A name stays with its key. Another name, or move {bundle.root} away first."
        raise complain("public key", f"that of the bundle of {name}", Phrase(str(public_key)), remedy)


def _settings_text(settings: DeviceSettings) -> str:
    node = "".join(f"{key} = {_toml(value)}\n" for key, value in settings.node.items())
    return _TEXT.format(name=_toml(settings.name), server=_toml(settings.server), node=node)


def _toml(value: Value) -> str:
    return json.dumps(value) if isinstance(value, str | bool) else repr(value)


def numbered(amount: int, prefix: str = "device") -> list[str]:
    """Return names for so many devices, that sort as they are numbered.

    Parameters
    ----------
    amount : int
        How many.
    prefix : str
        Before the number.
    """
    if not 0 < amount <= 100_000:
        raise complain("devices", "a number from 1 to 100,000, or names", amount if amount else NOTHING)
    width = len(str(amount))
    return [f"{prefix}-{k:0{width}d}" for k in range(1, amount + 1)]
