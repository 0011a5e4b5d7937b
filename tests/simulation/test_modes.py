"""The app on the engine that all tests share: both APIs, both modes."""

import json

import numpy as np
import pytest
from mel_simulation.paper.on_engine import collected
from mel_simulation.sweep.cells import Cell
from mel_simulation.sweep.run import run_cell

from tests.simulation.tools import CYCLES, assert_same, records


def test_both_apis_give_the_same_bits_and_a_run_continues(play, straight):
    run = play("classic", cycles=1, api="classic")
    before = (run / "records.jsonl").read_text()
    play("classic", cycles=CYCLES, api="classic", resume=True)
    assert (run / "records.jsonl").read_text().startswith(before)
    assert_same(run, straight)
    assert records(run)[-1]["metrics"]["accuracy"] > 0.85


def test_federated_learning_on_uneven_data_until_it_is_good_enough(play):
    run = play("fl", mode="fl", alpha=0.5, cycles=5, target_accuracy=0.7)
    first, second = records(run)
    assert second["stopped"] == json.loads((run / "summary.json").read_text())["stopped"] != ""
    assert first["total_samples"] == 2000
    assert {row["outcome"] for row in first["learners"]} <= {"used", "skipped"}
    assert first["metrics"]["accuracy"] < 0.7 <= second["metrics"]["accuracy"]
    assert len({row["samples"] for row in first["learners"]}) > 5


def test_rate_on_the_engine_is_the_cell_of_a_sweep(play):
    """FedAdam of the Message API averages in another order, so accuracies may differ a little."""
    options = {"scheme": "rate", "optimizer": "adam", "frugality": 0.25, "cycles": 4}
    run = play("rate", **options)
    found, row = records(run), collected(run)
    cell = run_cell(Cell.parse({**options, "learners": 20, "average": "nova"}), {})
    for record, act in zip(found, cell["acts"], strict=True):
        assert record["makespan_s"] == act["makespan_s"]
        assert record["energy_j"] == act["energy_j"]
        assert len(record["learners"]) == act["used"] == 20
        assert sum(x["epochs"] * x["samples"] for x in record["learners"]) == act["sample_epochs"]
        assert all(x["time_s"] <= record["cycle_time_s"] for x in record["learners"])
    reached = [record["metrics"]["accuracy"] for record in found]
    assert reached == pytest.approx(cell["accuracy"], abs=0.01)
    assert reached[-1] > reached[0]
    assert row["accuracy"] == reached
    assert row["time_s"] == pytest.approx(np.cumsum([record["makespan_s"] for record in found]))
