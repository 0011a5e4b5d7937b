"""What learners say of themselves, and the names they claim: nobody ends the run or takes another's place."""

import json

import pytest

from flwr_mel import wire
from flwr_mel.learning import Estimate, Learning
from flwr_mel.orchestrator import NobodyWorks, Orchestrator, Returned, Settings
from tests import attacks
from tests.attacks import honest_words
from tests.fuzz.tools import NODES, OPTIONS, inputs


def test_plans_go_on_whatever_one_learner_says_of_itself():
    for i, rng in enumerate(inputs("plans")):
        total = 60 if i % 2 else None
        learning = Learning() if i % 3 else None
        limits = Settings(cycle_time_s=2.0, total_samples=total, max_samples=50, learning=learning)
        brain = Orchestrator(limits)
        nodes = [str(node) for node in NODES]
        brain.strangers(nodes)
        order = [("11", honest_words(1)), ("12", honest_words(2)), ("13", attacks.evil_words(rng))]
        for node, words in order:
            brain.hear(node, words)
        tasks = {task.node: task for task in brain.plan(1, nodes).tasks}
        assert {"11", "12"} <= set(tasks)
        assert all(task.samples <= 50 for task in tasks.values())
        assert [brain.state.learners[node].name for node in ("11", "12")] == ["1", "2"]
        assert brain.state.learners["13"].name not in ("1", "2")
        used = {node: task.samples for node, task in tasks.items()}
        brain.settle(Returned(used, {}, {"13": attacks.evil_words(rng)}))
        record = brain.record
        brain.close()
        assert len(json.dumps(record.as_dict(), allow_nan=False)) < 10_000
        assert {"11", "12"} <= {task.node for task in brain.plan(2, nodes).tasks}


def test_a_name_belongs_to_one_learner_at_a_time():
    brain = Orchestrator(Settings(**OPTIONS))
    learnt = Estimate.start((1.0,) * 6, declared=True, assumed=False, learning=Learning())
    brain.restore({"estimates": {"1": learnt.as_dict()}})
    brain.strangers(["11", "12"])
    brain.hear("11", honest_words(1))
    brain.hear("12", honest_words(1))
    assert [brain.state.learners[node].name for node in ("11", "12")] == ["1", "12"]
    assert [brain.state.learners[node].estimate for node in ("11", "12")] == [learnt, None]
    brain.plan(1, ["11", "12"])
    assert any("claims the name '1' of node 11" in note for note in brain.record.notes)
    # Nobody changes its name, nor takes the node id of another.
    brain.hear("11", honest_words(7))
    assert brain.state.learners["11"].name == "1"
    brain.strangers(["11", "12", "13"])
    brain.hear("13", honest_words(12))
    assert brain.state.learners["13"].name == "13"
    # Back under a new node id, after the old one is gone.
    brain.strangers(["12", "14"])
    brain.hear("14", honest_words(1))
    assert brain.state.learners["14"].name == "1"
    assert "11" not in brain.state.learners


@pytest.mark.parametrize("limit", [None, 50])
def test_claims_of_endless_data_do_not_end_the_run(limit):
    brain = Orchestrator(Settings(cycle_time_s=2.0, max_samples=limit))
    for k in (1, 2, 3):
        brain.hear(f"n{k}", {**honest_words(k), wire.MAX_SAMPLES: 100 if k < 3 else 2**40})
    plan = brain.plan(1, ["n1", "n2", "n3"])
    assert {task.node for task in plan.tasks} == {"n1", "n2", "n3"}
    assert brain.record.asked_samples == (2**40 if limit is None else 150)


def test_one_learner_cannot_end_the_run_of_the_others():
    bad = {wire.CPU_HZ: 1e9, wire.RATE_BPS: 1e6, wire.TX_POWER_W: 0.1}  # no workload is given
    brain = Orchestrator(Settings(cycle_time_s=2.0, total_samples=60))
    brain.hear("n1", honest_words(1))
    brain.hear("n2", bad)
    assert [task.node for task in brain.plan(1, ["n1", "n2"]).tasks] == ["n1"]
    brain.strangers(["n2", "n3"])
    brain.hear("n3", None)
    assert brain.plan(2, ["n2", "n3"]).tasks == ()
    # Where nobody works from the beginning, which is an error, the silent ones are told as well.
    brain = Orchestrator(Settings(cycle_time_s=2.0, total_samples=60))
    brain.hear_all({"n1": None, "n2": bad})
    with pytest.raises(NobodyWorks, match="n1: did not answer when it was asked what it can do"):
        brain.plan(1, ["n1", "n2"])


def test_a_learner_that_claims_endless_speed_gets_no_more_than_max_samples():
    fast = {**honest_words(3), **dict.fromkeys(wire.COEFFICIENTS, 1e-15), wire.MAX_SAMPLES: 2**40}
    shares = {}
    for limit in (None, 25):
        brain = Orchestrator(Settings(**OPTIONS, max_samples=limit))
        for node, words in (("11", honest_words(1)), ("12", honest_words(2)), ("13", fast)):
            brain.hear(node, words)
        shares[limit] = {task.node: task.samples for task in brain.plan(1, ["11", "12", "13"]).tasks}
    assert shares[None]["13"] > 25 == shares[25]["13"]
    assert sum(shares[25].values()) == OPTIONS["total_samples"]
