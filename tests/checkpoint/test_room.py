"""A directory that cannot take what is to be kept is told before any training."""

import resource

import pytest

from flwr_mel._files import check_room
from flwr_mel.checkpoint import Checkpoints
from flwr_mel.records import JsonlWriter
from tests.checkpoint.tools import APIS


def test_more_than_any_disk_has(tmp_path):
    with pytest.raises(OSError, match=r"No space left on device: .* MB are free, .* MB are needed") as error:
        check_room(tmp_path / "new", 1 << 70)
    assert error.value.filename == str(tmp_path / "new")
    check_room(tmp_path / "new", 10)
    assert list((tmp_path / "new").iterdir()) == []


def test_a_disk_that_takes_nothing(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match="File too large") as error:
            check_room(tmp_path, 1000)
        with pytest.raises(ValueError, match="JsonlWriter's path must be a file that can be written"):
            JsonlWriter(tmp_path / "r.jsonl")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert error.value.filename == str(tmp_path)
    assert str(error.value) == f"[Errno 27] File too large: {str(tmp_path)!r}"


def test_a_file_of_records_that_cannot_be_one(tmp_path):
    (tmp_path / "taken").write_text("")
    for path in (tmp_path / "taken" / "r.jsonl", tmp_path):
        with pytest.raises(ValueError, match="JsonlWriter's path must be a file that can be written"):
            JsonlWriter(path)


@APIS
def test_a_run_whose_checkpoints_do_not_fit_does_not_begin(tmp_path, api):
    began = []
    training = api(checkpoints=Checkpoints(tmp_path, keep=2**40), callbacks=[began.append])
    with pytest.raises(ValueError, match=r"checkpoints must be a directory that takes the model, .* times"):
        training.run()
    assert began == []
    api(checkpoints=tmp_path).run(1)
