"""Damaged files, other trainings, locks and full disks."""

import logging
import resource
import subprocess
import sys

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.common import Parameters
from flwr.serverapp.strategy import FedAvg

from flwr_mel.checkpoint import Checkpointed
from flwr_mel.checkpoint.files import read, write
from flwr_mel.serverapp import MelStrategy
from tests.checkpoint.project import APIS, Training, assert_equal, start_weights


def names(directory):
    return sorted(path.name for path in directory.iterdir() if path.name != "lock")


def test_values_come_back_with_their_types(tmp_path):
    plain = [None, True, 2**80, 0.1, float("inf"), "text", (1, [()]), {1: "a", "$": 2, ("b", 3): {}}, b"\xff"]
    flower = [ArrayRecord({"w": Array(np.ones(3))}), Parameters([b"ab"], "x")]
    bfloat16 = np.array([16256, 1], np.uint16).view("V2")
    numpy = [np.float32(0.1), np.arange(6).reshape(2, 3).T, np.array(2.0), np.zeros((0, 2)), bfloat16]
    rng = np.random.default_rng(3)
    write(tmp_path / "c.npz", {"plain": plain, "flower": flower, "numpy": numpy, "rng": rng})
    found = read(tmp_path / "c.npz")
    assert repr(found["plain"]) == repr(plain)
    assert found["flower"] == flower
    for a, b in zip(found["numpy"], numpy, strict=True):
        assert (type(a), a.dtype, a.shape, a.tobytes()) == (type(b), b.dtype, b.shape, b.tobytes())
    assert found["rng"].normal() == rng.normal()


@pytest.mark.parametrize("value", [object(), {1, 2}, np.array([None]), print])
def test_what_cannot_be_kept(tmp_path, value):
    with pytest.raises(TypeError, match="cannot be kept in a checkpoint"):
        write(tmp_path / "c.npz", {"x": [value]})
    assert names(tmp_path) == []


def cut(path):
    path.write_bytes(path.read_bytes()[:-90])


def flip(path):
    data = bytearray(path.read_bytes())
    data[data.index(b"array0.npy") + 200] ^= 1
    path.write_bytes(data)


def empty(path):
    path.write_bytes(b"")


def newer(path):
    write(path, read(path) | {"format": 2})


@APIS
@pytest.mark.parametrize("damage", [cut, flip, empty, newer])
def test_a_damaged_checkpoint_costs_one_round(tmp_path, api, damage, caplog):
    whole = Training(api).run()
    Training(api, tmp_path).run(3)
    assert names(tmp_path) == ["round-00000002.npz", "round-00000003.npz"]
    damage(tmp_path / "round-00000003.npz")
    (tmp_path / ".round-00000004.npz.0123abcd.tmp").write_bytes(b"half")
    rest = Training(api, tmp_path).run()
    assert_equal(rest, whole)
    assert rest.evaluated == [3, 4]
    assert "round-00000003.npz cannot be read" in caplog.text
    assert names(tmp_path) == ["round-00000003.damaged", "round-00000003.npz", "round-00000004.npz"]


def test_no_function_of_numpy_runs_from_a_checkpoint(tmp_path, monkeypatch):
    """A file from elsewhere may name anything as its generator."""
    write(tmp_path / "c.npz", {"rng": np.random.default_rng(3)})
    monkeypatch.setattr(np.random, "PCG64", pytest.fail)
    with pytest.raises(TypeError, match="no bit generator 'PCG64'"):
        read(tmp_path / "c.npz")


def test_a_checkpoint_sets_state_only(tmp_path, caplog):
    """A forged one names methods, settings that are no values, and the strategy inside."""
    Training("message", tmp_path, "clipped").run(1)
    path = tmp_path / "round-00000001.npz"
    content = read(path)
    wrong = ("aggregate_train", "__dict__", "__class__", "strategy", "noise_multiplier")
    content["strategy"][0] |= dict.fromkeys(wrong, 7)
    content["strategy"][1] |= {"summary": 7, "train_metrics_aggr_fn": 7, "of_its_own": 7}
    write(path, content)
    rest = Training("message", tmp_path, "clipped").run(2)
    refused = [r.getMessage().split()[0] for r in caplog.records if "is not restored" in r.getMessage()]
    outer, inner = "DifferentialPrivacyServerSideAdaptiveClipping", "FedAdam"
    assert sorted(refused) == sorted(
        [f"{outer}.{name}" for name in wrong[:4]] + [f"{inner}.summary", f"{inner}.train_metrics_aggr_fn"]
    )
    assert rest.inner.noise_multiplier == rest.inner.strategy.of_its_own == 7  # values among values
    assert len(rest.mel.records) == 2


def test_a_training_never_starts_anew_beside_its_checkpoints(tmp_path):
    Training("message", tmp_path).run(2)
    for path in tmp_path.glob("*.npz"):
        empty(path)
    with pytest.raises(ValueError, match=r"no checkpoint in it can be read\. To start .* files of records"):
        Training("message", tmp_path).run()
    assert len(names(tmp_path)) == 2


@APIS
def test_a_checkpoint_of_another_project(tmp_path, api):
    Training(api, tmp_path, "FedAvg").run(1)
    other = "classic" if api == "message" else "message"
    longer = [*start_weights(), np.zeros(1)]
    for reason, training in {
        "other strategies: .*MelFedAvg there, .*FedAdam here": (api, tmp_path, "FedAdam"),
        "other strategies: flwr_mel": (other, tmp_path, "FedAvg"),
        r"another model: \('1', \(4,\)\) there, \('1', \(3,\)\) here": (
            *(api, tmp_path, "FedAvg", [start_weights()[0], np.zeros(3)]),
        ),
        "another model: 2 entries there, 3 entries here": (api, tmp_path, "FedAvg", longer),
    }.items():
        with pytest.raises(ValueError, match=f"directory for this training run only, got .* {reason}"):
            Training(*training).run()
    assert names(tmp_path) == ["round-00000001.npz"]


def test_what_can_be_wrapped(tmp_path):
    with pytest.raises(
        ValueError, match=r"strategy must be a MelStrategy, got a FedAvg. Write Checkpointed\("
    ):
        Checkpointed(FedAvg(), tmp_path)
    checkpointed = Checkpointed(MelStrategy(FedAvg()), tmp_path)
    with pytest.raises(ValueError, match="Wrap it once"):
        MelStrategy(checkpointed)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="directory must be a directory that can be written to"):
        Training("message", tmp_path / "file" / "c").run()


HOLDS = """
import sys, time
from pathlib import Path
from flwr_mel.checkpoint.files import lock
lock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(900)
"""


@APIS
def test_two_processes_do_not_train_in_one_directory(tmp_path, api):
    other = subprocess.Popen([sys.executable, "-c", HOLDS, tmp_path], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(RuntimeError, match="another process is using the checkpoints in"):
            Training(api, tmp_path).run(1)
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    assert len(Training(api, tmp_path).run(2).mel.records) == 2
    assert len(Training(api, tmp_path).run(3).mel.records) == 3


@APIS
def test_a_full_disk_does_not_end_the_training(tmp_path, api, caplog):
    whole = Training(api).run()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(record):
        if record.cycle == 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))

    try:
        filled = Training(api, tmp_path, callbacks=[fill]).run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert_equal(filled, whole)
    warnings = [r for r in caplog.records if "no checkpoint was written" in r.message]
    assert [r.levelno for r in warnings] == [logging.WARNING] * 3
    assert names(tmp_path) == ["round-00000001.npz"]
    assert_equal(Training(api, tmp_path).run(), whole)
