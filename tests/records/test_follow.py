"""Following a file of records while somebody writes it."""

import os
import shutil

import pytest

from flwr_mel.records import JsonlWriter
from flwr_mel.records.follow import Damage, Entry, Follower, History, Restart
from tests.cli.watch.tools import cycle, line


def seen(follower):
    """Cycles, damages and restarts in few letters."""
    names = {Damage: "damage", Restart: "restart"}
    return [
        (e.record.cycle if not e.again else -e.record.cycle) if isinstance(e, Entry) else names[type(e)]
        for e in follower.poll()
    ]


def test_a_file_may_come_late_and_grow(tmp_path):
    follower = Follower(tmp_path / "later" / "records.jsonl")
    assert seen(follower) == []
    write = JsonlWriter(follower.path)
    assert seen(follower) == []
    write(cycle(1))
    write(cycle(2))
    assert seen(follower) == [1, 2]
    assert seen(follower) == []
    write(cycle(3))
    assert seen(follower) == [3]
    follower.path.unlink()
    assert seen(follower) == []


@pytest.mark.parametrize("cut", [1, 200, -2])
def test_half_a_line_waits_for_its_end(tmp_path, cut):
    path, whole = tmp_path / "r.jsonl", line(cycle(2))
    path.write_bytes(line(cycle(1)) + whole[:cut])
    follower = Follower(path)
    assert seen(follower) == [1]
    with path.open("ab") as file:
        file.write(whole[cut:])
    assert seen(follower) == [2]


def test_a_whole_record_without_its_line_end_is_shown_once(tmp_path):
    path, whole = tmp_path / "r.jsonl", line(cycle(2))
    path.write_bytes(line(cycle(1)) + whole[:-1])
    follower = Follower(path)
    assert seen(follower) == [1, 2]
    with path.open("ab") as file:
        file.write(b"\n" + line(cycle(3)))
    assert seen(follower) == [3]


def test_a_crash_leaves_half_a_line_that_the_next_writer_drops(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(line(cycle(1)) + line(cycle(2))[:300])
    follower = Follower(path)
    assert seen(follower) == [1]
    JsonlWriter(path)(cycle(2, accuracy=0.5))
    assert seen(follower) == [2]


@pytest.mark.parametrize("replace", [True, False], ids=["replaced", "in place"])
def test_a_resumed_run_takes_cycles_back(tmp_path, replace):
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"".join(line(cycle(n)) for n in range(1, 9)))
    follower = Follower(path)
    assert seen(follower) == list(range(1, 9))
    # Longer than before by the next look, and other cycles at the same place.
    content = b"".join(line(cycle(n, accuracy=0.1 if n > 5 else None)) for n in range(1, 12))
    if replace:
        (tmp_path / "new").write_bytes(content)
        os.replace(tmp_path / "new", path)
    else:
        path.write_bytes(content)
    assert seen(follower) == ["restart", -1, -2, -3, -4, -5, 6, 7, 8, 9, 10, 11]
    path.write_bytes(b"")
    assert seen(follower) == ["restart"]


def test_a_replacement_with_the_same_content_is_nothing_new(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(line(cycle(1)) + line(cycle(2)))
    follower = Follower(path)
    assert seen(follower) == [1, 2]
    shutil.copy(path, tmp_path / "copy")
    os.replace(tmp_path / "copy", path)
    assert seen(follower) == []
    JsonlWriter(path)(cycle(3))
    assert seen(follower) == [3]


BAD = {
    "no JSON": b"oops",
    "no object": b"[1, 2]",
    "no learners": b'{"cycle": 2, "cycle_time_s": 10, "metrics": {}}',
    "an unknown field": line(cycle(2)).replace(b'"staleness"', b'"stale"'),
    "a word for a cycle": line(cycle(2)).replace(b'"cycle": 2', b'"cycle": "two"'),
    "half an epoch": line(cycle(2)).replace(b'"epochs": 3', b'"epochs": 3.5'),
    "metrics in a list": line(cycle(2, metrics={})).replace(b'"metrics": {}', b'"metrics": []'),
    "a word for a metric": line(cycle(2)).replace(b'"accuracy": 0.2', b'"accuracy": "good"'),
    "a note that is none": line(cycle(2)).replace(b'"notes": []', b'"notes": [7]'),
    "an unknown outcome": line(cycle(2)).replace(b'"used"', b'"lost"'),
    "a name that is none": line(cycle(2)).replace(b'"phone-1"', b"null"),
    "no text": b"\xff\xfe",
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_bad_lines_are_named_and_skipped(tmp_path, bad):
    path = tmp_path / "r.jsonl"
    path.write_bytes(line(cycle(1)) + b"\n" + bad.rstrip() + b"\n" + line(cycle(3)))
    first, damage, last = Follower(path).poll()
    assert (first.record.cycle, last.record.cycle) == (1, 3)
    assert damage.line == 3
    assert damage.why
    assert "line 3" in str(damage)


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="regular file"):
        list(Follower(tmp_path / "pipe").poll())


def test_the_later_record_of_a_cycle_counts():
    history = History()
    for n, accuracy in [(1, 0.1), (2, 0.2), (3, 0.3), (2, 0.25)]:
        history.add(cycle(n, accuracy=accuracy))
    assert history.last.cycle == 2
    assert [m["accuracy"] for m in history.metrics.values()] == [0.1, 0.25]
    history.add(cycle(3, accuracy=0.35))
    assert list(history.metrics) == [1, 2, 3]
