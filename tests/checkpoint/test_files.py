"""Files that are whole or not there, and hold what was put into them."""

import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from flwr_mel import serverapp as message
from flwr_mel.checkpoint import Checkpoints
from tests.checkpoint.tools import checkpoint, names, same
from tests.waiting import PATIENCE_S


def test_everything_comes_back_bit_for_bit(tmp_path):
    arrays = [
        np.array([1.5, np.nan, -0.0, np.inf], ">f4"),
        np.float16([[1], [2]]).T,
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array(True),
        np.zeros((0, 3), np.uint8),
        np.array([1 + 2j], np.complex64),
        np.array(["a", "äö"]),
        np.array([2**63], np.uint64),
    ]
    odd = [{"m_t": ("plain", [*arrays, {"x": arrays[0]}, (np.float32(0.1), b"\x00bytes", b"")])}, {7: None}]
    model = {f"layer {i}/../x": a for i, a in enumerate(arrays)}
    kept = replace(checkpoint(2), model=model, inner=odd, callbacks=[("JsonlWriter 1", {"bytes": 10**12})])
    path = Checkpoints(tmp_path).save(kept)
    found = Checkpoints(tmp_path).load()
    assert path.name == "mel-00000002.ckpt"
    for field in ("model", "inner", "callbacks", "state"):
        assert same(getattr(kept, field), getattr(found, field)), field
    assert [r.as_dict() for r in found.records] == [r.as_dict() for r in kept.records]
    assert b"pickle" not in path.read_bytes()


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64])
def test_generators_go_on_where_they_were(tmp_path, kind):
    mine = np.random.Generator(kind(5))
    mine.normal(size=7)
    Checkpoints(tmp_path, generators={"noise": mine}).save(checkpoint(1))
    expected = mine.integers(0, 2**60, 9)
    other = np.random.Generator(kind(99))
    Checkpoints(tmp_path, generators={"noise": other}).load()
    assert np.array_equal(other.integers(0, 2**60, 9), expected)
    with pytest.raises(ValueError, match="another training: generators was"):
        Checkpoints(tmp_path).load()


@pytest.mark.parametrize(
    "bad", [np.array([object()]), np.zeros(2, [("x", "f4")]), {1, 2}, np.ma.masked_array([1]), 1 + 2j]
)
def test_what_cannot_be_read_back_is_not_written(tmp_path, bad):
    with pytest.raises(TypeError, match="cannot be kept in a checkpoint"):
        Checkpoints(tmp_path).save(replace(checkpoint(1), inner=[bad]))
    assert names(tmp_path) == []


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_last_ones_are_kept(tmp_path, keep):
    store = Checkpoints(tmp_path, keep)
    for cycle in range(6):
        store.save(checkpoint(cycle))
        expected = [f"mel-{n:08d}.ckpt" for n in range(max(0, cycle + 1 - keep), cycle + 1)]
        assert names(tmp_path) == expected


def test_bad_arguments(tmp_path):
    with pytest.raises(ValueError, match="keep must be an integer from 1"):
        Checkpoints(tmp_path, keep=0)
    with pytest.raises(ValueError, match=r"generators\['a'\] must be a np.random.Generator, got 3"):
        Checkpoints(tmp_path, generators={"a": 3})
    inner = message.MelFedAvg()
    with pytest.raises(ValueError, match="resume must be True"):
        message.MelStrategy(inner, cycle_time_s=1.0, checkpoints=tmp_path, resume="yes")
    with pytest.raises(ValueError, match="checkpoints must be a flwr_mel"):
        message.MelStrategy(inner, cycle_time_s=1.0, checkpoints=3)


def test_odd_files_are_ignored(tmp_path):
    store = Checkpoints(tmp_path / "mine")
    assert store.load() is None
    good = store.save(checkpoint(1))
    elsewhere = shutil.copy(good, tmp_path / "mel-00000009.ckpt")
    (good.parent / "mel-00000009.ckpt").symlink_to(elsewhere)
    (good.parent / "mel-00000008.ckpt").mkdir()
    for name in (
        "mel-7.ckpt",
        "mel-00000007.ckpt.bak",
        "xmel-00000007.ckpt",
        "mel-0000000\u0667.ckpt",
        "a\nb",
    ):
        shutil.copy(good, good.parent / name)
    assert store.files() == [good]
    assert store.load().cycle == 1


def test_leftovers_of_killed_processes_go_away(tmp_path):
    mine, not_mine = tmp_path / ".mel-00000004.ckpt.0123abcd.tmp", tmp_path / ".mel.tmp"
    mine.write_bytes(b"half")
    not_mine.write_bytes(b"other")
    Checkpoints(tmp_path).save(checkpoint(5))
    assert names(tmp_path) == [".mel.tmp", "mel-00000005.ckpt"]


NURSERY = """
import logging, os, signal, sys
import numpy as np
from pathlib import Path
from flwr_mel.checkpoint import Checkpoint, Checkpoints
logging.basicConfig(level=logging.WARNING)
KILLS = 50
store = Checkpoints(sys.argv[1], keep=2)
model = lambda n: {"w": np.full(30_000, n, np.float32), "b": np.arange(n % 7)}

def save(n, last_line=None):
    # Save; be killed at the given line of Python, wherever that is, or tell how many there are.
    lines = 0
    def trace(frame, event, arg):
        nonlocal lines
        lines += 1
        if lines == last_line:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace
    sys.settrace(trace)
    store.save(Checkpoint(n, model(n)))
    sys.settrace(None)
    return lines

lines, halves = [save(n) for n in (1, 2, 3)][-1], 0
for kill in range(KILLS):
    last = store.load().cycle
    child = os.fork()
    if not child:
        save(last + 1, 1 + kill * lines // KILLS)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    halves += any(p.name.endswith(".tmp") for p in Path(sys.argv[1]).iterdir())
    found = store.load()
    assert last <= found.cycle <= last + 1, (last, found.cycle)
    assert all(np.array_equal(found.model[k], v) for k, v in model(found.cycle).items())
    assert len(store.files()) <= 3
    save(found.cycle + 1)
print(store.load().cycle, halves)
"""


def test_fifty_kills_in_the_middle_of_saving(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", NURSERY, tmp_path],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    assert "refused" not in done.stderr
    cycles, halves = map(int, done.stdout.split())
    assert cycles > 50
    assert halves > 5  # kills did hit half-written files
