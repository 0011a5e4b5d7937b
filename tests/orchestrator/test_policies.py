"""Infeasible cycles, late learners, stopping, going on, settings."""

import math

import numpy as np
import pytest

from flwr_mel import Infeasible, Workload, wire
from flwr_mel.orchestrator import (
    Returned,
    Settings,
    Stopping,
)
from flwr_mel.records import Outcome
from tests.orchestrator.tools import finish, made, nodes, words


def test_infeasible_policies():
    brain = made(total_samples=10**6, on_infeasible="error")
    with pytest.raises(Infeasible):
        brain.plan(1, nodes(brain))
    brain = made(total_samples=10**6, on_infeasible="skip")
    plan = brain.plan(1, nodes(brain))
    assert plan.tasks == ()
    assert set(plan.ask_again) == set(nodes(brain))
    assert all(row.reason == "nobody works in this cycle" for row in brain.record.learners)
    brain = made(total_samples=10**6, on_infeasible="relax")
    assert sum(task.samples for task in brain.plan(1, nodes(brain)).tasks) == 400
    assert "400 do" in brain.record.notes[0]


@pytest.mark.parametrize(("policy", "workers"), [("relax", 2), ("skip", 0)])
def test_too_few_samples_for_everybodys_least_batch(policy, workers):
    brain = made(total_samples=50, min_samples=20, on_infeasible=policy)
    brain.hear("n3", words(3, **{wire.COEFFICIENTS[0]: 1e-4}))
    plan = brain.plan(1, nodes(brain))
    assert len(plan.tasks) == workers
    assert "50 samples are too few for 4 learners of at least 20 each" in brain.record.notes[0]
    if workers:
        assert sum(t.samples for t in plan.tasks) == 50


def test_too_few_samples_is_an_error_if_the_user_says_so():
    brain = made(total_samples=50, min_samples=20, on_infeasible="error")
    with pytest.raises(
        ValueError, match=r"min_samples must be at most 12, .* Lower it, or use more total_samples"
    ):
        brain.plan(1, nodes(brain))


def test_those_who_cannot_take_part_do_not_count_for_the_least_batch():
    brain = made(total_samples=50, min_samples=20)
    for k in (1, 2):
        brain.hear(f"n{k}", words(k, **{wire.MAX_SAMPLES: 5}))
    plan = brain.plan(1, nodes(brain))
    assert [t.learner for t in plan.tasks] == ["0", "3"]
    assert "fewer samples than the least batch" in brain.record.learners[1].reason


def test_a_late_learner_is_trusted_less_and_then_more_again():
    brain = made(2, total_samples=190)
    factors = []
    for cycle in range(1, 8):
        plan = brain.plan(cycle, nodes(brain))
        late = {"n0": (Outcome.LATE, "no reply in time")} if cycle == 1 else {}
        brain.settle(Returned({t.node: t.samples for t in plan.tasks if t.node not in late}, late, {}))
        brain.close()
        record = brain.records[-1]
        factors.append(record.learners[0].slowdown)
        assert record.makespan_s == (2.0 if cycle == 1 else max(r.time_s for r in record.learners))
    assert factors[0] == factors[-1] == 1.0
    assert 1.4 < factors[1] < 1.7
    assert np.diff(np.log(factors[1:6])) == pytest.approx([-0.1] * 4)


@pytest.mark.parametrize(
    ("criterion", "cycle"),
    [
        ({"cycles": 2}, 2),
        ({"target": 0.3}, 3),
        ({"target": 0.2, "metric": "loss", "higher_is_better": False}, 4),
        ({"virtual_time_s": 3.0}, 2),
        ({"energy_j": 1e-6}, 1),
        ({"metric": "flat", "patience": 2}, 3),
        ({"metric": "nan", "patience": 2}, 2),
    ],
)
def test_stopping(criterion, cycle):
    kept = []
    brain = made(stopping=Stopping(**criterion))
    brain.callbacks.append(kept.append)
    for n in range(1, 7):
        plan = brain.plan(n, nodes(brain))
        assert bool(plan.tasks) == (n <= cycle)
        if plan.tasks:
            finish(brain, plan, accuracy=n / 10, loss=1 / n - 0.05, flat=1.0, nan=math.nan)
    assert brain.state.stopped.cycle == cycle
    assert [record.cycle for record in kept] == list(range(1, cycle + 1))
    assert kept[-1].stopped == brain.state.stopped.reason


def test_replies_that_never_arrive_here_are_on_record():
    kept = []
    brain = made()
    brain.callbacks.append(kept.append)
    brain.plan(1, nodes(brain))
    brain.plan(2, nodes(brain))
    assert {row.outcome for row in kept[0].learners} == {Outcome.FAILED}
    assert "not handed on" in kept[0].learners[0].reason
    assert kept[0].clock_s == 2.0


def test_a_restored_brain_goes_on():
    brain = made(stopping=Stopping(cycles=3))
    plan = brain.plan(1, nodes(brain))
    brain.settle(Returned({}, {t.node: (Outcome.LATE, "late") for t in plan.tasks}, {}))
    brain.close()
    fresh = made(0, stopping=Stopping(cycles=3))
    fresh.restore(brain.state.snapshot())
    for k in range(4):
        fresh.hear(f"other{k}", words(k))
    assert fresh.cycle_of(1) == 2
    there, here = brain.plan(2, nodes(brain)), fresh.plan(2, nodes(fresh))
    assert [(t.learner, t.epochs, t.samples, t.seed) for t in there.tasks] == [
        (t.learner, t.epochs, t.samples, t.seed) for t in here.tasks
    ]
    assert fresh.state.clock_s == brain.state.clock_s == 2.0


SHIPPED = {"mode": "parallelized", "dataset": (np.zeros(3),)}


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"cycle_time_s": 0}, "cycle_time_s must be"),
        ({"mode": "both"}, "mode must be one of 'federated', 'parallelized'"),
        ({"mode": "parallelized"}, "dataset must be a tuple of arrays"),
        ({"dataset": (np.zeros(3),)}, "left out in federated mode"),
        ({"cycle_time_s": None, **SHIPPED}, "cycle_time_s must be given in parallelized mode"),
        (SHIPPED | {"dataset": (np.zeros(3), [1, 2, 3])}, r"dataset\[1\] must be a numpy array"),
        (SHIPPED | {"dataset": (np.zeros(3), np.zeros(2))}, r"arrays of one length, got \[2, 3\]"),
        (SHIPPED | {"total_samples": 4}, "total_samples must be at most the dataset's 3"),
        (SHIPPED | {"workload": Workload.mlp((8, 4), ship_data=False)}, r"workload\.ship_data must be True"),
        ({"quorum": 1.5}, "quorum must be"),
        ({"solver": "exact"}, "solver must be a solver object"),
        ({"max_epochs": 0}, "max_epochs must be"),
        ({"workload": "mlp"}, r"workload must be a flwr_mel\.Workload"),
        ({"workload": Workload.mlp((8, 4))}, r"workload\.ship_data must be False"),
        ({"default_profile": 3}, r"default_profile must be a flwr_mel\.Device"),
    ],
)
def test_settings_are_checked(bad, words):
    with pytest.raises(ValueError, match=words):
        Settings(**({"cycle_time_s": 1.0} | bad))
