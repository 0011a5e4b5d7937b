"""A learner is known by its name: a new node id inherits, an old one is forgotten."""

import sys

import pytest

from flwr_mel import wire
from flwr_mel.learning import Learning
from flwr_mel.orchestrator import Orchestrator, Returned, Settings
from flwr_mel.orchestrator.state import MOST_ABSENT
from flwr_mel.records import Outcome
from tests import attacks
from tests.strategies.fleet import Fleet, words


def fleet(k=3):
    return Fleet({node: words(str(node)) for node in range(1, k + 1)})


def declared_s(task):
    c2, c1, c0 = (attacks.COSTS[key] for key in wire.COEFFICIENTS[:3])
    return c2 * task.epochs * task.samples + c1 * task.samples + c0


def rows(training):
    return {row.learner: row for row in training.strategy.records[-1].learners}


def test_a_new_node_id_inherits_that_its_learner_was_late(start):
    many = fleet()
    many.late = {3}
    training = start(many)
    training.cycle(1)
    assert rows(training)["3"].outcome is Outcome.LATE
    del many.nodes[3]
    many.nodes[77] = words("3")
    assert training.cycle(2) == {1, 2, 77}
    slower = rows(training)["3"].slowdown
    assert slower > 1.4
    many.late = set()
    training.cycle(3)
    training.cycle(4)
    assert 1 < rows(training)["3"].slowdown < slower
    assert set(training.strategy.orchestrator.state.learners) == {"1", "2", "77"}


def test_what_was_learnt_outlives_the_node_id():
    """A device three times slower than it says was given too much again with every new node id."""
    brain = Orchestrator(Settings(cycle_time_s=10.0, total_samples=2000, learning=Learning()))
    planned = []
    for cycle in range(1, 9):
        nodes = ["1", "2", f"9{cycle}"]
        for node in brain.strangers(nodes):
            brain.hear(node, words("slow" if len(node) > 1 else node, **{wire.MAX_SAMPLES: 5000}))
        plan = brain.plan(cycle, nodes)
        took = {t.node: declared_s(t) * (3 if len(t.node) > 1 else 1) for t in plan.tasks}
        slowdowns = {row.learner: row.slowdown for row in brain.record.learners}
        planned.append(slowdowns["slow"] / slowdowns["1"])
        brain.settle(Returned({t.node: t.samples for t in plan.tasks}, {}, {}, took))
    assert planned[0] == pytest.approx(1.0)
    assert min(planned[3:]) > 2
    assert len(brain.state.learners) == 3
    assert brain.state.learners["98"].estimate.compute.seen == 8


def test_one_that_gives_only_its_limits_keeps_the_costs_it_gave_before(start):
    many = fleet()
    training = start(many)
    training.cycle(1)
    del many.nodes[2]
    many.nodes[22] = {wire.LEARNER: "2", wire.MAX_SAMPLES: 7}
    training.cycle(2)
    assert training.cycle(3) == {1, 3, 22}
    assert rows(training)["2"].samples <= 7


def test_a_stranger_does_not_get_the_name_of_one_that_is_there(start):
    many = fleet()
    many.late = {3}
    training = start(many)
    training.cycle(1)
    many.nodes[88] = words("3")
    training.cycle(2)
    training.cycle(3)
    assert rows(training)["3"].node == "3"
    assert rows(training)["88"].slowdown == 1.0
    told = [note for r in training.strategy.records for note in r.notes if "claims the name '3'" in note]
    assert len(told) == 1


def test_a_holder_that_is_there_but_not_chosen_keeps_its_name():
    brain = Orchestrator(Settings(cycle_time_s=10.0, total_samples=60))
    brain.strangers(["1", "2"])
    for node in ("1", "2"):
        brain.hear(node, words(node * 3))
    brain.strangers(["2", "9"], connected=["1", "2", "9"])
    brain.hear("9", words("111"))
    assert brain.state.learners["9"].name == "9"
    brain.strangers(["2", "9"], connected=["2", "9"])
    brain.hear("9", words("111"))
    assert brain.state.learners["9"].name == "111"


def test_one_that_comes_back_under_its_own_id_is_asked_and_known_again(start):
    many = fleet()
    many.late = {2}
    training = start(many)
    training.cycle(1)
    away = many.nodes.pop(2)
    assert training.cycle(2) == {1, 3}
    many.nodes[2], many.late = away, set()
    training.cycle(3)
    training.cycle(4)
    assert rows(training)["2"].slowdown > 1.2


def test_memory_does_not_grow_with_node_ids_or_names(start):
    """5,000 nodes come and go, half of them under names of their own, half under one name or none."""
    many = fleet(2)
    training = start(many)
    for cycle in range(1, 51):
        many.nodes = {1: words("1"), 2: words("2")}
        for i in range(100):
            node = 1000 * cycle + i
            many.nodes[node] = words(f"guest-{node}") if i % 2 else words("guest") if i else None
        training.cycle(cycle)
    state = training.strategy.orchestrator.state
    assert len(state.learners) == 102
    assert len(state.absent) <= MOST_ABSENT
    assert len(state.holders) <= 102
    assert len(state.warned) <= 102
    assert len(training.strategy._questions._open) <= 102
    assert sys.getsizeof(repr(state.snapshot())) < 1000 * MOST_ABSENT


def test_names_that_look_like_node_ids_do_not_depend_on_who_answers_first():
    """Node 1 has not answered yet when node 2 says that it is learner 1."""
    for order in (["1", "2"], ["2", "1"]):
        brain = Orchestrator(Settings(cycle_time_s=10.0, total_samples=60))
        brain.strangers(["1", "2"])
        brain.hear_all({node: words(str(int(node) - 1)) for node in order})
        assert [brain.state.learners[node].name for node in ("1", "2")] == ["0", "1"]
        assert brain.state.notes == []
