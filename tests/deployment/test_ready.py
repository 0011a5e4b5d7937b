"""Client processes that are forked from one that has loaded everything; here what they do is not Flower's."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import flwr.supernode.cli
import pytest
from flwr.supernode import start_client_internal

from flwr_mel.deployment import ready
from flwr_mel.deployment.supernode import Pace
from flwr_mel.deployment.supernode import main as supernode_main
from tests.waiting import PATIENCE_S, wait_for

# Stands for the SuperNode: starts what is tested and has tasks done until its input ends.
SUPERNODE = """
import os, sys
from flwr_mel.deployment import ready
print(ready.stand_in(os.environ["PATH"], "mel_client:run"), flush=True)
sys.stdin.read()
"""
# Stands for Flower's client.
CLIENT = """
import json, os, random, sys, time
from pathlib import Path

def run():
    what, *words = sys.argv[1:]
    import numpy
    told = {"words": words, "env": os.environ.get("MEL_TEST"), "cwd": os.getcwd(), "pid": os.getpid(),
            "parent": os.getppid(), "numpy": numpy.random.random(), "python": random.random(),
            "sklearn": "sklearn" in sys.modules}
    print(json.dumps(told), flush=True)
    if what == "raise":
        raise RuntimeError("no such data")
    if what == "wait":
        time.sleep(999)
    if what == "use":
        import sklearn
    sys.exit(int(what) if what.isdigit() else 0)
"""


@pytest.fixture
def supernode(tmp_path):
    (tmp_path / "mel_client.py").write_text(CLIENT)
    (tmp_path / "sklearn.py").touch()
    real = tmp_path / "bin" / ready.PROGRAM
    real.parent.mkdir()
    real.write_text("#!/bin/sh\necho Flower itself: $*\nexit 7\n")
    real.chmod(0o755)
    env = os.environ | {"PYTHONPATH": str(tmp_path), "PATH": f"{real.parent}{os.pathsep}{os.environ['PATH']}"}
    words = [sys.executable, "-c", SUPERNODE]
    process = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    path = process.stdout.readline().strip()
    place = Path(path.partition(os.pathsep)[0])
    yield Supernode(process, place, env | {"PATH": path})
    process.stdin.close()
    process.stdout.close()
    process.wait(PATIENCE_S)
    shutil.rmtree(place, ignore_errors=True)  # one test kills who would do that


class Supernode:
    def __init__(self, process, place, env):
        self.process, self.place, self.env = process, place, env

    def begin(self, *words, **more):
        return subprocess.Popen(
            [ready.PROGRAM, *words],
            env=self.env | more,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def task(self, *words, **more):
        process = self.begin(*words, **more)
        out, err = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out, err

    def ready(self):
        wait_for((self.place / "s").exists)
        return self


def test_tasks_are_done_by_children_of_one_process_with_their_own_words(supernode, tmp_path):
    code, first, _ = supernode.ready().task("0", "a b", "--c", MEL_TEST="here")
    assert code == 0
    first = json.loads(first)
    assert first["words"] == ["a b", "--c"]
    assert first["env"] == "here"
    assert first["cwd"] == os.getcwd()
    second = json.loads(supernode.task("0")[1])
    assert second["parent"] == first["parent"]
    assert second["pid"] != first["pid"]
    assert second["env"] is None
    # One state of the generators for all messages would draw the same batches in every cycle.
    assert first["numpy"] != second["numpy"]
    assert first["python"] != second["python"]


def test_how_a_child_ends_is_how_the_program_ends(supernode):
    assert supernode.ready().task("3")[0] == 3
    code, _, err = supernode.task("raise")
    assert code == 1
    assert "RuntimeError: no such data" in err
    process = supernode.begin("wait")
    child = json.loads(process.stdout.readline())["pid"]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_a_task_whose_caller_is_ended_before_it_begins_is_not_done(supernode, tmp_path):
    """Signals are handed on from the moment on at which the child begins: none is lost."""
    supernode.ready()
    out = tmp_path / "out"
    told = json.dumps([["wait"], dict(os.environ), str(tmp_path)]).encode()
    with out.open("wb") as file, socket.socket(socket.AF_UNIX) as link:
        link.connect(str(supernode.place / "s"))
        socket.send_fds(link, [len(told).to_bytes(4, "big")], 3 * [file.fileno()])
        link.sendall(told)
        child = int.from_bytes(link.recv(4, socket.MSG_WAITALL), "big")
        os.kill(child, 0)

    def gone():
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return True
        return False

    wait_for(gone)
    assert out.read_bytes() == b""


def test_what_an_app_used_is_loaded_for_the_next(supernode):
    """torch takes seconds to load; the app's own modules are never kept."""
    assert not json.loads(supernode.ready().task("use")[1])["sklearn"]
    wait_for(lambda: json.loads(supernode.task("0")[1])["sklearn"])


def test_a_task_whose_child_ends_before_it_begins_is_flowers(supernode):
    """One byte comes back then, the exit code, which is no process id."""
    supernode.ready()
    (supernode.place / "s").unlink()
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(supernode.place / "s"))
        door.listen()
        process = supernode.begin("--token", "x")
        link, _ = door.accept()
        with link:
            link.sendall(bytes([137]))
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (7, "Flower itself: --token x\n")


def test_an_app_that_brings_its_own_libraries_is_started_by_flower(supernode):
    """What is loaded here may be another version of them."""
    words = ("--token", "x", "--allow-runtime-dependency-installation")
    assert supernode.ready().task(*words)[:2] == (7, f"Flower itself: {' '.join(words)}\n")


def test_without_the_process_the_program_is_flowers_own(supernode):
    code, out, _ = supernode.ready().task("0")
    assert code == 0
    os.kill(json.loads(out)["parent"], signal.SIGKILL)
    wait_for(lambda: supernode.task("--token", "x")[:2] == (7, "Flower itself: --token x\n"))


def test_the_process_ends_with_the_supernode_and_leaves_nothing(supernode):
    parent = json.loads(supernode.ready().task("0")[1])["parent"]
    supernode.process.kill()
    supernode.process.wait()

    def gone():
        try:
            os.kill(parent, 0)
        except ProcessLookupError:
            return not supernode.place.exists()

    wait_for(gone)


def test_where_there_can_be_none_the_path_stays(monkeypatch, tmp_path):
    assert ready.stand_in(str(tmp_path)) == str(tmp_path)  # no Flower there
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    with monkeypatch.context() as read_only:
        read_only.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
        assert ready.stand_in(os.environ["PATH"]) == os.environ["PATH"]
    monkeypatch.setattr(sys, "executable", "/opt/my python/bin/python")
    assert ready.stand_in(os.environ["PATH"]) == os.environ["PATH"]


@pytest.mark.parametrize(("said", "path"), [(None, "in front:usual"), ("0", "usual")])
def test_forks_can_be_left_out(monkeypatch, said, path):
    """Where memory is scarce. The SuperNode itself is started in the tests of the fleet."""
    found = []
    monkeypatch.setattr(flwr.supernode.cli, "flower_supernode", lambda: found.append(os.environ["PATH"]))
    monkeypatch.setattr(start_client_internal, "time", time)
    monkeypatch.setattr(ready, "stand_in", lambda usual: f"in front:{usual}")
    monkeypatch.setenv("PATH", "usual")
    monkeypatch.delenv("FLWR_MEL_FORK", raising=False)
    if said:
        monkeypatch.setenv("FLWR_MEL_FORK", said)
    supernode_main()
    assert found == [path]
    assert isinstance(start_client_internal.time, Pace)


def test_looks_follow_after_a_tenth_of_the_time_waited(monkeypatch):
    now, slept = [100.0], []

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", sleep)
    pace = Pace()
    while now[0] < 200:
        pace.sleep(3)
    assert slept[0] == 0.1
    assert slept == sorted(slept)
    assert slept[-1] == 3
    assert all(each <= max(0.1, 0.1 * sum(slept[:k])) + 1e-9 for k, each in enumerate(slept))
    pace.sleep(0.5)  # a message came: Flower waits for its reply
    pace.sleep(3)
    assert slept[-2:] == [0.1, 0.1]
    assert pace.time is time.time
