"""``flwr-mel arena`` from its start to the page."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from mel_simulation.arena.bout import fight
from mel_simulation.arena.page import write
from mel_simulation.arena.run import Store, planned
from mel_simulation.arena.setting import read_profile
from mel_simulation.arena.verdict import Arena

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
def test_the_command_goes_on_where_it_was_and_makes_the_same_bytes(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(PROFILE)
    profile, alone, begun = read_profile(path), Store(tmp_path / "alone"), Store(tmp_path / "begun")
    # The whole arena in one process without Ray, and what is left of it when it is killed half-way.
    for number in range(10):
        bouts, _ = planned(profile, alone)
        bout = next(bout for bout in bouts if alone.outcome(bout) is None)
        done = fight(bout)
        alone.keep(bout, *done)
        if number < 5:
            begun.keep(bout, *done)
    write(Arena.read(alone.collect(profile)), alone.path)
    command = [
        Path(sys.executable).with_name("flwr-mel"),
        "arena",
        path,
        "--out",
        begun.path,
        "--workers",
        "1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert files(begun.path) == files(alone.path)
    lines = (begun.path / "arena.jsonl").read_text().splitlines()
    assert len(lines) == 1 + 2 * (4 + 1)
    assert json.loads(lines[0])["about"]["bouts"] == 10
