"""What is looked at on a device before it takes part. Each check is a function that returns findings."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from http.client import HTTPException, HTTPResponse
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from flwr_mel._text import message, printable

#: Seconds that the network is given.
PATIENCE_S = 5.0
#: Flower gives a client process so long to ask for its work; one that starts more slowly is refused for ever.
START_LIMIT_S = 30.0
#: It refuses a device whose clock is 5 s ahead of the server's, or 305 s behind; rounding costs a second.
MOST_AHEAD_S, MOST_BEHIND_S = 4.0, 300.0
_DAY_S = 86_400.0
_LEAST_DISK = 1 << 28
# What Flower starts for every message, as far as it is the same for all.
_CLIENT = (
    "from importlib.metadata import entry_points; "
    "[x.load() for x in entry_points(group='console_scripts', name='flwr-clientapp')]"
)
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Health(StrEnum):
    """How it is."""

    GOOD = "good"
    DOUBT = "doubt"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Parameters
    ----------
    what : str
        What was looked at.
    health : Health
        How it is.
    detail : str
        What was seen.
    remedy : str
        What to do about it; empty if it is good.
    """

    what: str
    health: Health
    detail: str
    remedy: str = ""


def good(what: str, detail: str) -> Finding:
    """Return a finding that needs nothing."""
    return Finding(what, Health.GOOD, detail)


def bad(what: str, detail: str, remedy: str) -> Finding:
    """Return a finding with which the device cannot take part."""
    return Finding(what, Health.BAD, printable(detail), remedy)


def doubt(what: str, detail: str, remedy: str) -> Finding:
    """Return a finding with which the device can take part, but perhaps not well."""
    return Finding(what, Health.DOUBT, printable(detail), remedy)


def software() -> Iterator[Finding]:
    """Look at Python and the packages."""
    python = ".".join(map(str, sys.version_info[:3]))
    found = [f"Python {python}"]
    for name in ("flwr", "flwr-mel", "numpy"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            yield bad("software", f"{name} is not installed", "pip install flwr-mel")
            return
    if shutil.which("flower-supernode", path=_path()) is None:
        yield bad("software", "flower-supernode is not on the PATH", "Activate the environment of flwr-mel.")
        return
    yield good("software", ", ".join(found))


def _path() -> str:
    """Return where commands are looked for: first beside this Python."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def key_file(path: Path) -> Iterator[Finding]:
    """Look at the device's private key.

    Parameters
    ----------
    path : Path
        In the bundle: device.key.
    """
    what = "key"
    try:
        text, mode = path.read_text(encoding="utf-8", errors="replace"), path.stat().st_mode
    except OSError as error:
        yield bad(what, f"{path}: {message(error)}", "Make one (flwr-mel device key) and register its .pub.")
        return
    if "PRIVATE KEY" not in text[:64]:
        yield bad(what, f"{path} is no private key", "Give the file without .pub.")
        return
    if stat.S_IMODE(mode) & 0o077:
        yield doubt(what, f"{path} can be read by other users", f"chmod 600 {path}")
        return
    yield good(what, f"{path}, readable by its owner alone")


def server(host: str, port: int, ca: Path) -> Iterator[Finding]:
    """Look at name, port, TLS and the clock.

    Parameters
    ----------
    host, port : str, int
        Of the SuperLink.
    ca : Path
        The authority's certificate.
    """
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        yield bad("name", f"{host}: {message(error)}", "Check the name, /etc/hosts and the resolver.")
        return
    yield good("name", f"{host} is {addresses[0][4][0]}")
    try:
        raw = socket.create_connection((host, port), timeout=PATIENCE_S)
    except OSError as error:
        yield bad(
            "port", f"{host}:{port}: {message(error)}", "Is the SuperLink running? Is a firewall between?"
        )
        return
    with raw:
        yield good("port", f"{host}:{port} answers")
        yield from _tls(raw, host, ca)


def _tls(raw: socket.socket, host: str, ca: Path) -> Iterator[Finding]:
    try:
        context = ssl.create_default_context(cafile=str(ca))
    except (OSError, ssl.SSLError) as error:
        yield bad("TLS", f"{ca}: {message(error)}", "Copy ca.pem from the server's directory.")
        return
    try:
        with context.wrap_socket(raw, server_hostname=host) as secured:
            certificate = secured.getpeercert() or {}
            kind = secured.version() or "TLS"
            told = _date(secured, host)
    except ssl.SSLCertVerificationError as error:
        late = "not yet valid" in error.verify_message or "expired" in error.verify_message
        remedy = (
            f"Check the clock: here it is {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} UTC."
            if late
            else "Copy ca.pem from the server; its certificate must name this host (flwr-mel server up)."
        )
        yield bad("TLS", f"{host}: {error.verify_message}", remedy)
        return
    except OSError as error:
        yield bad("TLS", f"{host}: {message(error)}", "Does the SuperLink serve TLS at this port?")
        return
    left_s = ssl.cert_time_to_seconds(str(certificate["notAfter"])) - time.time()
    if left_s < 30 * _DAY_S:
        days = int(left_s / _DAY_S)
        yield doubt("TLS", f"the server's certificate ends in {days} days", "Make a new one in time.")
        return
    yield good("TLS", f"{kind}, the certificate is valid for {int(left_s / _DAY_S)} days")
    yield from clock(told)


def _date(secured: ssl.SSLSocket, host: str) -> str:
    """Ask a server of the web what time it is; "" if it does not say."""
    with suppress(OSError, HTTPException):
        secured.sendall(f"HEAD / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        response = HTTPResponse(secured, method="HEAD")
        response.begin()
        return response.getheader("Date", "")
    return ""


def clock(told: str) -> Iterator[Finding]:
    """Compare the clocks: Flower signs with the time, and refuses who is ahead, or far behind.

    Parameters
    ----------
    told : str
        The server's time, as HTTP has it.
    """
    remedy = "Set the clock by the network: timedatectl set-ntp true"
    try:
        ahead = time.time() - parsedate_to_datetime(told).timestamp()
    except ValueError:
        yield doubt("clock", "the server does not tell the time", "Is it the server of flwr-mel?")
        return
    words = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the server"
    if ahead > MOST_AHEAD_S or ahead < -MOST_BEHIND_S:
        yield bad("clock", f"{words}, which refuses it", remedy)
    elif ahead < -MOST_BEHIND_S / 5:
        yield doubt("clock", words, remedy)
    else:
        yield good("clock", words)


def data(path: Path | None) -> Iterator[Finding]:
    """Look at the device's own data.

    Parameters
    ----------
    path : Path or None
        The data directory; None: none was given.
    """
    if path is None:
        return
    try:
        files = [entry for entry in path.iterdir() if entry.is_file()]
        size = sum(entry.stat().st_size for entry in files)
    except OSError as error:
        yield bad("data", f"{path}: {message(error)}", "Check data-dir.")
        return
    if not size:
        yield bad("data", f"{path} holds no data", "Put the device's data there, or correct data-dir.")
        return
    yield good("data", f"{path}: {len(files)} files, {size / 1e6:,.1f} MB")


def profile(path: Path | None) -> Iterator[Finding]:
    """Look at a profile file.

    Parameters
    ----------
    path : Path or None
        See `flwr-mel profile`; None: none was given, and the device times itself.
    """
    if path is None:
        return
    from flwr_mel.profiling.files import read_profile  # noqa: PLC0415

    try:
        words = read_profile(path).words()
    except (ValueError, OSError) as error:
        yield bad("profile", message(error), "Measure again: flwr-mel profile --out FILE")
        return
    yield good("profile", f"{path}: {', '.join(sorted(words))}")


def start_up(modules: Sequence[str], env: Mapping[str, str]) -> Iterator[Finding]:
    """Time how long a client process takes until it could ask for work.

    Parameters
    ----------
    modules : sequence of str
        What the app imports beside Flower.
    env : mapping
        The environment in which the device works.
    """
    names = ", ".join(["flwr.clientapp", "flwr_mel.clientapp", *modules])
    command = [sys.executable, "-c", f"{_CLIENT}; import {names}"]
    done, seconds = _timed(command, env)
    if seconds > START_LIMIT_S / 2:  # the first one may have had to compile what it imports
        done, seconds = _timed(command, env)
    if done is not None and done.returncode:
        last = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
        yield bad("start-up", f"a client process fails: {last}", "Install what the app imports.")
        return
    words = f"a client process is ready after {seconds:.1f} s"
    remedy = (
        f"Flower refuses one that takes more than {START_LIMIT_S:.0f} s: import less, or use a faster disk."
    )
    if seconds > START_LIMIT_S:
        yield bad("start-up", words, remedy)
    elif seconds > START_LIMIT_S / 2:
        yield doubt("start-up", words, remedy)
    else:
        yield good("start-up", words)


def _timed(
    command: Sequence[str], env: Mapping[str, str]
) -> tuple[subprocess.CompletedProcess[str] | None, float]:
    """Run a command; return what came of it, None if it does not end, and the seconds."""
    start, done = time.monotonic(), None
    with suppress(subprocess.TimeoutExpired):
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=4 * START_LIMIT_S, check=False
        )
    return done, time.monotonic() - start


def load(env: Mapping[str, str]) -> Iterator[Finding]:
    """Look at what else the processor does, and at the threads of numerical libraries.

    Parameters
    ----------
    env : mapping
        The environment in which the device works.
    """
    cores = os.cpu_count() or 1
    busy = os.getloadavg()[0]
    words = f"load {busy:.1f} on {cores} cores"
    if busy > cores:
        yield doubt("load", words, "What is measured now is slower than the device; end other work first.")
    else:
        yield good("load", words)
    threads = {name: env[name] for name in _THREADS if name in env}
    said = ", ".join(f"{name}={value}" for name, value in threads.items()) or "as many as cores"
    if threads.get("OMP_NUM_THREADS") == "1" or cores == 1:
        yield good("threads", said)
    else:
        yield doubt("threads", said, "Devices start with OMP_NUM_THREADS=1: measure with the same.")


def disk(path: Path) -> Iterator[Finding]:
    """Look at the room that is left.

    Parameters
    ----------
    path : Path
        Where Flower keeps its files.
    """
    here = path
    while not here.exists() and here != here.parent:
        here = here.parent
    free = shutil.disk_usage(here).free
    words = f"{free / 1e9:,.1f} GB free at {here}"
    if free < _LEAST_DISK:
        yield bad("disk", words, "Free some space, or set FLWR_HOME to another place.")
    else:
        yield good("disk", words)
