"""Cells of a sweep: which there are, what is planned for them, which are the same training."""

from pathlib import Path

import numpy as np
import pytest
from mel_simulation.sweep.cells import Cell, profiles, read_sweep
from mel_simulation.sweep.results import read_about, read_results
from mel_simulation.sweep.run import run_cell
from mel_simulation.sweep.schedule import PlannedCycle, plan_cycles
from mel_simulation.sweep.training import combine

from flwr_mel._validate import InputError
from flwr_mel.cycle.state import Task

RESULTS = Path(__file__).parents[2] / "results"
FORMER = ("mobility", "proximal", "exclude", "sample-cost")
SWEEPS = ("headline", "paper", "rate", "variations")


def cell(**options):
    return Cell(**{"cycles": 2, **options})


def test_cells_are_multiplied_out_once_each(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(
        "[base]\ncycles = 3\nlearners = 20\n"
        "[[grid]]\nstaleness = [1, 2]\nseed = [0, 1]\n[[grid]]\nstaleness = 1\n"
    )
    cells = read_sweep(path)
    found = [(c.staleness, c.seed, c.cycles) for c in cells]
    assert found == [(1, 0, 3), (1, 1, 3), (2, 0, 3), (2, 1, 3)]
    assert len({c.key for c in cells}) == 4


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[base]\n", "grid"),
        ("base = 3\n[[grid]]\nseed = 1\n", "made of a table"),
        ("grid = 3\n", "made of a table"),
        ("[other]\nx = 1\n[[grid]]\nseed = 1\n", "other"),
        ("[[grid]\n", "line 1"),
        ("[[grid]]\nseed = 'x'\n", "s.toml, grid 1: seed must be"),
        ("[[grid]]\nspeed = 3\n", "speed"),
        ("[[grid]]\nbaseline = 'magic'\n", "baseline must be one of"),
        ("[[grid]]\nepochs = 3\n", "epochs must be left out without a baseline"),
        ("[[grid]]\nbaseline = 'fedavg'\nstaleness = 1\n", "staleness must be left out with"),
        ("[[grid]]\ntarget-accuracy = 0.9\n", "target_accuracy must be left out of a sweep"),
    ],
)
def test_bad_sweeps_are_refused(tmp_path, text, says):
    path = tmp_path / "s.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=says):
        read_sweep(path)


@pytest.mark.parametrize("name", SWEEPS)
def test_committed_results_are_found_again(name):
    """Whatever options come and go, a sweep knows the cells that are done, and which version did them."""
    path = RESULTS / f"{name}.jsonl"
    rows = read_results(path)
    for row in rows:
        present = {key: value for key, value in row["config"].items() if key not in FORMER}
        assert Cell.parse(present).key == row["cell"]
    assert {row["version"] for row in rows} == set(read_about(path)["versions"]["flwr-mel"].split(", "))


@pytest.mark.parametrize("name", profiles())
def test_profiles_are_valid(name):
    cells = read_sweep(profiles()[name])
    assert {cell.learners for cell in cells} == {20}
    assert len(cells) >= 20


def test_tasks_keep_the_limits_and_share_out_the_data():
    [first, _] = plan_cycles(cell())
    rows = np.concatenate([task.shard for task in first.tasks])
    assert sorted(rows) == list(range(4000))
    assert [len(task.shard) for task in first.tasks] == [task.samples for task in first.tasks]
    assert first.facts["makespan_s"] <= 10
    assert first.facts["broken"] == 0
    assert first.facts["mean_epochs"] == sum(task.epochs for task in first.tasks) / 20
    assert first.facts["relaxed"] > 1


def test_the_baseline_waits_for_all_and_breaks_limits():
    wait = plan_cycles(cell(baseline="fedavg", epochs=3))[0]
    assert wait.facts["makespan_s"] > 10
    assert [task.epochs for task in wait.tasks] == [3] * 20
    assert wait.facts["broken"] > 0


def test_infeasible_cells_say_so():
    row = run_cell(cell(scheme="hu-sync"), {})
    assert "equal batch" in row["trouble"]
    assert not row["acts"]


@pytest.mark.parametrize(
    # Steps 10 and 90, shares 1/4 and 3/4: 70 effective steps of (0.25 * 1/10 + 0.75 * 5/90) each.
    ("average", "expected"),
    [("data", 4.0), ("nova", 70 * (0.025 + 3.75 / 90))],
)
def test_ways_to_average(average, expected):
    cycle = PlannedCycle(1, [Task("0", "", 1, 1, 10, 0), Task("1", "", 1, 3, 30, 0)], {})
    old, updates = [np.zeros(2, np.float32)], [[np.full(2, 1.0, np.float32)], [np.full(2, 5.0, np.float32)]]
    np.testing.assert_allclose(combine(cell(average=average), old, updates, cycle)[0], expected, rtol=1e-6)
