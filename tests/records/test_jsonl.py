"""The file of records when a training goes on."""

import json

import pytest

from flwr_mel.records import JsonlWriter, read_jsonl
from tests.checkpoint.tools import (
    record,
)


def test_a_writer_drops_the_surplus_and_nothing_else(tmp_path):
    writer = JsonlWriter(tmp_path / "r.jsonl")
    writer(record(7))  # another training's
    for cycle in (1, 2):
        writer(record(cycle))
    kept = writer.snapshot()
    for cycle in (3, 4):
        writer(record(cycle))
    writer.restore(kept, [record(1), record(2)])
    assert [r.cycle for r in read_jsonl(writer.path)] == [7, 1, 2]
    writer.restore(kept, [record(1), record(2)])
    assert [r.cycle for r in read_jsonl(writer.path)] == [7, 1, 2]


def test_a_new_or_lost_file_gets_all_cycles_and_a_strange_one_is_refused(tmp_path):
    records = [record(1), record(2)]
    for snapshot in ({}, {"bytes": 10**6}):
        path = tmp_path / f"{len(snapshot)}.jsonl"
        JsonlWriter(path).restore(snapshot, records)
        assert [json.loads(line) for line in path.read_text().splitlines()] == [r.as_dict() for r in records]
        size = path.stat().st_size
        for odd in (
            {},
            {"bytes": size - 1},
            {"bytes": size + 1},
            {"bytes": path.read_bytes().index(b"\n") + 1},
        ):
            with pytest.raises(ValueError, match="the file that the resumed training wrote, or a new one"):
                JsonlWriter(path).restore(odd, records)
        assert path.stat().st_size == size
