"""The simulation's app on the engine that all tests share: both APIs, both modes."""

import json

import pytest

from tests.simulation.tools import CYCLES, assert_same, records


@pytest.fixture
def simulate(engine, tmp_path):
    """Play the app with a run configuration; return the run directory."""

    def play(name, **config):
        words = {key.replace("_", "-"): value for key, value in config.items()}
        run = tmp_path / name
        offline = {"FLWR_MEL_OFFLINE": "1", "FLWR_MEL_DATA": tmp_path / "cache"}
        engine.play("tests.simulation.app", tmp_path, config={**words, "run-dir": str(run)}, **offline)
        return run

    return play


def test_both_apis_give_the_same_bits(simulate, straight):
    """Begun through one API, gone on with through the other, and back."""
    run = simulate("changing", cycles=1, api="classic")
    before = (run / "records.jsonl").read_text()
    simulate("changing", cycles=3, api="message", resume=True)
    assert (run / "records.jsonl").read_text().startswith(before)
    assert json.loads((run / "config.json").read_text())["config"]["api"] == "message"
    simulate("changing", cycles=CYCLES, api="classic", resume=True)
    assert_same(run, straight)
    assert all(row["outcome"] == "used" for record in records(run) for row in record["learners"])
    assert records(run)[-1]["metrics"]["accuracy"] > 0.85


def test_federated_learning_on_uneven_data(simulate):
    first, second = records(simulate("fl", mode="fl", alpha=0.5, cycles=2, mobility=20.0))
    assert first["total_samples"] == 2000
    assert {row["outcome"] for row in first["learners"]} <= {"used", "left out"}
    assert second["metrics"]["accuracy"] > 0.3
    assert len({row["samples"] for row in first["learners"]}) > 5
