"""Cells of a sweep: which there are, what is planned for them, which are the same training."""

from pathlib import Path

import numpy as np
import pytest
from mel_simulation.scenario.adam import adam
from mel_simulation.scenario.config import ADAM
from mel_simulation.scenario.network import initial_weights
from mel_simulation.sweep.cells import Cell, profiles, read_sweep
from mel_simulation.sweep.results import read_about, read_results
from mel_simulation.sweep.rounds import facts, rounds
from mel_simulation.sweep.run import run_cell

from flwr_mel._validate import InputError

RESULTS = Path(__file__).parents[2] / "results"
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
    """A sweep knows the cells that are done, and which version did them."""
    path = RESULTS / f"{name}.jsonl"
    rows = read_results(path)
    for row in rows:
        cell = Cell.parse(row["config"])
        assert (cell.key, cell.as_dict()) == (row["cell"], row["config"])
    assert {row["version"] for row in rows} == set(read_about(path)["versions"]["flwr-mel"].split(", "))


@pytest.mark.parametrize("name", profiles())
def test_profiles_are_valid(name):
    cells = read_sweep(profiles()[name])
    assert {cell.learners for cell in cells} == {20}
    assert len(cells) >= 20


def played(cell):
    """The cycles of a cell, in which nothing is learned."""
    return list(rounds(cell, lambda _, __, weights: weights))


def test_tasks_keep_the_limits_and_share_out_the_data():
    options = cell()
    [(tasks, record, _), _] = played(options)
    rows = np.concatenate([task.shard for task in tasks])
    assert sorted(rows) == list(range(4000))
    assert [len(task.shard) for task in tasks] == [task.samples for task in tasks]
    found = facts(options, record)
    assert 0 < found["makespan_s"] <= 10
    assert found["broken"] == 0
    assert found["mean_epochs"] == sum(task.epochs for task in tasks) / 20
    assert found["mean_epochs"] <= found["bound"] <= found["relaxed"] + options.staleness


def test_samples_that_do_not_fit_later_are_left_out():
    """Energy limits are drawn anew in every cycle; the first cycle decides whether a run starts."""
    options = cell(cycle_time=5.0, energy=4.0, energy_spread=3.5, cycles=7)
    records = [record for _, record, _ in played(options)]
    assert records[0].total_samples == 4000
    assert records[-1].total_samples < 4000
    assert {facts(options, record)["broken"] for record in records} == {0}


def test_the_baseline_waits_for_all_and_breaks_limits():
    options = cell(baseline="fedavg", epochs=3)
    tasks, record, _ = played(options)[0]
    found = facts(options, record)
    assert found["makespan_s"] > 10
    assert [(task.epochs, task.samples) for task in tasks] == [(3, 200)] * 20
    assert found["broken"] > 0


def test_infeasible_cells_say_so():
    row = run_cell(cell(scheme="hu-sync"), {})
    assert "equal batch" in row["trouble"]
    assert not row["acts"]


def test_ways_to_average():
    """FedNova's rule and Adam change the model of the first cycle; both start from the same updates."""
    ways = [{}, {"average": "nova"}, {"optimizer": "adam"}, {"optimizer": "adam", "eta": 0.02}]
    models = [next(rounds(cell(**way)))[2][0] for way in ways]
    first = initial_weights(0)[0]
    steps = [np.abs(model - first).max() for model in models]
    assert len(set(steps)) == 4
    # Of one step, Adam takes the sign and a part of eta.
    assert steps[3] == pytest.approx(5 * steps[2], rel=1e-3)


def test_the_step_of_adam_is_flowers_own():
    model, average = [np.zeros(3, np.float32)], [np.array([1.0, -2.0, 0.0], np.float32)]
    step, b1, b2 = adam(0.1), ADAM["beta_1"], ADAM["beta_2"]
    # The first step of Adam is eta in every direction, but for its correction of round 2.
    once = step(1, model, average)
    correction = np.sqrt(1 - b2**2) / (1 - b1**2) * (1 - b1) / np.sqrt(1 - b2)
    assert once[0] == pytest.approx([0.1 * correction, -0.1 * correction, 0.0], rel=1e-4)
    assert once[0].dtype == np.float32
    # The model may have moved otherwise in between; only the moments are kept.
    again = step(2, model, average)
    assert np.sign(again[0]).tolist() == [1, -1, 0]
    assert again[0] != pytest.approx(once[0])
