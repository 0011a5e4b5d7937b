"""Processes that stay: one per directory, in the background or supervised, ended in order."""

from __future__ import annotations

import fcntl
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from flwr_mel._processes import end, end_all, orderly, tree, undisturbed
from flwr_mel._text import printable

Commands = Mapping[str, tuple[Sequence[str], Mapping[str, str]]]
#: Seconds between a process's end and its next start.
_PAUSE_S = 5.0
_LOOK_S = 0.2
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
#: Whoever looks who holds a lock holds it, too, for a moment.
_TRIES = 3


class Taken(RuntimeError):
    """Somebody holds the lock already."""


def hold(lock: Path, *, past_exec: bool = False) -> int:
    """Hold a lock for as long as this process lives, with its process id in it; return the file's handle.

    Parameters
    ----------
    lock : Path
        The file.
    past_exec : bool
        Whether what this process becomes by `exec` holds it on.
    """
    handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    for left in reversed(range(_TRIES)):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError:
            if not left:
                os.close(handle)
                raise Taken(str(lock)) from None
            time.sleep(_LOOK_S)
    os.truncate(handle, 0)
    os.pwrite(handle, str(os.getpid()).encode(), 0)
    os.set_inheritable(handle, past_exec)
    return handle


def holder(lock: Path) -> int | None:
    """Return the process that holds a lock; None if nobody does."""
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except OSError:
        with suppress(ValueError, OSError):
            return int(lock.read_text(encoding="ascii"))
    return None


def stop_holder(lock: Path, patience_s: float = 60.0) -> bool:
    """End the process that holds a lock, politely first, and what it leaves; return whether there was one.

    Parameters
    ----------
    lock : Path
        The file.
    patience_s : float
        After which it is killed.
    """
    pid = holder(lock)
    if pid is None:
        return False
    give_up, family = time.monotonic() + patience_s, tree(pid)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    while holder(lock) == pid:
        if time.monotonic() > give_up:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_S)
    end_all(family)
    return True


def environment(home: Path) -> dict[str, str]:
    """Return the environment for Flower's programs, which start helpers by name.

    Parameters
    ----------
    home : Path
        Where Flower keeps its files, unless FLWR_HOME says otherwise.
    """
    path = os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]
    )
    defaults = {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        # How often Flower's helper looks for work: a second by default.
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25",
    }
    env = {**defaults, **os.environ, "PATH": path}
    if not _is_compiled("flwr"):
        # Flower starts a process per message, which would compile all of it again: that takes longer than
        # all else. What Python compiles is kept here, wherever it is not kept by itself.
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        env.setdefault("PYTHONPYCACHEPREFIX", str(home / "pycache"))
    return env


def _is_compiled(package: str) -> bool:
    """Whether a package came compiled, as pip leaves it and other installers do not."""
    spec = find_spec(package)
    return spec is not None and spec.cached is not None and Path(spec.cached).is_file()


def ourselves(*words: object) -> list[str]:
    """Return the command line of one of our own commands."""
    return [sys.executable, "-m", "flwr_mel.cli", *map(str, words)]


def detached(
    command: Sequence[str], log: Path, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process that outlives us, with its words in a file."""
    with log.open("ab") as file:
        return subprocess.Popen(
            list(command),
            env=None if env is None else dict(env),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


def last_words(log: str, most: int = 3) -> str:
    """Return what a program complained about last, in one line; else its last lines.

    Parameters
    ----------
    log : str
        What it said.
    most : int
        Lines.
    """
    lines = [" ".join(_COLOURS.sub("", line).split()) for line in log.splitlines() if line.strip()]
    wrong = [k for k, line in enumerate(lines) if line.lower().startswith("error")]
    shown = lines[wrong[-1] :][:most] if wrong else lines[-most:]
    return printable(" / ".join(shown)) or "it said nothing"


def port_is_free(host: str, port: int) -> bool:
    """Whether nobody listens there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Return a port of the loopback that is free, from below those that outgoing connections get."""
    draw = random.SystemRandom()
    while True:
        if port_is_free("127.0.0.1", port := draw.randrange(10_000, 32_000)):
            return port


def keep(commands: Commands, ready: Callable[[], bool], when_ready: Callable[[], None], cwd: Path) -> str:
    """Run programs until we are told to end; return "" then, or who ended before all were ready.

    After that, who ends is started again.

    Parameters
    ----------
    commands : mapping
        From names to command lines and environments.
    ready : callable
        Whether they do what they are for.
    when_ready : callable
        Called once.
    cwd : Path
        Where they run.
    """
    running: dict[str, subprocess.Popen[bytes]] = {}

    def start(name: str) -> None:
        words, env = commands[name]
        running[name] = subprocess.Popen(
            list(words), env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, start_new_session=True
        )

    well = False
    try:
        with orderly():
            for name in commands:
                start(name)
            while True:
                for name in [name for name, process in running.items() if process.poll() is not None]:
                    if not well:
                        return name
                    time.sleep(_PAUSE_S)
                    start(name)
                if not well and ready():
                    well = True
                    when_ready()
                time.sleep(_LOOK_S)
    except KeyboardInterrupt:
        return ""
    finally:
        with undisturbed():
            for process in reversed(running.values()):
                end(process, patience_s=10.0)
