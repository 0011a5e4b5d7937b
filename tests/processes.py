"""End what was started, with everything that it started in turn."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

_ENDINGS = (signal.SIGTERM, signal.SIGHUP)


class Seen(NamedTuple):
    """A process, told from a later one of the same number by when it began."""

    pid: int
    parent: int
    began: str
    state: str


@contextmanager
def orderly() -> Iterator[None]:
    """Let SIGTERM, or a terminal that closes, end the block as Ctrl-C does, so that it can clean up."""
    with _signals(_interrupt, *_ENDINGS):
        yield


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore signals during the block, which cleans up."""
    with _signals(signal.SIG_IGN, signal.SIGINT, *_ENDINGS):
        yield


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


@contextmanager
def _signals(handler: Any, *numbers: signal.Signals) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # others cannot
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def end(process: subprocess.Popen[bytes], patience_s: float = 4.0, *, politely: bool = True) -> None:
    """End a process and everything it started, politely first.

    Flower and Ray put their own children into sessions of their own, so the process group is not enough: the
    tree is looked up before its processes end and orphans lose their parent.

    Parameters
    ----------
    process : subprocess.Popen
        Started with start_new_session.
    patience_s : float
        How long each of the two attempts may take.
    politely : bool
        False: no process has anything left to do.
    """
    end_all(tree(process.pid), process, patience_s, politely=politely)


def end_all(
    family: set[Seen],
    process: subprocess.Popen[bytes] | None = None,
    patience_s: float = 4.0,
    *,
    politely: bool = True,
) -> None:
    """End processes and everything they started, politely first.

    Parameters
    ----------
    family : set of Seen
        The processes.
    process : subprocess.Popen, optional
        The head of a process group that is to end as a whole.
    patience_s : float
        How long each of the two attempts may take.
    politely : bool
        False: no process has anything left to do.
    """
    for how in (signal.SIGTERM if politely else signal.SIGKILL, signal.SIGKILL):
        # Of the living only: the number of a dead one may belong to another process by now.
        family |= {child for old in _alive(family) for child in tree(old.pid)}
        if process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, how)
        for old in _alive(family):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(old.pid, how)
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            if (process is None or process.poll() is not None) and not _alive(family):
                return
            time.sleep(0.05)


def with_environment(name: str, value: str) -> set[Seen]:
    """Return our processes that have an environment variable of that value, whoever started them.

    Parameters
    ----------
    name, value : str
        Of the variable.
    """
    wanted, found = f"{name}={value}".encode(), set()
    for each in _processes().values():
        with suppress(OSError):
            if wanted in Path(f"/proc/{each.pid}/environ").read_bytes().split(b"\0"):
                found.add(each)
    return found


def tree(pid: int) -> set[Seen]:
    """Return a process and its descendants; nothing where there is no /proc.

    Parameters
    ----------
    pid : int
        The ancestor.
    """
    processes = _processes()
    children: dict[int, list[int]] = {}
    for each in processes.values():
        children.setdefault(each.parent, []).append(each.pid)
    found: set[Seen] = set()
    pending = [pid] if pid in processes else []
    while pending:
        each = processes[pending.pop()]
        found.add(each)
        pending += children.get(each.pid, [])
    return found


def _alive(family: set[Seen]) -> list[Seen]:
    now = _processes()
    return [p for p in family if p.pid in now and now[p.pid].began == p.began and now[p.pid].state != "Z"]


def _processes() -> dict[int, Seen]:
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError):
            # The name in parentheses may hold anything; the state, the parent and so on come after it.
            rest = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            pid = int(path.parent.name)
            found[pid] = Seen(pid, int(rest[1]), rest[19], rest[0])
    return found
