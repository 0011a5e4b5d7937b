"""A callback that raises does not end training, and neither memory nor checkpoints grow with the cycles."""

import json
import logging
import resource

import pytest

from flwr_mel import wire
from flwr_mel.checkpoint import Checkpoints
from flwr_mel.orchestrator import Orchestrator, Settings
from flwr_mel.records import CycleRecord, JsonlWriter, read_jsonl
from tests.strategies.fleet import Fleet, words


def fleet(k=3):
    return Fleet({node: words(str(node)) for node in range(1, k + 1)})


class Broken:
    def __call__(self, record):
        if record.cycle == 2:
            raise RuntimeError("no disk")


def test_a_callback_that_raises_is_logged_and_noted_and_training_goes_on(start, caplog):
    told = []

    def about_it(record):
        return [note for note in record.notes if "callback" in note]

    training = start(fleet(), callbacks=[Broken(), lambda record: told.append(about_it(record))])
    caplog.set_level(logging.ERROR, "flwr.mel")
    for cycle in (1, 2, 3, 4):
        assert training.cycle(cycle) == {1, 2, 3}
    text = "callback Broken failed in cycle 2: RuntimeError: no disk"
    assert told == [[], [text], [text], []]
    assert [about_it(r) for r in training.strategy.records] == told
    assert caplog.text.count(text) == 1
    assert training.strategy.orchestrator.state.cycles_done == 4


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_who_wants_to_stop_the_program_still_can(start, end):
    def leave(record):
        raise end

    training = start(fleet(), callbacks=[leave])
    with pytest.raises(end):
        training.cycle(1)


def test_records_are_a_window(start):
    told = []
    training = start(fleet(), keep_records=3, callbacks=[lambda record: told.append(record.cycle)])
    for cycle in range(1, 8):
        training.cycle(cycle)
    assert [r.cycle for r in training.strategy.records] == [5, 6, 7]
    assert told == list(range(1, 8))
    with pytest.raises(ValueError, match="keep_records must be"):
        start(fleet(), keep_records=0)


def test_checkpoints_and_memory_do_not_grow_with_the_cycles(start, tmp_path):
    training = start(fleet(), keep_records=5, checkpoints=Checkpoints(tmp_path, keep=100))
    for cycle in range(1, 41):
        training.cycle(cycle)
    sizes = [file.stat().st_size for file in Checkpoints(tmp_path).files()[::-1]]
    assert max(sizes[6:]) < 1.05 * min(sizes[6:])
    assert len(training.strategy._keeper.checkpoints._lines) == 5
    found = Checkpoints(tmp_path).load()
    assert (found.cycle, [r.cycle for r in found.records]) == (40, [36, 37, 38, 39, 40])


def test_a_resumed_training_has_the_window_and_the_whole_count(start, tmp_path):
    def training():
        return start(
            fleet(), keep_records=2, checkpoints=tmp_path / "c", callbacks=[JsonlWriter(tmp_path / "r.jsonl")]
        )

    first = training()
    for cycle in range(1, 5):
        first.cycle(cycle)
    rest = training()
    rest.strategy._keeper.resume(rest.model)
    assert [r.cycle for r in rest.strategy.records] == [3, 4]
    assert rest.strategy.orchestrator.cycle_of(1) == 5
    rest.cycle(1)
    assert [r.cycle for r in rest.strategy.records] == [4, 5]
    assert [r.cycle for r in read_jsonl(tmp_path / "r.jsonl")] == [1, 2, 3, 4, 5]


def test_what_a_full_disk_did_not_take_is_written_later(start, tmp_path):
    """Half a line must not spoil the next, and no cycle may be missing once there is room again."""
    path = tmp_path / "r.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def disk(record):
        full = 2 <= record.cycle <= 4
        limit = path.stat().st_size + 100 if full else soft
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))

    training = start(fleet(), callbacks=[disk, JsonlWriter(path)])
    try:
        for cycle in range(1, 4):
            training.cycle(cycle)
        assert [json.loads(line)["cycle"] for line in path.read_text().splitlines()] == [1]
        training.cycle(4)
        training.cycle(5)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [r.cycle for r in read_jsonl(path)] == [1, 2, 3, 4, 5]
    assert "cycles 2 to 3 are held back" in training.strategy.records[2].notes[-1]


def test_a_checkpoint_written_while_lines_were_held_back_is_good_to_go_on_from(tmp_path):
    path = tmp_path / "r.jsonl"
    records = [CycleRecord(cycle, 1.0) for cycle in (1, 2, 3)]
    writer = JsonlWriter(path)
    writer(records[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, hard))
    try:
        for record in records[1:]:
            with pytest.raises(OSError, match="held back"):
                writer(record)
        snapshot = writer.snapshot()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    JsonlWriter(path).restore(snapshot, records)
    assert [r.cycle for r in read_jsonl(path)] == [1, 2, 3]


def test_a_file_of_records_is_not_read_whole_to_be_continued(tmp_path, monkeypatch):
    path = tmp_path / "r.jsonl"
    line = json.dumps(CycleRecord(1, 1.0, notes=["x" * 5000]).as_dict()) + "\n"
    path.write_text(line * 2000 + line[:100])
    monkeypatch.setattr("pathlib.Path.read_bytes", None)
    monkeypatch.setattr("pathlib.Path.read_text", None)
    JsonlWriter(path)
    assert path.stat().st_size == len(line) * 2000


def test_the_orchestrator_keeps_a_hundred_records_by_default():
    brain = Orchestrator(Settings(cycle_time_s=10.0, total_samples=10))
    brain.hear("1", {**words("1"), wire.MAX_SAMPLES: 10})
    for cycle in range(1, 131):
        brain.plan(cycle, ["1"])
        brain.close()
    assert [r.cycle for r in brain.records] == list(range(31, 131))
