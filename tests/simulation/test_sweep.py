"""Whole sweeps: one line per cell, with the bits of the strategy, and a kill loses nothing."""

import signal
import subprocess
import time

import pytest
from mel_simulation.sweep.cells import read_sweep
from mel_simulation.sweep.results import read_results

from flwr_mel._processes import end, tree
from tests.simulation.tools import accuracies, command
from tests.waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.engine

SWEEP = """
[base]
cycles = 6
learners = 20

[[grid]]
scheme = "ha-sync"

[[grid]]
scheme = "ha-asyn"
staleness = [0, 2]

[[grid]]
scheme = "hu-sync"

[[grid]]
baseline = "fedprox"
epochs = 2

[[grid]]
seed = [1, 2]
"""


@pytest.fixture(scope="module")
def sweep_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("sweep") / "small.toml"
    path.write_text(SWEEP)
    return path


@pytest.fixture(scope="module")
def finished(sweep_file, tmp_path_factory, call, cluster):
    out = tmp_path_factory.mktemp("finished")
    call("sweep", sweep_file, "--out", out, "--ray-address", cluster.address)
    return out


def test_a_sweep_leaves_one_line_per_cell_with_the_bits_of_the_strategy(finished, sweep_file, straight):
    rows = read_results(finished)
    assert [r["cell"] for r in rows] == [c.key for c in read_sweep(sweep_file)]
    sync, zero, two, unaware, prox, *others = rows
    assert sync["accuracy"] == zero["accuracy"] != two["accuracy"]
    assert len(two["accuracy"]) == 6
    assert unaware["trouble"]
    assert not unaware["accuracy"]
    assert len(prox["accuracy"]) == 6
    assert len({tuple(row["accuracy"]) for row in (two, *others)}) == 3  # one for each seed
    assert two["accuracy"] == accuracies(straight)
    # Five trainings for seven cells: one is shared, one is infeasible.
    assert len(list((finished / "trainings").iterdir())) == 5


def interrupted(path, out, env, how):
    """Start a sweep and end it by a signal once another cell is there; nothing of it may be left running."""
    before = len(list((out / "cells").glob("*.json")))
    process = subprocess.Popen(
        command("sweep", path, "--out", out),
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        family = set()
        while len(list((out / "cells").glob("*.json"))) <= before:
            assert process.poll() is None
            family = tree(process.pid)
            time.sleep(0.1)
        assert len(family) > 3  # Ray and its workers
        process.send_signal(how)
        process.wait(timeout=PATIENCE_S)
        wait_for(lambda: not [p for p in family if p in tree(p.pid)])
    finally:
        end(process)
    return process.returncode


def test_killed_and_restarted_it_gives_the_same_bytes(finished, sweep_file, tmp_path, env, call, cluster):
    out, whole = tmp_path / "out", (finished / "results.jsonl").read_bytes()
    assert interrupted(sweep_file, out, env, signal.SIGTERM) == 130
    assert 0 < len(read_results(out)) < 7  # what was finished can be looked at
    assert interrupted(sweep_file, out, env, signal.SIGKILL) == -signal.SIGKILL
    again = ("sweep", sweep_file, "--out", out, "--ray-address", cluster.address)
    call(*again)
    assert (out / "results.jsonl").read_bytes() == whole
    assert "starting Ray" not in call(*again)  # nothing left to do: no engine is needed
    assert (out / "results.jsonl").read_bytes() == whole
