"""Whole sweeps: one line per cell, with the bits of the strategy, and a kill loses nothing."""

import json

import pytest
from mel_simulation.sweep.cells import read_sweep
from mel_simulation.sweep.results import read_results

from tests.simulation.tools import CYCLES, records
from tests.tools.commands import run

pytestmark = pytest.mark.engine

SWEEP = f"""
[base]
cycles = {CYCLES}
learners = 20

[[grid]]
scheme = ["ha-sync", "hu-sync"]

[[grid]]
scheme = "ha-asyn"
staleness = [0, 2]

[[grid]]
baseline = "fedavg"
epochs = 2
"""


@pytest.fixture(scope="module")
def sweep_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("sweep") / "small.toml"
    path.write_text(SWEEP)
    return path


@pytest.fixture(scope="module")
def done(sweep_file, tmp_path_factory, call, cluster):
    out = tmp_path_factory.mktemp("finished")
    call("sweep", sweep_file, "--out", out, "--ray-address", cluster.address)
    return out


def test_a_sweep_has_one_line_per_cell_with_the_bits_of_the_strategy(done, sweep_file, straight):
    rows = read_results(done)
    assert [r["cell"] for r in rows] == [c.key for c in read_sweep(sweep_file)]
    sync, unaware, zero, two, waits = rows
    assert sync["accuracy"] == zero["accuracy"] != two["accuracy"]
    assert unaware["trouble"]
    assert not unaware["accuracy"]
    assert len(waits["accuracy"]) == CYCLES
    assert two["accuracy"] == [record["metrics"]["accuracy"] for record in records(straight)]
    about = json.loads((done / "results.jsonl").read_text().splitlines()[0])["about"]
    assert about["versions"]["flwr-mel"]
    assert "EMBEDDED" in about["notice"]


def test_killed_it_continues_to_the_same_bytes(done, sweep_file, tmp_path, call, cluster):
    whole = (done / "results.jsonl").read_text()
    lines = whole.splitlines(keepends=True)
    (tmp_path / "out").mkdir()
    # Killed while the third cell was written; another file has the last one.
    (tmp_path / "out" / "results.jsonl").write_text("".join(lines[1:3]) + lines[3][:50])
    (tmp_path / "more.jsonl").write_text("".join([lines[0], lines[5]]))
    again = ("sweep", sweep_file, "--out", tmp_path / "out", "--from", tmp_path / "more.jsonl")
    call(*again, "--workers", 1, "--ray-address", cluster.address)
    assert (tmp_path / "out" / "results.jsonl").read_text() == whole
    # Nothing is left to do: Ray is not started.
    assert "starting Ray" not in run(*again).stderr
    assert (tmp_path / "out" / "results.jsonl").read_text() == whole
    wrong = run("sweep", sweep_file, "--from", tmp_path / "none.jsonl", "--out", tmp_path / "out", code=2)
    assert "--from must be" in wrong.stderr
