"""``flwr-mel arena`` from its start to the page."""

import json
import shutil
import signal
import subprocess

import pytest
from mel_simulation.arena.bout import fight
from mel_simulation.arena.page import write
from mel_simulation.arena.run import Store, planned
from mel_simulation.arena.setting import read_profile
from mel_simulation.arena.verdict import Arena

from tests.simulation.tools import command, interrupted

PROFILE = """seeds = [0]
tuning-seed = 5
rivals = ["fedavg", "ha-progress"]
[[setting]]
name = "tiny"
title = "Tiny"
task = "digits"
samples = 300
learners = 4
targets = [0.2, 0.3]
rounds = 2
"""


def files(directory):
    return {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.engine
def test_killed_or_begun_elsewhere_it_goes_on_and_makes_the_same_bytes(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(PROFILE)
    profile, alone = read_profile(path), Store(tmp_path / "alone")
    # The whole arena in one process without Ray.
    for _ in range(10):
        bouts, _ = planned(profile, alone)
        bout = next(bout for bout in bouts if alone.outcome(bout) is None)
        alone.keep(bout, *fight(bout))
    write(Arena.read(alone.collect(profile)), alone.path)
    lines = (alone.path / "arena.jsonl").read_text().splitlines(keepends=True)
    assert len(lines) == 1 + 2 * (4 + 1)
    assert json.loads(lines[0])["about"]["bouts"] == 10
    # Killed after some bouts, then again.
    out = tmp_path / "killed"
    again = command("arena", path, "--out", out, "--workers", 1)
    interrupted(again, out / "bouts", None, signal.SIGKILL)
    done = subprocess.run(again, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert files(alone.path).items() <= files(out).items()
    # From a file that has all bouts: nothing is held, no engine is needed.
    out = tmp_path / "known"
    known = command("arena", path, "--out", out, "--from", alone.path / "arena.jsonl")
    done = subprocess.run(known, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "starting Ray" not in done.stderr
    assert files(out).items() <= files(alone.path).items()
    assert (out / "ARENA.md").exists()


def test_bouts_of_a_file_are_not_held_again_and_own_ones_come_first(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(PROFILE)
    profile = read_profile(path)
    bouts, later = planned(profile, Store(tmp_path / "none"))
    assert (len(bouts), later) == (8, 2)
    row = {"reached": [None, None], "curve": [[0.0, 0.1, 0.0]]}
    there, here = Store(tmp_path / "there"), Store(tmp_path / "here")
    for bout in bouts[:4]:
        there.keep(bout, {"bout": bout.key, **row}, [])
    here.keep(bouts[0], {"bout": bouts[0].key, **row, "mine": True}, [])
    known = Store(tmp_path / "here", [there.collect(profile)])
    assert [known.outcome(bout) is not None for bout in bouts] == 4 * [True] + 4 * [False]
    assert known.outcome(bouts[0])["mine"]
    assert json.loads(known.collect(profile).read_text().splitlines()[0])["about"]["bouts"] == 10
    # Of the directory only the file is left.
    shutil.rmtree(tmp_path / "here" / "bouts")
    left = Store(tmp_path / "here")
    assert sum(left.outcome(bout) is not None for bout in bouts) == 4
    with pytest.raises(ValueError, match=r"results must be an arena\.jsonl"):
        Store(tmp_path, [tmp_path / "nothing.jsonl"])
