"""The simulation's app on the engine that all tests share: both APIs, both modes."""

import json

from tests.simulation.tools import CYCLES, assert_same, records


def test_both_apis_give_the_same_bits(play, straight):
    """Begun through one API, gone on with through the other, and back."""
    run = play("changing", cycles=1, api="classic")
    before = (run / "records.jsonl").read_text()
    play("changing", cycles=3, api="message", resume=True)
    assert (run / "records.jsonl").read_text().startswith(before)
    assert json.loads((run / "config.json").read_text())["config"]["api"] == "message"
    play("changing", cycles=CYCLES, api="classic", resume=True)
    assert_same(run, straight)
    assert all(row["outcome"] == "used" for record in records(run) for row in record["learners"])
    assert records(run)[-1]["metrics"]["accuracy"] > 0.85


def test_federated_learning_on_uneven_data(play):
    first, second = records(play("fl", mode="fl", alpha=0.5, cycles=2, mobility=20.0))
    assert first["total_samples"] == 2000
    assert {row["outcome"] for row in first["learners"]} <= {"used", "left out"}
    assert second["metrics"]["accuracy"] > 0.3
    assert len({row["samples"] for row in first["learners"]}) > 5
