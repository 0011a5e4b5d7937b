"""The app on the engine that all tests share: both APIs, both modes."""

from tests.simulation.tools import CYCLES, assert_same, records


def test_both_apis_give_the_same_bits_and_a_run_continues(play, straight):
    run = play("classic", cycles=1, api="classic")
    before = (run / "records.jsonl").read_text()
    play("classic", cycles=CYCLES, api="classic", resume=True)
    assert (run / "records.jsonl").read_text().startswith(before)
    assert_same(run, straight)
    assert records(run)[-1]["metrics"]["accuracy"] > 0.85


def test_federated_learning_on_uneven_data(play):
    first, second = records(play("fl", mode="fl", alpha=0.5, cycles=2, mobility=20.0))
    assert first["total_samples"] == 2000
    assert {row["outcome"] for row in first["learners"]} <= {"used", "skipped"}
    assert second["metrics"]["accuracy"] > 0.3
    assert len({row["samples"] for row in first["learners"]}) > 5
