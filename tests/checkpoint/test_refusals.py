"""What is damaged, newer or of another training is refused, and the one before is used."""

import shutil
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flwr_mel.checkpoint import Checkpoints, files
from tests.checkpoint.tools import checkpoint, names, same


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two checkpoints and the bytes of the newer one."""
    store = Checkpoints(tmp_path_factory.mktemp("two"))
    store.save(checkpoint(1))
    return store, store.save(checkpoint(2)).read_bytes()


def falls_back(store, content, caplog):
    """Put `content` in the newer one's place: it is refused, and the older one is used."""
    path = store.directory / "mel-00000002.ckpt"
    path.write_bytes(content)
    caplog.clear()
    found = store.load({"seed": 3})
    assert found.cycle == 1
    assert same(found.model, checkpoint(1).model)
    assert [r.cycle for r in found.records] == [1]
    assert not path.exists()
    assert path.with_name("mel-00000002.ckpt.refused").read_bytes() == content
    return caplog.text


QUICK = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@QUICK
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_anywhere_is_refused(two, caplog, where, bit):
    store, content = two
    broken = bytearray(content)
    broken[int(where * len(broken))] ^= 1 << bit
    assert "mel-00000002.ckpt is refused: it " in falls_back(store, bytes(broken), caplog)


def test_a_flipped_bit_in_the_first_line_is_refused(two, caplog):
    store, content = two
    for place in range(content.index(b"\n") + 1):
        for bit in range(8):
            broken = bytearray(content)
            broken[place] ^= 1 << bit
            falls_back(store, bytes(broken), caplog)


@QUICK
@given(where=st.floats(0, 1, exclude_max=True), more=st.binary(max_size=3))
def test_a_cut_or_longer_file_is_refused(two, caplog, where, more):
    store, content = two
    falls_back(store, content[: int(where * len(content))], caplog)
    falls_back(store, content + b"\0" + more, caplog)


def test_a_newer_format_is_refused_by_name(two, caplog):
    store, content = two
    said = falls_back(store, content.replace(b"checkpoint 1 ", b"checkpoint 12 ", 1), caplog)
    assert "it has format 12, of a newer flwr_mel; this one reads up to 1" in said
    said = falls_back(store, content.replace(b"checkpoint 1 ", b"checkpoint 0 ", 1), caplog)
    assert "unknown format 0" in said


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ([1, 2], "it cannot be read: there is no dictionary in it"),
        ({"cycle": 2, "fingerprint": {}}, "it cannot be read: KeyError: 'records'"),
        ({"cycle": 2, "fingerprint": {}, "records": b"no gzip"}, "it cannot be read: BadGzipFile"),
        ({"cycle": 2, "fingerprint": {}, "records": b""}, "it lacks model, "),
        ({"cycle": "2", "fingerprint": {}, "records": b""}, "it cannot be read: ValueError"),
    ],
)
def test_a_whole_file_with_other_content_is_refused(two, tmp_path, caplog, content, reason):
    files.write(tmp_path / "odd", content)
    assert reason in falls_back(two[0], (tmp_path / "odd").read_bytes(), caplog)


def test_a_link_in_a_checkpoints_place_is_not_followed(tmp_path):
    store = Checkpoints(tmp_path / "here")
    kept = Checkpoints(tmp_path / "there").save(checkpoint(2))
    store.save(checkpoint(1))
    (store.directory / kept.name).symlink_to(kept)
    assert store.load({"seed": 3}).cycle == 1
    with pytest.raises(files.Refused, match="it cannot be opened"):
        files.read(store.directory / f"{kept.name}.refused")


def test_another_training_is_refused(two, tmp_path, caplog):
    store, _ = two
    other = Checkpoints(tmp_path)
    cases = {
        "seed was 4, is now 3": {"seed": 4},
        "mode was parallelized, is now federated": {"seed": 3, "mode": "parallelized"},
        "model was ['a', '<f4', [2]], is now ['a', '<f4', [3]]": {"model": [["a", "<f4", [2]]]},
        "model was 2 entries, is now 1 entries": {"model": [["a", "<f4", [2]], ["b", "<f4", [2]]]},
    }
    now = {"seed": 3, "mode": "federated", "model": [["a", "<f4", [3]]], "strategy": None}
    for reason, fingerprint in cases.items():
        other.save(replace(checkpoint(2), fingerprint=fingerprint))
        caplog.clear()
        with pytest.raises(ValueError, match="has 1 checkpoints and none is usable") as error:
            other.load(now)
        assert reason in str(error.value)
        assert "give another directory or remove the files" in str(error.value)
        assert reason in caplog.text
        assert names(tmp_path) == ["mel-00000002.ckpt"]  # refused, but still what it was
    content = (tmp_path / "mel-00000002.ckpt").read_bytes()
    other.save(replace(checkpoint(2), fingerprint={"seed": 4}))
    assert "seed was 4" in falls_back(store, (tmp_path / "mel-00000002.ckpt").read_bytes(), caplog)
    shutil.copy(store.directory / "mel-00000001.ckpt", tmp_path / "one")
    assert "is of cycle 1, which is not" in falls_back(store, (tmp_path / "one").read_bytes(), caplog)
    assert content


def test_files_but_none_usable_is_an_error(tmp_path):
    store = Checkpoints(tmp_path)
    for cycle in (1, 2):
        store.save(checkpoint(cycle)).write_bytes(b"")
    with pytest.raises(ValueError, match=r"has 2 checkpoints and none is usable .*00002.*damaged.*00001"):
        store.load()
    assert names(tmp_path) == ["mel-00000001.ckpt", "mel-00000002.ckpt"]
