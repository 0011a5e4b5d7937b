"""What becomes of replies: outcomes, weights, what is learned, and the record."""

from dataclasses import replace

import numpy as np
import pytest

from flwr_mel import Estimation, Robust, wire
from flwr_mel.cycle.settle import ERRORS, Kind, Reply
from flwr_mel.cycle.state import with_answers, with_nodes
from flwr_mel.records import Outcome
from tests.cycle.tools import MODEL, App, Run, declared


def planned(n=3, **options):
    settings = {"cycle_time_s": 5.0, "total_samples": 300, "max_epochs": 2} | options
    run = Run([App(capability=declared() | {wire.MAX_SAMPLES: 600}) for _ in range(n)], **settings)
    run.round()
    return run


def good(k=0, **more):
    return Reply({name: x + k for name, x in MODEL.items()}, 100, {wire.MODDED: 1, **more}, 1.0)


def test_the_weight_is_the_tasks():
    run = planned()
    lie = Reply(good().arrays, 10**9, {wire.SAMPLES_USED: 10**6}, 1.0)
    run.round(replies={"1000": lie})
    assert [update.weight for update in run.updates] == [row.samples for row in run.records[-1].learners]


def test_fewer_samples_than_the_task_count_for_fewer():
    run = planned()
    run.round(replies={"1000": good(**{wire.SAMPLES_USED: 7, wire.TRAIN_SECONDS: 1.0})})
    assert run.updates[0].weight == run.row(0).weight == 7
    assert run.row(0).samples_used == 7


@pytest.mark.parametrize("examples", [0, -3, float("nan"), float("inf"), "many", True, 10**400, [3]])
def test_a_number_of_examples_that_cannot_be(examples):
    run = planned()
    run.round(replies={"1001": Reply(good().arrays, examples, {}, 1.0)})
    assert run.row(1).outcome is Outcome.REJECTED
    assert "number of examples" in run.row(1).reason
    assert [update.node for update in run.updates] == ["1000", "1002"]


def test_outcomes():
    run = planned(4)
    bad = {name: x + np.float32(np.nan) for name, x in MODEL.items()}
    replies = {"1000": Reply(bad, 10), "1001": Reply(error="it\nbroke"), "1002": Reply(words={})}
    record = run.round(lost=[3], replies=replies)
    assert [row.outcome for row in record.learners] == ["rejected", "failed", "failed", "late"]
    assert "not finite" in record.learners[0].reason
    assert record.learners[1].reason.isprintable()
    assert "no arrays" in record.learners[2].reason
    assert run.updates == []
    assert len(record.failures) == 4
    assert record.makespan_s == record.cycle_time_s


def test_every_error_code_of_flower_has_a_meaning():
    """The codes that the installed Flower defines, by name; a new one would fail here."""
    constants = pytest.importorskip("flwr.common.constant")
    codes = {name: code for name, code in vars(constants.ErrorCode).items() if name.isupper()}
    assert set(ERRORS) >= set(codes.values())
    late = {name for name, code in codes.items() if ERRORS[code] is Kind.LATE}
    offline = {name for name, code in codes.items() if ERRORS[code] is Kind.OFFLINE}
    assert late == {"MESSAGE_UNAVAILABLE", "REPLY_MESSAGE_UNAVAILABLE"}
    assert offline == {"NODE_UNAVAILABLE"}
    assert all(ERRORS[code] is Kind.FAILED for name, code in codes.items() if name not in late | offline)


@pytest.mark.parametrize(
    ("kind", "outcome"), [(Kind.FAILED, "failed"), (Kind.OFFLINE, "late"), (Kind.LATE, "late")]
)
def test_kinds_of_replies(kind, outcome):
    run = planned()
    before = run.learner(0)
    run.round(replies={"1000": Reply(kind=kind, error="why")})
    assert (run.row(0).outcome, run.row(0).reason) == (outcome, "why")
    assert (run.learner(0) == before) is (kind is not Kind.LATE)


def test_a_reply_without_arrays_is_a_failure_whatever_it_says():
    assert Reply().kind is Kind.FAILED
    assert Reply(arrays=MODEL, error="x").kind is Kind.FAILED
    assert Reply(arrays=MODEL).kind is Kind.TRAINED


def test_replies_of_clients_without_a_task_count_for_nothing():
    run = planned()
    run.round(only=[0, 1], replies={"1002": good(), "77": good()})
    assert [update.node for update in run.updates] == ["1000", "1001"]


def test_a_missed_reply_and_a_failure():
    """Silence is evidence of time only, an error of nothing."""
    run = planned()
    silent, failing = run.learner(0), run.learner(1)
    run.round(lost=[0], replies={"1001": Reply(error="x")})
    after = run.learner(0)
    assert after.estimate.costs()[:3] == pytest.approx([2 * c for c in silent.estimate.costs()[:3]])
    assert (after.identity, after.profile, after.behaviour) == (
        silent.identity,
        silent.profile,
        silent.behaviour,
    )
    assert after.patience.until == 5
    assert run.learner(1) == failing


def test_after_a_missed_reply_a_client_waits_and_then_gets_half():
    run = planned(n=1, total_samples=None, max_epochs=1, cycle_time_s=0.6)
    run.round(lost=[0])
    run.rounds(4)
    rows = run.row_of_each_round(0)
    assert [row.outcome for row in rows] == ["used", "late", "skipped", "skipped", "used", "used"]
    assert "asked again in round 5" in rows[2].reason
    time_s = 0.002 * rows[1].samples + 0.1
    assert 2 * (0.002 * rows[4].samples + 0.1) == pytest.approx(time_s, rel=0.02)
    assert rows[5].samples == rows[1].samples


@pytest.mark.parametrize("missed", [1, 2])
def test_a_sign_of_life_ends_the_first_wait_only(missed):
    """A client that answers and does not train would cost a deadline in every other round."""
    run = planned()
    for _ in range(missed):
        while run.learner(0).patience.until > run.state.cycle + 1:
            run.round()
        run.round(lost=[0])
    run.state = with_answers(run.state, run.options, {"1000": run.apps[0].about(0)})
    assert run.round().learners[0].asked == (missed == 1)


def test_the_clock_is_planned_in_a_simulation_with_declared_costs():
    run = planned()
    record = run.round()
    assert record.waited_s is None
    assert record.clock_s == pytest.approx(sum(r.makespan_s for r in run.records))
    assert record.total_energy_j == pytest.approx(sum(r.energy_j for r in run.records))


def test_with_declared_costs_a_simulation_does_not_depend_on_the_clock():
    """What is known after a round is the same to the bit, however long the apps and messages took."""

    def known(took_s):
        run = planned()
        words = {wire.TRAIN_SECONDS: took_s, wire.SAMPLES_USED: 100}
        run.round(
            replies={task.node: replace(good(1, **words), round_trip_s=2 * took_s) for task in run.tasks}
        )
        return run.state.as_dict()

    assert known(0.1) == known(0.137)


def test_the_clock_is_real_otherwise():
    run = Run([App(), App(pace=2e-3)])
    records = run.rounds(3)
    assert records[-1].clock_s == pytest.approx(sum(r.waited_s for r in records))
    assert all(row.round_trip_s is None for row in records[-1].learners)
    deployed = Run([App(simulated=False)])
    assert deployed.round().learners[0].round_trip_s == pytest.approx(0.61)


def test_capabilities_of_a_report_count_from_the_next_round():
    run = planned()
    run.apps[0].capability |= {wire.MAX_SAMPLES: 5}
    assert run.round().learners[0].samples > 5
    assert run.round().learners[0].samples <= 5


def test_large_updates_are_scaled_down_on_request():
    run = planned(5, robust=Robust(max_norm_ratio=2.0))
    large = {"1004": Reply({name: x + 1000 for name, x in MODEL.items()}, 60, {}, 1.0)}
    record = run.round(replies=large)
    scaled = run.updates[4]
    assert scaled.changed
    assert float(np.abs(scaled.arrays["w"]).max()) == pytest.approx(2 * 3.0)
    assert "update scaled to" in record.learners[4].bounded
    assert not any(update.changed for update in run.updates[:4])


@pytest.mark.parametrize("average", ["nova", "nova-held"])
@pytest.mark.parametrize("drawn", [1, 1e12])
def test_a_false_count_of_drawn_samples(drawn, average):
    """Without bounds it does not move the other clients; with them not even its own update."""
    words = {wire.TRAIN_SECONDS: 0.2, wire.SAMPLES_USED: 100, wire.SAMPLES_DRAWN: drawn}
    for robust in (Robust(), Robust(max_norm_ratio=2.0)):
        run = planned(5, average=average, robust=robust)
        run.round(replies={str(1000 + k): good(1) for k in range(1, 5)} | {"1000": good(1, **words)})
        sizes = [float(np.abs(update.arrays["w"]).max()) for update in run.updates]
        assert sizes[1:] == pytest.approx([1.0] * 4, rel=0.25)
        assert (drawn < 100 and robust.max_norm_ratio is None) or sizes[0] <= 2


def test_a_problem_of_the_mod_is_noted_once():
    run = planned()
    words = {wire.MODDED: 1, wire.PROBLEM: "no profile"}
    for _ in range(3):
        run.round(replies={"1000": Reply(good(1).arrays, 9, words, 1.0)})
    assert [note for record in run.records for note in record.notes] == ["client 0: no profile"]


class TestAdvice:
    """Each kind of advice is given once."""

    @staticmethod
    def notes(run, word):
        return [note for record in run.records for note in record.notes if word in note]

    def in_turns(self, times, rounds=4, **more):
        """Run clients whose replies come after these seconds, of which the app takes `took`."""
        run = Run([App(**more) for _ in times])
        for _ in range(rounds):
            words = [
                {wire.TRAIN_SECONDS: took, wire.SAMPLES_USED: 60, wire.EPOCHS_READ: 1} for _, took in times
            ]
            replies = {
                str(1000 + k): Reply(good(1).arrays, 60, run.apps[k].about(k) | words[k], end)
                for k, (end, _) in enumerate(times)
            }
            run.round(replies=replies)
        return self.notes(run, "too few CPUs")

    def test_clients_that_wait_for_one_another(self):
        (note,) = self.in_turns([(1.1, 1.0), (2.2, 1.0), (3.1, 0.9), (4.2, 1.0)])
        assert note.startswith("clients 1, 2, 3: ")
        assert "num-supernodes=4 client-resources-num-cpus=1 init-args-num-cpus=4" in note
        (two_at_once,) = self.in_turns([(1.1, 1.0), (1.2, 1.1), (2.2, 1.0), (2.3, 1.1)])
        assert two_at_once.startswith("clients 2, 3: ")

    def test_clients_that_do_not(self):
        assert not self.in_turns([(1.1, 1.0), (2.1, 2.0), (5.1, 5.0)])  # unequal, at the same time
        assert not self.in_turns([(1.1, 0.1), (1.15, 0.1), (1.12, 0.1)])  # a slow engine, at the same time
        assert not self.in_turns([(0.11, 0.1), (0.22, 0.1), (0.33, 0.1)])  # tasks that hardly take time
        assert not self.in_turns([(2.1, 1.0), (2.9, 1.0), (2.2, 1.0)])  # an engine with unequal delays
        assert not self.in_turns([(0.1, 6.0), (0.1, 0.2)])  # claims that the round trip refutes
        assert not self.in_turns([(6.0, 1.0), (1.2, 1.0), (1.2, 1.0)])  # one process that starts late
        assert not self.in_turns([(1.1, 1.0), (2.2, 1.0)], rounds=2)  # processes may still be starting
        assert not self.in_turns([(1.1, 1.0), (2.2, 1.0)], simulated=False)  # no engine

    def test_the_overhead_of_the_engine_counts_after_the_first_round(self):
        """That of the client that waits least: the others wait for its worker."""
        app = App(capability=declared() | {wire.MAX_SAMPLES: 600})
        run = Run([app, app], cycle_time_s=5.0, estimation=Estimation())
        run.state = with_answers(
            with_nodes(run.state, run.nodes), run.options, {n: app.about(k) for k, n in enumerate(run.nodes)}
        )
        words = {wire.TRAIN_SECONDS: 1.0, wire.SAMPLES_USED: 300, wire.MODDED: 1, wire.SIMULATED: 1}
        replies = {n: Reply(good(1).arrays, 300, words, 6.0 + k) for k, n in enumerate(run.nodes)}
        expected = run.learner(1).estimate
        for seconds in (1.0, 6.0):
            run.round(replies=replies)
            work = 300 * run.row(1).epochs
            expected = expected.observe(work, 300, seconds, Estimation())
            assert run.learner(1).estimate.mean == expected.mean

    def test_a_client_that_returns_what_it_received(self):
        run = planned(3)
        for _ in range(2):
            run.round(replies={"1001": Reply(dict(MODEL), 60, {}, 1.0)})
        (note,) = self.notes(run, "exactly the arrays")
        assert note.startswith("client 1: ")
        run = planned(2)
        run.round(replies={str(1000 + k): Reply(dict(MODEL), 60, {}, 1.0) for k in range(2)})
        assert run.records[-1].notes[0].startswith("all clients: the app returned exactly")

    def test_an_app_that_cannot_follow_the_best_round(self):
        run = Run([App(chooses=False)], cycle_time_s="best")
        run.round()
        (note,) = run.records[0].notes
        assert "cycle_time_s='best' works like the default" in note
        run = Run([App(chooses=False)])
        run.round()
        assert "best" not in run.records[0].notes[0]
