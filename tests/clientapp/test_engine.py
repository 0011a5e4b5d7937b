"""The client kit on Flower's engine, in both APIs."""

import json

import pytest

from flwr_mel import wire


@pytest.fixture(scope="module")
def replies(engine, tmp_path_factory):
    out = tmp_path_factory.mktemp("client")
    engine.play("tests.clientapp.engine_app", out, config={"local-epochs": 2}, LAB_OUT=out / "replies.json")
    return json.loads((out / "replies.json").read_text())


@pytest.mark.engine
@pytest.mark.parametrize("api", ["message", "classic"])
def test_the_client_kit_on_flowers_engine(replies, api):
    probe, baseline, task = (replies[name][api] for name in ("probe", "baseline", "task"))
    for words in (probe, baseline, task):
        assert (words[wire.MODDED], words[wire.SIMULATED]) == (1, 1)
        assert words[wire.CPU_HZ] == 1e9 * (words[wire.PARTITION] + 1)
        assert words[wire.LEARNER] == str(words[wire.PARTITION])
        assert wire.PROBLEM not in words
    assert probe[wire.PROBE] == 1
    assert (baseline["epochs"], baseline["num-examples"], baseline[wire.SAMPLES_USED]) == (2, 50, 50)
    assert (task["epochs"], task["num-examples"], task[wire.SAMPLES_USED]) == (7, 20, 20)
    for words in (baseline, task):
        assert (words[wire.OWN_EPOCHS], words[wire.EPOCHS_READ], words[wire.SAMPLES_HELD]) == (2, 1, 50)
        assert words[wire.TRAIN_SECONDS] >= 0
    assert task["calls"] == baseline["calls"] + 2  # each API trained once in between: the state persists
    assert "51 * ceil(20 / 1) = 1020 steps, at most 1000" in replies["private"][api]["error"]


@pytest.mark.engine
def test_a_stock_strategy_trains_with_the_projects_own_work(replies):
    """Only the server changes when users compare with and without planning."""
    assert replies["stock"]["epochs"] == 2
    assert wire.TRAIN_SECONDS not in replies["stock"]
