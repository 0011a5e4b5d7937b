"""End what was started, with everything that it started in turn."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class Seen(NamedTuple):
    """A process, told from a later one of the same number by when it began."""

    pid: int
    parent: int
    began: str
    state: str


def end(process: subprocess.Popen[str], patience_s: float = 4.0) -> None:
    """End a process and everything it started, politely first.

    Flower and Ray put their own children into sessions of their own, so the process group is not enough: the
    tree is looked up before its processes end and orphans lose their parent.

    Parameters
    ----------
    process : subprocess.Popen
        Started with start_new_session.
    patience_s : float
        How long each of the two attempts may take.
    """
    family = tree(process.pid)
    for how in (signal.SIGTERM, signal.SIGKILL):
        # Of the living only: the number of a dead one may belong to another process by now.
        family |= {child for old in _alive(family) for child in tree(old.pid)}
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, how)
        for old in _alive(family):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(old.pid, how)
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            if process.poll() is not None and not _alive(family):
                return
            time.sleep(0.05)


def tree(pid: int) -> set[Seen]:
    """Return a process and its descendants; nothing where there is no /proc."""
    processes = _processes()
    found: set[Seen] = set()
    pending = [pid] if pid in processes else []
    while pending:
        each = processes[pending.pop()]
        found.add(each)
        pending += [child.pid for child in processes.values() if child.parent == each.pid]
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
