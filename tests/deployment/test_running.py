"""Processes that stay: who holds a directory, who is started again, who is ended. No Flower here."""

import py_compile
import signal
import socket
import subprocess
import sys
import threading

import pytest

from flwr_mel.deployment import running
from tests.waiting import PATIENCE_S, wait_for

HOLDER = """
import os, subprocess, sys, time
from pathlib import Path
from flwr_mel.deployment.running import hold
hold(Path(sys.argv[1]), past_exec=True)
child = "import signal as s, time; s.signal(s.SIGTERM, s.SIG_IGN); print('up', flush=True); time.sleep(999)"
helper = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE, start_new_session=True)
helper.stdout.readline()
Path(sys.argv[1] + ".helper").write_text(str(helper.pid))
os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(999)"])
"""


def gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_lock_is_held_past_exec_and_its_holder_is_ended_with_what_it_leaves(tmp_path):
    lock, helper = tmp_path / "lock", tmp_path / "lock.helper"
    assert running.holder(lock) is None
    assert not running.stop_holder(lock)
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(lock)])
    wait_for(lambda: helper.exists() and helper.read_text())
    assert running.holder(lock) == process.pid
    with pytest.raises(running.Taken):
        running.hold(lock)
    reaper = threading.Thread(target=process.wait, args=(PATIENCE_S,))
    reaper.start()
    assert running.stop_holder(lock)
    reaper.join()
    assert running.holder(lock) is None
    wait_for(lambda: gone(int(helper.read_text())))


KEEPER = """
import os, sys
from pathlib import Path
from flwr_mel.deployment import running
running._PAUSE_S = 0.0
root = Path(sys.argv[1])
code = "import os, sys, time; open(sys.argv[1], 'a').write(f'{os.getpid()}\\\\n'); time.sleep(999)"
commands = {name: ([sys.executable, "-c", code, str(root / name)], os.environ) for name in ("a", "b")}
up = lambda: all((root / name).exists() and (root / name).read_text().endswith("\\n") for name in commands)
print("ended:", running.keep(commands, up, lambda: (root / "ready").touch(), root), flush=True)
"""


def started(path):
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_who_ends_is_started_again_and_all_end_with_the_keeper(tmp_path):
    keeper = subprocess.Popen(
        [sys.executable, "-c", KEEPER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    wait_for((tmp_path / "ready").exists)
    (a,), (b,) = started(tmp_path / "a"), started(tmp_path / "b")
    subprocess.run(["kill", "-9", str(a)], check=True)
    wait_for(lambda: len(started(tmp_path / "a")) == 2)
    assert started(tmp_path / "b") == [b]
    keeper.send_signal(signal.SIGTERM)
    assert keeper.communicate(timeout=PATIENCE_S)[0] == "ended: \n"
    assert all(gone(pid) for name in "ab" for pid in started(tmp_path / name))


def test_who_ends_before_all_are_ready_is_named(tmp_path):
    codes = {"a": "import time; time.sleep(999)", "b": "raise SystemExit(3)"}
    commands = {name: ([sys.executable, "-c", code], {}) for name, code in codes.items()}
    assert running.keep(commands, lambda: False, pytest.fail, tmp_path) == "b"


def test_last_words_are_what_went_wrong():
    log = (
        "\x1b[92mINFO \x1b[0m: hi\n\n\x1b[91mERROR \x1b[0m:  Exit Code: 305\n Failed.\n [code: 2004] No.\nbye"
    )
    assert running.last_words(log) == "ERROR : Exit Code: 305 / Failed. / [code: 2004] No."
    assert running.last_words("a\nb\nc\nd\n") == "b / c / d"
    assert running.last_words("") == "it said nothing"


def test_ports():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert not running.port_is_free("127.0.0.1", taken.getsockname()[1])
    assert running.port_is_free("127.0.0.1", running.free_port())


@pytest.mark.parametrize("compiled", [True, False])
def test_what_python_compiles_is_kept(monkeypatch, tmp_path, compiled):
    """Flower starts a process per message, and each would compile Flower again where nobody keeps that."""
    package = tmp_path / "lib" / "flwr"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "lib")])
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.delitem(sys.modules, "flwr", raising=False)
    if compiled:
        py_compile.compile(str(package / "__init__.py"))
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    env = running.environment(tmp_path / "home")
    assert env.get("PYTHONPYCACHEPREFIX") == (None if compiled else str(tmp_path / "home" / "pycache"))
    assert ("PYTHONDONTWRITEBYTECODE" in env) == compiled
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", "/elsewhere")
    assert running.environment(tmp_path / "home")["PYTHONPYCACHEPREFIX"] == "/elsewhere"
