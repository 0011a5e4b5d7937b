"""Real writers, real watchers."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest

from flwr_mel.cli.watch.place import Place
from flwr_mel.records import JsonlWriter
from tests.cli.tools import run
from tests.cli.watch.tools import cycle, line
from tests.waiting import PATIENCE_S

PROGRAM = [sys.executable, "-m", "flwr_mel.cli", "watch"]


@contextlib.contextmanager
def watching(*args, **kwargs):
    """Start a watcher; its lines come as they are written."""
    process = subprocess.Popen(
        [*PROGRAM, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def ended(process):
    # Not communicate(), which forgets what readline() has read ahead.
    out, err = process.stdout.read(), process.stderr.read()
    process.wait(PATIENCE_S)
    assert "Traceback" not in err
    return process.returncode, out, err


WRITER = """
import sys
import types
from pathlib import Path
from tests.cli.watch.tools import cycle
from flwr_mel.cli.watch.place import Place
from flwr_mel.records import JsonlWriter
from tests.cli.tools import run
write = JsonlWriter(sys.argv[1])
for n in range(1, 5):
    write(cycle(n, stopped="target reached" if n == 4 else ""))
    if n == 1:
        sys.stdin.readline()
"""


def writer(path):
    """Write the first cycle, and the others when a line comes in."""
    root = Path(__file__).parents[3]
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], cwd=root, stdin=subprocess.PIPE, text=True
    )


def test_a_watcher_follows_a_writer_and_ends_with_it(tmp_path):
    path = tmp_path / "new" / "mel.jsonl"
    with watching(path, "-v") as process:
        # Only now is there a run at all.
        assert "waiting for" in process.stderr.readline()
        with writer(path) as job:
            first = process.stdout.readline()
            assert first.startswith("cycle 1: 3 of 3 learners used, accuracy 10.00 %")
            # A cycle is shown while the job goes on.
            job.stdin.write("go on\n")
            job.stdin.flush()
            code, out, err = ended(process)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:3] == [f"  phone-{k}: 3 epochs, {812 + k} samples, limited by energy" for k in range(3)]
    assert [text.split(":")[0] for text in lines if text.startswith("cycle")] == [
        "cycle 2",
        "cycle 3",
        "cycle 4",
    ]
    assert lines[-1] == "stopped after cycle 4: target reached"


def test_json_gives_the_records_back(tmp_path):
    path, records = tmp_path / "r.jsonl", [cycle(1), cycle(2, bound=float("inf")), cycle(3, stopped="enough")]
    for record in records:
        JsonlWriter(path)(record)
    with watching(path, "--json") as process:
        code, out, err = ended(process)
    assert (code, err) == (0, "note: stopped after cycle 3: enough\n")
    assert out.encode() == path.read_bytes()


def test_a_resume_is_followed_and_nothing_is_written_twice(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_bytes(b"".join(line(cycle(n)) for n in range(1, 5)))
    with watching(tmp_path, "--json") as process:
        before = [json.loads(process.stdout.readline())["cycle"] for _ in range(4)]
        new = tmp_path / "new"
        new.write_bytes(b"".join(line(cycle(n)) for n in (1, 2)))
        os.replace(new, path)
        assert "read again" in process.stderr.readline()
        with path.open("ab") as file:
            file.write(b"oops\n")
        JsonlWriter(path)(cycle(3, accuracy=0.9, stopped="done"))
        code, out, err = ended(process)
    assert (code, before) == (0, [1, 2, 3, 4])
    (again,) = map(json.loads, out.splitlines())
    assert (again["cycle"], again["metrics"]["accuracy"]) == (3, 0.9)
    assert "line 3 is no cycle record" in err


def test_a_run_directory_ends_with_its_summary(tmp_path):
    def told(name, **facts):
        (tmp_path / name).write_text(json.dumps(facts))

    JsonlWriter(tmp_path / "records.jsonl")(cycle(1))
    told("summary.json", cycles=1)
    told("config.json", config={"cycles": 2})
    # A summary of the part before it was resumed: older than the configuration, and a cycle short.
    os.utime(tmp_path / "summary.json", (1, 1))
    with watching(tmp_path) as process:
        assert process.stdout.readline().startswith("cycle 1 of 2")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.5)
        JsonlWriter(tmp_path / "records.jsonl")(cycle(2))
        assert process.stdout.readline().startswith("cycle 2 of 2")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.5)
        told("summary.json", cycles=2)
        code, out, _ = ended(process)
    assert (code, out) == (0, "finished: 2 cycles done\n")


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_signals_end_it_quietly(tmp_path, sent, code):
    JsonlWriter(tmp_path / "r.jsonl")(cycle(1))
    with watching(tmp_path / "r.jsonl") as process:
        process.stdout.readline()
        process.send_signal(sent)
        assert ended(process) == (code, "", "")


def test_it_sleeps_between_looks(tmp_path, monkeypatch):
    """It has all its time between looks on a clock of its own; the run ends during the fifth sleep."""
    path, looks, slept = tmp_path / "r.jsonl", [], []
    JsonlWriter(path)(cycle(1))
    look = Place.poll
    monkeypatch.setattr(Place, "poll", lambda self: looks.append(self) or look(self))

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 5:
            JsonlWriter(path)(cycle(2, stopped="done"))

    clock = types.SimpleNamespace(sleep=sleep, monotonic=lambda: sum(slept))
    monkeypatch.setattr("flwr_mel.cli.watch.command.time", clock)
    assert "stopped after cycle 2: done" in run("watch", path).output
    assert len(looks) == 6
    assert slept == [0.5] * 5


def test_watching_needs_no_training_stack(tmp_path):
    JsonlWriter(tmp_path / "r.jsonl")(cycle(1))
    code = f"""
import sys
from flwr_mel.cli import main
sys.argv = ["flwr-mel", "watch", {str(tmp_path / "r.jsonl")!r}, "--once"]
try:
    main()
except SystemExit as stop:
    assert not stop.code
print("LOADED", *sorted({{name.split(".")[0] for name in sys.modules}}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=PATIENCE_S
    )
    text, _, names = done.stdout.partition("LOADED")
    assert text.startswith("cycle 1")
    assert not set(names.split()) & {"torch", "ray", "flwr", "mel_simulation", "matplotlib"}
