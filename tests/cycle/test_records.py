"""Records, their file, and the callback that stops."""

import json
import math
import resource

import pytest

from flwr_mel import JsonlWriter, Stopping, read_jsonl
from flwr_mel.records import CycleRecord, LearnerRecord, Outcome


@pytest.fixture
def records():
    row = LearnerRecord("0", "1000", Outcome.USED, epochs=2, samples=60, time_s=0.5, share=1.0)
    skipped = LearnerRecord("1", "1001", reason="it did not answer")
    times = {"cycle_time_s": 1.0, "makespan_s": 0.5, "waited_s": 0.7}
    return [CycleRecord(n, **times, learners=[row, skipped], notes=["a note"]) for n in range(1, 5)]


def written(path, records):
    writer = JsonlWriter(path)
    for record in records:
        writer(record)
    return writer


def test_records_come_back_as_they_were(tmp_path, records):
    records[0].metrics = {"loss": 0.5, "accuracy": math.nan}
    records[1].bound = math.inf
    written(tmp_path / "deep" / "run.jsonl", records)
    found = list(read_jsonl(tmp_path / "deep" / "run.jsonl"))
    assert found[1:] == records[1:]
    assert math.isnan(found[0].metrics.pop("accuracy"))
    assert found[0].learners == records[0].learners
    assert found[1].bound == math.inf


def test_lines_are_plain_json(tmp_path, records):
    written(tmp_path / "run.jsonl", records)
    for line in (tmp_path / "run.jsonl").read_text().splitlines():
        data = json.loads(line, parse_constant=pytest.fail)
        assert data["learners"][0]["outcome"] in set(Outcome)


def test_a_file_is_continued_and_a_cut_line_dropped(tmp_path, records):
    path = tmp_path / "run.jsonl"
    written(path, records[:2])
    with path.open("a") as file:
        file.write('{"cycle": 3, "lear')
    assert [r.cycle for r in read_jsonl(path)] == [1, 2]
    written(path, records[2:])
    assert [r.cycle for r in read_jsonl(path)] == [1, 2, 3, 4]


def test_a_resumed_training_repeats_no_line(tmp_path, records):
    path = tmp_path / "run.jsonl"
    written(path, records).resume(2)
    assert [r.cycle for r in read_jsonl(path)] == [1, 2]


def test_a_full_disk_leaves_no_half_line(tmp_path, records):
    path = tmp_path / "run.jsonl"
    writer = written(path, records[:1])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, hard))
    try:
        with pytest.raises(OSError, match=r"File too large: '.*run\.jsonl'"):
            writer(records[1])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    writer(records[1])
    assert [record.cycle for record in read_jsonl(path)] == [1, 2]
    assert "run.jsonl" in repr(writer)  # named when a callback fails


def test_other_files_stay_untouched(tmp_path):
    path = tmp_path / "notes.txt"
    for text in ("dear diary\nsecond line\n", "one line only"):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"cycle records, got .*notes\.txt"):
            JsonlWriter(path)
        assert path.read_text() == text
    with pytest.raises(ValueError, match="can be written"):
        JsonlWriter(tmp_path)


DAMAGE = [b"nonsense", b"\xff\x00\xfe", b"{}", b"[1]", b'{"cycle": 2, "lear', b"7", b'{"cycle": {}}']


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_line_costs_that_line(tmp_path, records, damage, caplog):
    """For the reader, and for a writer that continues the file."""
    path = tmp_path / "run.jsonl"
    written(path, records[:3])
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([lines[0], damage, lines[2], b""]))
    assert [record.cycle for record in read_jsonl(path)] == [1, 3]
    assert caplog.text.count(f"{path}, line 2 is left out, as it is damaged: ") == 1
    written(path, records[3:])
    assert caplog.text.count(f"{path}, line 2 is damaged: it stays as it is") == 1
    assert path.read_bytes().splitlines()[:3] == [lines[0], damage, lines[2]]
    assert [record.cycle for record in read_jsonl(path)] == [1, 3, 4]


def test_a_resumed_training_repeats_no_line_behind_a_damaged_one(tmp_path, records):
    path = tmp_path / "run.jsonl"
    written(path, records)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1] + b"?\n" + lines[2] + b"?\n" + lines[3] + b"?\n")
    JsonlWriter(path).resume(2)
    assert path.read_bytes() == lines[0] + lines[1] + b"?\n"


def test_a_last_line_without_its_end_is_kept_if_it_is_whole(tmp_path, records):
    path = tmp_path / "run.jsonl"
    written(path, records[:2])
    path.write_bytes(path.read_bytes().rstrip())  # as an editor may leave it
    written(path, records[2:3])
    assert [record.cycle for record in read_jsonl(path)] == [1, 2, 3]
    path.write_bytes(path.read_bytes() + b"\0\0\0")  # as a power cut may leave it
    written(path, records[3:])
    assert [record.cycle for record in read_jsonl(path)] == [1, 2, 3, 4]


def test_another_process_cuts_nothing_before_it_writes(tmp_path, records):
    """It may be about to find that the checkpoints are locked by the one that is writing."""
    path = tmp_path / "run.jsonl"
    written(path, records[:1])
    with path.open("ab") as file:
        file.write(b'{"cycle": 2, ')
    before = path.read_bytes()
    JsonlWriter(path)
    assert path.read_bytes() == before


def test_a_file_without_a_readable_record_is_an_error(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text("nonsense\nmore\n")
    with pytest.raises(ValueError, match=r"run\.jsonl, line 1"):
        list(read_jsonl(path))


def accuracies(*values, **more):
    return [CycleRecord(n, metrics={"accuracy": x}, **more) for n, x in enumerate(values, start=1)]


def stops(stopping, records):
    return [bool(stopping(record)) for record in records]


def test_stopping():
    assert stops(Stopping(), accuracies(0.1, 0.9)) == [False, False]
    assert stops(Stopping(target=0.8), accuracies(0.1, math.nan, 0.8)) == [False, False, True]
    assert stops(Stopping(target=0.2, mode="min"), accuracies(0.5, 0.1)) == [False, True]
    assert stops(Stopping(cycles=2), accuracies(0.1, 0.2)) == [False, True]
    assert stops(Stopping(patience=2), accuracies(0.5, 0.4, 0.5)) == [False, False, True]
    assert stops(Stopping(time_s=3.0), accuracies(0.1, clock_s=3.0)) == [True]
    assert stops(Stopping(energy_j=3.0), accuracies(0.1, total_energy_j=2.9)) == [False]
    assert stops(Stopping(energy_j=2.9), accuracies(0.1, total_energy_j=2.9)) == [True]
    assert stops(Stopping(target=1, metric="loss"), accuracies(2.0)) == [False]


def test_stopping_resumes():
    stopping = Stopping(patience=2)
    stops(stopping, accuracies(0.5, 0.4))
    again = Stopping(patience=2)
    again.restore(json.loads(json.dumps(stopping.snapshot())))
    assert again(accuracies(0.5, 0.4, 0.45)[2])


@pytest.mark.parametrize("wrong", [{"mode": "up"}, {"cycles": 0}, {"target": "x"}, {"patience": 0.5}])
def test_stopping_that_cannot_be(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Stopping(**wrong)
