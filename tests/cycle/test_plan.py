"""What each client is to do in the coming round."""

import numpy as np
import pytest

from flwr_mel import Infeasible, Measured, Robust, Rounds, Shards, wire
from flwr_mel.cycle.errors import NoWork
from flwr_mel.cycle.options import Options
from flwr_mel.cycle.plan import draw_seed, plan
from flwr_mel.cycle.state import State, with_answers, with_nodes
from flwr_mel.records import Outcome
from tests.cycle.tools import App, Run, declared


def declaring(n, **more):
    return [App(capability=declared() | more) for _ in range(n)]


def test_a_round_of_some_gets_its_share_of_the_samples():
    run = Run(declaring(4, **{wire.MAX_SAMPLES: 1000}), cycle_time_s=5.0, total_samples=800)
    assert run.round(only=[0, 1]).total_samples == 400
    assert run.round().total_samples == 800
    # Clients that cannot work leave their part to the others.
    run.apps[3] = App(modded=False)
    run = Run(run.apps, cycle_time_s=5.0, total_samples=800)
    assert run.round().total_samples == 800


def test_epochs_are_at_most_five_times_the_projects_own():
    run = Run([App(own=3), App(own=3), App(own=3, pace=0.1)], cycle_time_s=1000.0)
    assert [row.epochs for row in run.rounds(2)[-1].learners] == [15, 15, 15]


def test_one_lie_about_the_own_epochs_lifts_no_limit():
    run = Run([App(own=2), App(own=2), App(own=2)], cycle_time_s=1e6)
    run.apps[0].capability = {}
    run.round()
    lie = run.apps[0].reply(0, run.tasks[0], run.model)
    words = {**lie.words, wire.OWN_EPOCHS: 2**40}
    run.round(replies={"1000": type(lie)(lie.arrays, 600, words, 1.0)})
    assert all(row.epochs <= 10 for row in run.round().learners)


def test_a_single_slow_client_slows_no_other_without_a_cap():
    costs = [(1e-3, 0, 0, 0, 0, 0)] * 3 + [(0.09, 0, 0, 0, 0, 0)]
    apps = [App(capability=declared(c) | {wire.MAX_SAMPLES: 10}) for c in costs]
    free = Run(apps, cycle_time_s=1.0, total_samples=40).round()
    capped = Run(apps, cycle_time_s=1.0, total_samples=40, staleness=0).round()
    assert [row.epochs for row in free.learners] == [100, 100, 100, 1]
    assert all(row.limited_by for row in free.learners)
    assert [row.epochs for row in capped.learners] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("total", "least", "note", "error"),
    [
        (500, 1, "500 samples do not fit, so 200 are used", "process 200 of 500"),
        (50, 40, "50 samples are too few for the smallest tasks", "smallest tasks of 2 clients"),
    ],
)
def test_totals_that_do_not_fit(total, least, note, error):
    def record(what):
        apps = declaring(2, **{wire.MAX_SAMPLES: 100})
        how = Rounds(on_infeasible=what)
        return Run(apps, cycle_time_s=5.0, total_samples=total, min_samples=least, rounds=how).round()

    relaxed = record("relax")
    assert (relaxed.total_samples, relaxed.asked_samples) == (min(total, 200), total)
    skipped = record("skip")
    assert (skipped.status, skipped.asked) == ("skipped", [])
    assert any(note in text for text in (*skipped.notes, *relaxed.notes))
    with pytest.raises(Infeasible, match=error):
        record("error")


def test_too_few_samples_for_all():
    apps = [App(capability=declared((1e-3 * s, 0, 0, 0, 0, 0))) for s in (3, 1, 2)]
    record = Run(apps, cycle_time_s=5.0, total_samples=50, min_samples=20).round()
    assert [row.samples >= 20 for row in record.learners] == [False, True, True]
    assert record.total_samples == 50
    assert "too few samples" in record.learners[0].reason


def test_the_share_of_a_few_clients_is_at_least_one_batch():
    run = Run(declaring(20), cycle_time_s=5.0, total_samples=100, min_samples=30)
    assert run.round(only=[4]).total_samples == 30


def test_why_a_client_has_no_task():
    physical = {wire.CPU_HZ: 1e9, wire.RATE_BPS: 1e6, wire.TX_POWER_W: 0.1}
    apps = [
        App(),
        App(modded=False),
        App(capability=physical),
        App(capability={wire.MAX_SAMPLES: 0}),
        App(capability=declared() | {wire.CPU_HZ: -1}),
    ]
    run = Run(apps)
    run.round()
    reasons = [run.row(k).reason for k in range(5)]
    assert reasons[0] == ""
    assert "no mel_mod" in reasons[1]
    assert "needs workload=" in reasons[2]
    assert "no samples" in reasons[3]
    assert "rejected" in reasons[4]


def test_a_client_that_has_not_answered_is_not_said_to_have_no_mod():
    state = with_answers(with_nodes(State(), ["1", "2"]), Options(), {"1": {wire.MODDED: 1}})
    _, tasks, record = plan(state, Options(), 1, ["1", "2"], 2)
    assert [task.node for task in tasks] == ["1"]
    assert record.learners[1].reason == "it has not answered yet"


@pytest.mark.parametrize("chooses", [True, False])
def test_a_time_that_is_too_short_is_an_error_that_names_a_workable_one(chooses):
    """The number in the message is rounded up: it works."""
    apps = [
        App(chooses=chooses, capability=declared((1.2345e-3 * s, 0, 0, 0, 0, 0)) | {wire.MAX_SAMPLES: 600})
        for s in (2, 1)
    ]
    with pytest.raises(NoWork, match="too short for every client") as caught:
        Run(apps, cycle_time_s=1e-4).round()
    named = float(str(caught.value).split(" s. Give")[0].rpartition(" ")[2])
    assert Run(apps, cycle_time_s=named).round().asked


def test_a_time_that_is_too_short_ends_no_training_that_has_begun():
    """Clients are asked again after 2, 4 and 8 rounds: they may be faster then."""
    run = Run([App(fixed_s=0.0, pace=1e-2 * s) for s in (2, 1)], cycle_time_s=5e-3)
    run.rounds(20)
    assert [record.cycle for record in run.records if record.asked] == [1, 5, 10, 19]
    assert all(row.asked or "asked again" in row.reason for row in run.row_of_each_round(0)[2:])
    for app in run.apps:
        app.pace /= 200
    run.rounds(40)
    assert all(record.status == "optimal" for record in run.records[-3:])


def test_a_time_too_short_for_the_sampled_client_only_is_no_error():
    """Nor is one that is too short for those that are known, while others are not."""
    apps = [App(capability=declared((1e-3, 0, s, 0, 0, 0)), held=10) for s in (0.1, 50.0)]
    run = Run(apps, cycle_time_s=1.0, total_samples=10)
    record = run.round(only=[1])
    assert record.learners[0].outcome is Outcome.SKIPPED
    assert "cycle time" in record.learners[0].reason or record.notes
    state = with_answers(with_nodes(State(), ["1", "2"]), run.options, {"1": apps[1].about(0)})
    _, tasks, _ = plan(state, run.options, 1, ["1"], 2)
    assert not tasks


def test_bounds_on_samples():
    apps = [App(held=10**9), App(held=100), App(held=100)]
    run = Run(apps, robust=Robust(max_samples=150), cycle_time_s=1e12)
    first = run.round()
    assert [row.weight for row in first.learners] == [150, 100, 100]
    assert [row.samples for row in run.round().learners] == [150, 100, 100]


class TestShards:
    x, y = np.arange(60.0).reshape(30, 2), np.arange(30)
    costs = Measured(1e-3, 1e-3, 0.01, 0, 0, 0)

    def run(self, simulated=True, **more):
        shards = Shards((self.x, self.y), **more)
        apps = [App(simulated=simulated) for _ in range(3)]
        return Run(apps, cycle_time_s=1.0, shards=shards, default_device=self.costs)

    def test_all_rows_are_sent_once(self):
        run = self.run()
        run.round()
        first = [task.shard for task in run.tasks]
        assert sorted(np.concatenate(first).tolist()) == list(range(30))
        assert [len(rows) for rows in first] == [task.samples for task in run.tasks]
        run.round()
        assert not np.array_equal(np.concatenate(first), np.concatenate([t.shard for t in run.tasks]))

    def test_they_are_sent_to_simulated_clients_only(self):
        with pytest.raises(PermissionError, match="over_tls=True"):
            self.run(simulated=False).round()
        assert self.run(simulated=False, over_tls=True).round().asked

    def test_a_client_that_may_be_anywhere_gets_none(self):
        """One without a mod, or one that did not answer: it did not say that it is simulated."""
        run = self.run()
        run.apps[1] = App(modded=False)
        run.round()
        assert [task.node for task in run.tasks] == ["1000", "1002"]
        state = with_answers(with_nodes(State(), ["1", "2"]), run.options, {"1": App().about(1), "2": None})
        _, tasks, _ = plan(state, run.options, 1, ["1", "2"], 2)
        assert [task.node for task in tasks] == ["1"]

    def test_a_client_without_costs_is_measured_with_a_small_shard(self):
        run = Run([App(), App()], cycle_time_s=1.0, shards=Shards((self.x, self.y)), min_samples=4)
        run.round()
        assert [(task.epochs, task.samples, len(task.shard)) for task in run.tasks] == [(1, 4, 4)] * 2
        run.round()
        assert sum(task.samples for task in run.tasks) > 8


def test_a_seed_is_of_one_client_and_one_round():
    seeds = {draw_seed(s, c, k) for s in (0, 1) for c in (1, 2) for k in ("a", "b")}
    assert len(seeds) == 8
    assert all(0 <= seed < 2**63 for seed in seeds)
