"""Tasks, seeds and shards of one cycle."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_mel import wire
from flwr_mel.clientapp import Assignment
from flwr_mel.flower.tasks import task_words
from flwr_mel.orchestrator import (
    Orchestrator,
    Returned,
    Settings,
)
from flwr_mel.orchestrator.planning import draw_seed
from flwr_mel.records import Outcome
from tests.orchestrator.tools import made, nodes, words


def test_a_cycle_from_question_to_record():
    kept = []
    brain = Orchestrator(Settings(cycle_time_s=2.0, total_samples=50), [kept.append])
    assert brain.strangers(["a", "b"]) == ["a", "b"]
    brain.hear("a", words(1))
    brain.hear("b", words(0))
    assert brain.strangers(["a", "b", "c"]) == ["c"]
    plan = brain.plan(1, ["a", "b"])
    assert [task.learner for task in plan.tasks] == ["0", "1"]
    assert sum(task.samples for task in plan.tasks) == 50 * 2 // 3  # the share of two among three
    report = {wire.TRAIN_SECONDS: 1.5, wire.TRAIN_JOULES: 0.25}
    brain.settle(Returned({"a": plan.tasks[1].samples}, {"b": (Outcome.REFUSED, "why")}, {"a": report}))
    brain.observe({"accuracy": 0.5, "text": "no number", "flag": True})
    brain.close()
    (record,) = kept
    assert record.metrics == {"accuracy": 0.5}
    b, a = record.learners
    assert (b.outcome, b.reason, b.weight) == (Outcome.REFUSED, "why", 0)
    assert (a.outcome, a.reported_time_s, a.reported_energy_j) == (Outcome.USED, 1.5, 0.25)
    assert record.makespan_s == max(a.time_s, b.time_s) == record.clock_s
    assert record.status == "optimal"
    assert record.bound >= record.mean_epochs > 0


def test_names_order_the_learners_whatever_their_nodes_are():
    one, two = made(0), made(0)
    for node, k in (("x", 10), ("y", 2), ("z", "name")):
        one.hear(node, words(k))
    for node, k in (("p", "name"), ("q", 2), ("r", 10)):
        two.hear(node, words(k))
    first, second = one.plan(1, ["z", "y", "x"]), two.plan(1, ["p", "r", "q"])
    assert [t.learner for t in first.tasks] == ["2", "10", "name"]
    same = [(t.learner, t.epochs, t.samples, t.seed) for t in first.tasks]
    assert same == [(t.learner, t.epochs, t.samples, t.seed) for t in second.tasks]


def test_seeds_differ_by_learner_and_cycle_and_fit_the_wire():
    names = [str(k) for k in range(1000)]
    seeds = [draw_seed(seed, cycle, name) for seed, cycle in ((1, 1), (1, 2), (2, 1)) for name in names]
    assert len(set(seeds)) == 3000
    assert min(seeds) >= 0
    assert max(seeds) < 2**63


def test_seeds_follow_the_learner_whoever_else_is_there():
    """Seeds by position gave every later learner another seed when a newcomer's name came first."""
    few, more = made(0), made(0)
    for brain, others in ((few, ()), (more, ("0", "aa"))):
        for name in ("1", "b", *others):
            brain.hear(f"n{name}", words(name))
    before = {t.learner: t.seed for t in few.plan(1, nodes(few)).tasks}
    after = {t.learner: t.seed for t in more.plan(1, nodes(more)).tasks}
    assert after | before == after


def test_leaving_out_a_learner_does_not_change_the_seeds_of_others():
    all_in, one_out = made(), made()
    one_out.hear("n1", words(1, **{wire.ENERGY_LIMIT_J: 1e-9}))
    before = {t.learner: t.seed for t in all_in.plan(1, nodes(all_in)).tasks}
    after = {t.learner: t.seed for t in one_out.plan(1, nodes(one_out)).tasks}
    assert set(before) - set(after) == {"1"}
    assert after == {k: before[k] for k in after}


@given(
    samples=st.integers(4, 400),
    learners=st.integers(1, 8),
    cycle=st.integers(1, 50),
    size=st.integers(400, 600),
)
@settings(max_examples=40, deadline=None)
def test_shards_are_disjoint_and_cover_the_total(samples, learners, cycle, size):
    samples = max(samples, learners)
    data = (np.arange(size, dtype=np.uint16),)
    brain = Orchestrator(
        Settings(cycle_time_s=1e4, total_samples=samples, mode="parallelized", dataset=data, max_epochs=3)
    )
    for k in range(learners):
        brain.hear(f"n{k}", {**words(k), wire.MAX_SAMPLES: 400})
    plan = brain.plan(cycle, nodes(brain))
    rows = np.concatenate([task.shard for task in plan.tasks])
    assert len(np.unique(rows)) == len(rows) == samples
    for task in plan.tasks:
        assigned = Assignment.from_config(task_words(task, brain.settings))
        assert (assigned.epochs, assigned.samples, assigned.cycle) == (task.epochs, task.samples, cycle)
        np.testing.assert_array_equal(assigned.shard[0], data[0][task.shard])
        assert assigned.shard[0].dtype == np.uint16


def test_choose_is_seeded_without_repetition_and_never_more_than_there_is():
    a = Assignment(epochs=1, samples=30, cycle=1, seed=4)
    rows = a.choose(100)
    np.testing.assert_array_equal(rows, a.choose(100))
    assert len(set(rows.tolist())) == 30
    np.testing.assert_array_equal(a.choose(20), np.arange(20))
    assert not np.array_equal(rows, Assignment(1, 30, 2, seed=5).choose(100))


def test_no_task_is_a_clear_error():
    with pytest.raises(KeyError, match="Is the server's strategy wrapped in MelStrategy"):
        Assignment.from_config({"lr": 0.1})


@pytest.mark.parametrize("shipped", [False, True])
@pytest.mark.parametrize("policy", ["keep", "span"])
def test_who_is_chosen_gets_its_share_of_what_is_asked_of_the_fleet(policy, shipped):
    data = {"mode": "parallelized", "dataset": (np.arange(120),)} if shipped else {"total_samples": 120}
    brain = Orchestrator(Settings(cycle_time_s=2.0, stragglers=policy, **data))
    names = [f"n{k}" for k in range(8)]
    brain.hear_all({name: words(k) for k, name in enumerate(names)})
    for cycle, chosen in enumerate((names, names[:2], names[3:6]), 1):
        brain.strangers(chosen, names)
        tasks = brain.plan(cycle, chosen).tasks
        assert sum(task.samples for task in tasks) == 120 * len(chosen) // 8
        assert {task.node for task in tasks} <= set(chosen)
        brain.settle(Returned({task.node: task.samples for task in tasks}, {}, {}))
