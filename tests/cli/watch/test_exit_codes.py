"""What `flwr-mel watch` says of what is there, and how it ends."""

import os
import threading

from flwr_mel.records import JsonlWriter
from tests.cli.tools import run
from tests.cli.watch.tools import cycle, line
from tests.waiting import PATIENCE_S


def test_once_shows_what_is_there(tmp_path):
    JsonlWriter(tmp_path / "records.jsonl")(cycle(1))
    JsonlWriter(tmp_path / "records.jsonl")(cycle(2))
    by_directory = run("watch", tmp_path, "--once").stdout
    assert [text.split(":")[0] for text in by_directory.splitlines()] == ["cycle 1", "cycle 2"]
    assert run("watch", tmp_path / "records.jsonl", "--once").stdout == by_directory


def test_what_cannot_be_a_run(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "page.html").write_text("<html>\n</html>\n")
    (tmp_path / "nothing.jsonl").write_text("")
    for age, name in enumerate(["new", "old"]):
        JsonlWriter(tmp_path / "runs" / name / "records.jsonl")(cycle(1))
        os.utime(tmp_path / "runs" / name / "records.jsonl", (1000 - age, 1000 - age))
    os.mkfifo(tmp_path / "pipe")
    cases = {
        ("empty", "--once"): "has no records.jsonl",
        ("empty", "--wait", 0.1): "after 0.1 s",
        ("missing", "--wait", 0): "is not there",
        ("nothing.jsonl", "--once"): "no finished cycle",
        ("page.html",): "line 1 is none",
        ("runs",): f"The newest is {tmp_path / 'runs' / 'new'}",
        ("pipe",): "regular file",
        ("empty", "--wait", -1): "--wait must be a finite number >= 0, got -1",
    }
    for (name, *options), words in cases.items():
        result = run("watch", tmp_path / name, *options, code=2)
        assert words in result.stderr, (name, result.stderr)
        assert result.stdout == ""
    inside = run("watch", tmp_path / "page.html" / "inside", code=4)
    assert "Not a directory" in inside.stderr


def test_once_can_wait(tmp_path):
    late = threading.Timer(0.8, lambda: JsonlWriter(tmp_path / "records.jsonl")(cycle(1)))
    late.start()
    assert run("watch", tmp_path, "--once", "--wait", PATIENCE_S).stdout.startswith("cycle 1")
    late.join()


def test_many_bad_lines_are_counted(tmp_path):
    (tmp_path / "r.jsonl").write_bytes(line(cycle(1)) + b"oops\n" * 50)
    said = run("watch", tmp_path / "r.jsonl", "--once").stderr.splitlines()
    assert len(said) == 4
    assert "47 more lines" in said[-1]
