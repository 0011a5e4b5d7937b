"""Client processes that have loaded everything before their message comes.

Flower starts ``flwr-clientapp`` for every message, and every one of them loads Flower and the app's libraries
anew: seconds, on a small device half a minute, after which Flower refuses it. Here one process per device
loads them once and forks for each message, as `multiprocessing` does. It stands in by name: a program called
``flwr-clientapp``, first on the PATH, hands its words, environment and output over by a socket. Where nobody
answers there, that program becomes Flower's own.

Everything else is as in a process of its own: the app is loaded anew for each message, numpy's global
generator is seeded anew, and the exit code is the child's.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree, which
from typing import Any

#: What is called for every message, and what stands in for it.
PROGRAM = "flwr-clientapp"
_WORK = "flwr.supernode.cli:flwr_clientapp"
_INSTALLS = "--allow-runtime-dependency-installation"
#: What a child waits for: whoever ended its caller before that has ended the task.
_GO = b"g"
#: Loaded once an app has used them: people fork after loading these every day (`multiprocessing`).
_FORKED_EVERY_DAY = ("numpy", "scipy", "sklearn", "pandas", "torch", "torchvision")
#: Seconds between two looks whether the SuperNode is still there.
_LOOK_S = 2.0
# A longer first line, or one with a space in it, is not understood by every system.
_LONGEST_FIRST_LINE = 120

_STAND_IN = '''#!{python} -IS
"""Hands one task of Flower to a process that has loaded everything (flwr_mel.deployment.ready)."""
import json
import os
import signal
import socket
import sys

link = socket.socket(socket.AF_UNIX)
try:
    if {installs!r} in sys.argv:  # it brings libraries of its own, perhaps of other versions
        raise OSError
    link.connect({socket!r})
    told = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
    socket.send_fds(link, [len(told).to_bytes(4, "big")], [0, 1, 2])
    link.sendall(told)
    said = link.recv(4, socket.MSG_WAITALL)
    number = int.from_bytes(said, "big") if len(said) == 4 else 0  # one byte: it ended before it began
except OSError:
    number = 0
if not number:
    os.execv({real!r}, [{real!r}, *sys.argv[1:]])
for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(each, lambda which, frame: os.kill(number, which))
try:
    link.sendall({go!r})  # from here on signals are the child's: it has waited for that
except OSError:
    pass  # it has ended
code = link.recv(1)
sys.exit(code[0] if code else 1)
'''


def stand_in(path: str, work: str = _WORK) -> str:
    """Start the process that forks, which ends when this one does; return the PATH with the stand-in first.

    Where there can be none, all stays as Flower has it.

    Parameters
    ----------
    path : str
        The SuperNode's PATH.
    work : str
        MODULE:FUNCTION that does a task, with its words in `sys.argv`.
    """
    real = which(PROGRAM, path=path)
    first_line = len(sys.executable) <= _LONGEST_FIRST_LINE and " " not in sys.executable
    if real is None or not first_line or not hasattr(os, "fork"):
        return path
    try:
        place = Path(tempfile.mkdtemp(prefix="mel-device-"))
    except OSError:  # nowhere to write
        return path
    program = place / PROGRAM
    door = str(place / "s")  # short: the system allows about a hundred characters
    told = {"python": sys.executable, "socket": door, "real": real, "installs": _INSTALLS, "go": _GO}
    program.write_text(_STAND_IN.format(**told), encoding="utf-8")
    program.chmod(stat.S_IRWXU)
    words = [sys.executable, "-m", "flwr_mel.deployment.ready", str(place), str(os.getpid()), work]
    subprocess.Popen(words, stdin=subprocess.DEVNULL)
    return os.pathsep.join([str(place), path])


def serve(door: socket.socket, parent: int, work: Callable[[], Any]) -> None:
    """Fork for every task until the parent is gone; a child returns from here when its work is done.

    Parameters
    ----------
    door : socket
        Where tasks come in.
    parent : int
        Process id of the SuperNode.
    work : callable
        What a child does.
    """
    learnt, tell = os.pipe()
    alarm, wake = os.pipe()
    for end in (alarm, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    children: dict[int, socket.socket] = {}
    watched: list[Any] = [door, learnt, alarm]
    while os.getppid() == parent:
        ready, _, _ = select.select(watched, [], [], _LOOK_S)
        if alarm in ready:
            os.read(alarm, 4096)
            _reap(children)
        if learnt in ready:
            _load(os.read(learnt, 4096).decode().split())
        if door in ready:
            link, _ = door.accept()
            number = os.fork()
            if not number:
                for other in (door, *children.values()):
                    other.close()
                _do(work, link, tell)
                return
            children[number] = link


def _do(work: Callable[[], Any], link: socket.socket, tell: int) -> None:
    """Do one task, in the child, and tell which libraries it used."""
    signal.set_wakeup_fd(-1)
    for each in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(each, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if _become(link):
        try:
            work()
        finally:
            used = [name for name in _FORKED_EVERY_DAY if name in sys.modules]
            with suppress(OSError):
                os.write(tell, " ".join([*used, ""]).encode())


def _become(link: socket.socket) -> bool:
    """Take over words, environment, directory and output of whoever called; False if he is gone."""
    size, handles, _, _ = socket.recv_fds(link, 4, 3)
    told = link.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL) if len(handles) == 3 else b""
    try:
        words, env, directory = json.loads(told)
        os.chdir(directory)
    except (ValueError, OSError):
        return False
    for number, handle in enumerate(handles):
        os.dup2(handle, number)
        os.close(handle)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = [PROGRAM, *words]
    if "numpy" in sys.modules:  # Python's own generator does that by itself, torch begins at one seed anyway
        import_module("numpy").random.seed()
    link.sendall(os.getpid().to_bytes(4, "big"))
    return link.recv(1) == _GO


def _reap(children: dict[int, socket.socket]) -> None:
    """Tell callers how their children ended."""
    while children:
        try:
            number, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not number:
            return
        code = os.waitstatus_to_exitcode(status)
        if number in children:  # a library that is loaded here may have children of its own
            with suppress(OSError), children.pop(number) as link:
                link.sendall(bytes([code if code >= 0 else 128 - code]))


def _load(names: list[str]) -> None:
    """Load what an app has used, so that the next one finds it loaded."""
    for name in names:
        if name not in sys.modules and find_spec(name) is not None:
            with suppress(Exception):  # the app tells it better
                import_module(name)


def main() -> None:
    """Load what does the work, then wait for tasks."""
    place, parent, work = sys.argv[1:]
    module, _, name = work.partition(":")
    ourselves = os.getpid()
    door = socket.socket(socket.AF_UNIX)
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: sys.exit(0))
    try:
        # Who comes before all is loaded waits here: to load it once more beside us would take longer.
        door.bind(str(Path(place, "s")))
        door.listen(16)
        import_module("flwr_mel.clientapp")
        serve(door, int(parent), getattr(import_module(module), name))
    finally:
        if os.getpid() == ourselves:
            rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
