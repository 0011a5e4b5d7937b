"""systemd: the server and a device as services, without privileges and on a read-only system."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from flwr_mel._validate import Phrase, complain

#: Where units are put.
UNITS = Path("/etc/systemd/system")
#: Is there where systemd runs the machine (sd_booted).
_BOOTED = Path("/run/systemd/system")
USER = "flwr-mel"
SERVER_NAME = "flwr-mel-server.service"
DEVICE_FILE = "flwr-mel-device.service"

_HARDENING = """Type=exec
User=flwr-mel
Group=flwr-mel
Restart=always
KillMode=control-group

NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
RestrictSUIDSGID=yes
RestrictRealtime=yes
RestrictNamespaces=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
LockPersonality=yes
CapabilityBoundingSet=
SystemCallArchitectures=native
SystemCallFilter=@system-service
UMask=0077

[Install]
WantedBy=multi-user.target
"""
SERVER = f"""# The server: SuperLink and proxy. Put in place by: flwr-mel server up
[Unit]
Description=Server of flwr-mel
After=network-online.target
Wants=network-online.target

[Service]
ExecStart=@PYTHON@ -m flwr_mel.cli server up @DIRECTORY@ --run foreground
Environment=HOME=@DIRECTORY@/state
ReadWritePaths=@DIRECTORY@
RestartSec=5
TimeoutStopSec=60
{_HARDENING}"""
DEVICE = f"""# A device. Put in place by: flwr-mel device start (which fills in @PYTHON@ and @DIRECTORY@)
[Unit]
Description=Device of flwr-mel
After=network-online.target
Wants=network-online.target
# After a crash the server takes the key back only once it has seen the old connection go, a minute or so:
# never give up.
StartLimitIntervalSec=0

[Service]
ExecStart=@PYTHON@ -m flwr_mel.cli device start @DIRECTORY@ --run foreground
Environment=HOME=@DIRECTORY@
ReadWritePaths=@DIRECTORY@
RestartSec=10
TimeoutStopSec=20
{_HARDENING}"""


def can_install() -> bool:
    """Whether services can be put in place: as root, where systemd runs the machine."""
    return os.geteuid() == 0 and _BOOTED.is_dir()


def filled(unit: str, directory: Path) -> str:
    """Return a unit with its paths.

    Parameters
    ----------
    unit : str
        With @PYTHON@ and @DIRECTORY@.
    directory : Path
        The server's or the device's.
    """
    paths = {"@PYTHON@": sys.executable, "@DIRECTORY@": str(directory)}
    for place, path in paths.items():
        if any(sign.isspace() or sign in "%$\"'\\;" for sign in path):
            raise complain(
                "directory", "a path without spaces, quotes, % and $", path, "systemd takes no other."
            )
        unit = unit.replace(place, path)
    return unit


def install(name: str, text: str, directory: Path, place: Path = UNITS) -> None:
    """Put a service in place, with a user of its own, and start it, now and at every boot.

    Parameters
    ----------
    name : str
        Of the unit.
    text : str
        The unit.
    directory : Path
        Becomes the user's.
    place : Path
        Where units are.
    """
    path = place / name
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise complain("unit", "not there yet, or the same", Phrase(str(path)), "Move it away first.")
    path.write_text(text, encoding="utf-8")
    if subprocess.run(["id", USER], capture_output=True, check=False).returncode:
        _call("useradd", "--system", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin", USER)
    _call("chown", "-R", f"{USER}:", str(directory))
    _call("systemctl", "daemon-reload")
    _call("systemctl", "enable", name)
    _call("systemctl", "restart", name)


def remove(name: str, place: Path = UNITS) -> bool:
    """Stop a service and take it away; return whether there was one.

    Parameters
    ----------
    name : str
        Of the unit.
    place : Path
        Where units are.
    """
    path = place / name
    if not path.exists():
        return False
    _call("systemctl", "disable", "--now", name)
    path.unlink()
    _call("systemctl", "daemon-reload")
    return True


def is_active(name: str) -> bool:
    """Whether systemd runs a service, or tries to."""
    if shutil.which("systemctl") is None:
        return False
    done = subprocess.run(["systemctl", "is-active", name], capture_output=True, text=True, check=False)
    return done.stdout.strip() in ("active", "activating")


def journal(name: str, since_s: float) -> str:
    """Return what a service said.

    Parameters
    ----------
    name : str
        Of the unit.
    since_s : float
        Since when, in seconds since 1970.
    """
    words = ["journalctl", "--unit", name, "--output", "cat", "--since", f"@{int(since_s)}"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def _call(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        what = Phrase(" ".join([*words, "said:", done.stderr.strip() or f"exit code {done.returncode}"]))
        raise complain("service", "one that systemd starts", what) from OSError()
