"""Whole sweeps: one line per cell, with the bits of the strategy, and a kill loses nothing."""

import signal

import pytest
from mel_simulation.sweep.cells import read_sweep
from mel_simulation.sweep.results import read_results

from tests.simulation.tools import CYCLES, accuracies, command, interrupted
from tests.tools.commands import run

pytestmark = pytest.mark.engine

SWEEP = f"""
[base]
cycles = {CYCLES}
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
    assert len(two["accuracy"]) == CYCLES
    assert unaware["trouble"]
    assert not unaware["accuracy"]
    assert len(prox["accuracy"]) == CYCLES
    assert len({tuple(row["accuracy"]) for row in (two, *others)}) == 3  # one for each seed
    assert two["accuracy"] == accuracies(straight)
    # Five trainings for seven cells: one is shared, one is infeasible.
    assert len(list((finished / "trainings").iterdir())) == 5


@pytest.mark.slow
@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_killed_and_restarted_it_gives_the_same_bytes(
    how, code, finished, sweep_file, tmp_path, env, call, cluster
):
    out, whole = tmp_path / "out", (finished / "results.jsonl").read_bytes()
    again = ("sweep", sweep_file, "--out", out)
    assert interrupted(command(*again), out / "cells", env, how) == code
    if how is signal.SIGTERM:
        assert 0 < len(read_results(out)) < 7  # what was finished can be looked at
    again = (*again, "--ray-address", cluster.address)
    call(*again)
    assert (out / "results.jsonl").read_bytes() == whole
    assert "starting Ray" not in call(*again)  # nothing left to do: no engine is needed
    assert (out / "results.jsonl").read_bytes() == whole


def test_it_goes_on_from_a_file_of_results(finished, sweep_file, tmp_path, call, cluster):
    whole = (finished / "results.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "some.jsonl").write_text("".join(whole[:3]))  # the head, HA-Sync, c = 0
    (tmp_path / "more.jsonl").write_text("".join([whole[0], *whole[4:]]))
    again = ("sweep", sweep_file, "--from", tmp_path / "some.jsonl", "--from", tmp_path / "more.jsonl")
    out = tmp_path / "out"
    call(*again, "--out", out, "--workers", 1, "--ray-address", cluster.address)
    assert (out / "results.jsonl").read_text() == "".join(whole)
    assert len(list((out / "cells").iterdir())) == 1  # c = 2 was missing
    # Of a directory of which only the file is left, nothing is computed at all.
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "results.jsonl").write_text("".join(whole))
    assert "starting Ray" not in run("sweep", sweep_file, "--out", tmp_path / "bare").stderr
    assert (tmp_path / "bare" / "results.jsonl").read_text() == "".join(whole)
    wrong = run(*again[:2], "--from", tmp_path / "none.jsonl", "--out", out, code=2)
    assert "--from must be" in wrong.stderr
