"""The round brain alone: plain Python, no Flower types."""

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_mel import Device, Infeasible, Workload, wire
from flwr_mel.clientapp import Assignment, describe
from flwr_mel.learners import Measured
from flwr_mel.orchestrator import (
    Capability,
    Orchestrator,
    RefusedUpdate,
    Settings,
    Stopping,
    brief,
    check_update,
    check_weight,
    odd_metrics,
    weighted_average,
)
from flwr_mel.orchestrator.messages import task_words
from flwr_mel.orchestrator.planning import draw_seeds
from flwr_mel.records import CycleRecord, LearnerRecord, Outcome

MEASURED = dict(zip(wire.COEFFICIENTS, (1e-3, 1e-3, 0.1, 1e-4, 0.0, 0.1), strict=True))


def words(k=0, **more):
    return {wire.LEARNER: str(k), wire.MAX_SAMPLES: 100, **MEASURED, **more}


def made(learners=4, **options):
    defaults = {"cycle_time_s": 2.0, "total_samples": 100, "seed": 5}
    brain = Orchestrator(Settings(**(defaults | options)))
    for k in range(learners):
        brain.hear(f"n{k}", words(k))
    return brain


def nodes(brain):
    return list(brain.state.learners)


def finish(brain, plan, **metrics):
    brain.settle({task.node: task.samples for task in plan.tasks}, {}, {})
    record = brain.record
    brain.observe(metrics)
    brain.close()
    return record


# --- planning -------------------------------------------------------------------------------------------


def test_a_cycle_from_question_to_record():
    kept = []
    brain = Orchestrator(Settings(cycle_time_s=2.0, total_samples=50), [kept.append])
    assert brain.strangers(["a", "b"]) == ["a", "b"]
    brain.hear("a", words(1))
    brain.hear("b", words(0))
    assert brain.strangers(["a", "b", "c"]) == ["c"]
    plan = brain.plan(1, ["a", "b"])
    assert [task.learner for task in plan.tasks] == ["0", "1"]
    assert sum(task.samples for task in plan.tasks) == 50
    report = {wire.TRAIN_SECONDS: 1.5, wire.TRAIN_JOULES: 0.25}
    brain.settle({"a": plan.tasks[1].samples}, {"b": (Outcome.REFUSED, "why")}, {"a": report})
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
    seeds = draw_seeds(1, 1, 1000) + draw_seeds(1, 2, 1000) + draw_seeds(2, 1, 1000)
    assert len(set(seeds)) == 3000
    assert min(seeds) >= 0
    assert max(seeds) < 2**63
    assert draw_seeds(1, 1, 10) == draw_seeds(1, 1, 1000)[:10]


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


# --- capabilities ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, 1e300, "fast", b"\xff", True, [1.0], 10**400])
@pytest.mark.parametrize("key", [wire.CPU_HZ, wire.COEFFICIENTS[0], wire.ENERGY_LIMIT_J, wire.MAX_SAMPLES])
def test_impossible_words_leave_a_newcomer_out_and_an_acquaintance_as_it_was(key, bad):
    brain = made(2)
    brain.hear("n1", {**words(1), key: bad})
    brain.hear("new", {**words(9), key: bad})
    plan = brain.plan(1, [*nodes(brain)])
    if bad == 10**400 or not (key == wire.CPU_HZ and bad == 1e300):
        assert [task.learner for task in plan.tasks] == ["0", "1"]
    left = brain.record.learners[-1]
    assert left.learner == "9"
    assert "refused" in left.reason
    assert key in left.reason
    assert any(note.startswith("1: its capabilities are refused") for note in brain.record.notes)


ANYTHING = st.one_of(
    st.floats(),
    st.integers(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.booleans(),
    st.none(),
    st.lists(st.floats(), max_size=2),
)


@given(st.dictionaries(st.sampled_from((*wire.CAPABILITY_KEYS, wire.TRAIN_SECONDS, "other")), ANYTHING))
@settings(max_examples=200, deadline=None)
def test_nothing_a_learner_says_breaks_the_cycle(said):
    brain = made(3, workload=Workload.mlp((8, 4), ship_data=False), cycle_time_s=20.0, max_epochs=50)
    brain.hear("n2", said)
    brain.hear("new", said)
    plan = brain.plan(1, nodes(brain))
    assert {"0", "1"} <= {task.learner for task in plan.tasks}
    brain.settle({t.node: t.samples for t in plan.tasks}, {}, {"n0": said})
    brain.close()


def test_silence_erases_nothing():
    brain = made(2)
    brain.hear("n1", None)
    brain.hear("n1", {})
    assert len(brain.plan(1, nodes(brain)).tasks) == 2


def test_limits_alone_update_what_is_known():
    brain = made(1)
    brain.hear("n0", {wire.LEARNER: "0", wire.MAX_SAMPLES: 7, wire.BATTERY_J: 3.0})
    known = brain.state.learners["n0"].capability
    assert (known.max_samples, known.battery_j, known.measured) == (7, 3.0, tuple(MEASURED.values()))


def test_the_default_profile_is_for_the_silent_and_keeps_the_limits_they_give():
    device = Device(1e9, 1e7, 0.1, max_samples=40)
    brain = made(0, default_profile=device, workload=Workload.mlp((8, 4), ship_data=False), max_epochs=9)
    brain.hear("a", None)
    brain.hear("b", {wire.LEARNER: "b", wire.MAX_SAMPLES: 30})
    brain.hear("c", {wire.LEARNER: "c", wire.CPU_HZ: -1.0})
    brain.plan(1, nodes(brain))
    given_out = {row.learner: row.samples for row in brain.record.learners}
    assert sum(given_out.values()) == 100
    assert max(given_out["a"], given_out["c"]) <= 40
    assert 0 < given_out["b"] <= 30
    assert any(note.startswith("c: its capabilities are refused") for note in brain.record.notes)


def test_physical_values_without_a_workload_are_the_users_mistake():
    brain = Orchestrator(Settings(cycle_time_s=1.0, total_samples=10))
    brain.hear("a", describe(Device(1e9, 1e7, 0.1), learner="a"))
    with pytest.raises(ValueError, match=r"learner 'a' gives physical values .* needs workload="):
        brain.plan(1, ["a"])
    mixed = made(2)
    mixed.hear("a", describe(Device(1e9, 1e7, 0.1), learner="a"))
    assert len(mixed.plan(1, nodes(mixed)).tasks) == 2
    assert "workload=" in mixed.record.learners[-1].reason


def test_federated_learning_without_a_total_needs_to_know_the_data():
    brain = Orchestrator(Settings(cycle_time_s=1.0))
    brain.hear("a", MEASURED)
    with pytest.raises(ValueError, match="total_samples= is not given"):
        brain.plan(1, ["a"])
    brain.hear("b", words("b"))
    plan = brain.plan(1, ["a", "b"])
    assert [(t.learner, t.samples) for t in plan.tasks] == [("b", 100)]


def test_a_learner_too_fast_for_exact_arithmetic_is_refused():
    brain = made(2, cycle_time_s=100.0)
    brain.hear("n1", words(1, **{wire.COEFFICIENTS[0]: 1e-15}))
    assert [t.learner for t in brain.plan(1, nodes(brain)).tasks] == ["0"]
    assert "too fast" in brain.record.learners[1].reason


def test_a_device_survives_the_words_of_the_wire():
    device = Device(
        2e9, 1e7, 0.3, energy_limit_j=4.0, max_samples=9, capacitance=2e-28, exponent=1.5, name="a"
    )
    assert Capability.parse(describe(device, battery_j=8.0), "?") == Capability(
        "a", device=device_without_limits(device), energy_limit_j=4.0, max_samples=9, battery_j=8.0
    )
    measured = Measured(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, max_samples=3, name="m")
    parsed = Capability.parse(describe(measured), "?")
    assert (parsed.measured, parsed.max_samples, parsed.learner) == ((1, 2, 3, 4, 5, 6), 3, "m")


def device_without_limits(d):
    return Device(
        d.cpu_hz, d.rate_bps, d.tx_power_w, capacitance=d.capacitance, exponent=d.exponent, name=d.name
    )


# --- policies -------------------------------------------------------------------------------------------


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
    with pytest.raises(ValueError, match="lower min_samples or use more samples"):
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
    for cycle in range(1, 6):
        plan = brain.plan(cycle, nodes(brain))
        late = {"n0": (Outcome.LATE, "no reply in time")} if cycle == 1 else {}
        brain.settle({t.node: t.samples for t in plan.tasks if t.node not in late}, late, {})
        record = brain.record
        brain.close()
        factors.append(record.learners[0].slowdown)
        assert record.makespan_s == (2.0 if cycle == 1 else max(r.time_s for r in record.learners))
    assert factors == pytest.approx([1.0, 1.5, 1.35, 1.215, 1.0935])


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
    brain.settle({}, {t.node: (Outcome.LATE, "late") for t in plan.tasks}, {})
    brain.close()
    fresh = made(0, stopping=Stopping(cycles=3))
    fresh.state.restore(brain.state.snapshot())
    for k in range(4):
        fresh.hear(f"other{k}", words(k))
    assert fresh.cycle_of(1) == 2
    there, here = brain.plan(2, nodes(brain)), fresh.plan(2, nodes(fresh))
    assert [(t.learner, t.epochs, t.samples, t.seed) for t in there.tasks] == [
        (t.learner, t.epochs, t.samples, t.seed) for t in here.tasks
    ]
    assert fresh.state.clock_s == brain.state.clock_s == 2.0


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"cycle_time_s": 0}, "cycle_time_s must be"),
        ({"mode": "both"}, "mode must be one of 'federated', 'parallelized'"),
        ({"mode": "parallelized"}, "dataset must be a tuple of arrays"),
        ({"dataset": (np.zeros(3),)}, "left out in federated mode"),
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


# --- updates --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("claim", [math.nan, math.inf, "many", None, True, [3], 10**400, 0, -5, 2.5, 7, 99])
def test_nobody_counts_for_more_than_was_allocated(claim):
    good = {None: 7, 2.5: 2, 7: 7, 99: 7}
    if not isinstance(claim, list) and claim is not True and claim in good:
        assert check_weight(claim, 7) == good[claim]
    else:
        with pytest.raises(RefusedUpdate):
            check_weight(claim, 7)


def test_updates_must_fit_the_model():
    model = [np.zeros((2, 3), np.float32), np.zeros(2, np.int64)]
    fine = [np.ones((2, 3)), np.ones(2, np.int32)]
    assert [a.dtype for a in check_update(fine, model)] == [np.float32, np.int64]
    for bad in (
        [fine[0]],
        [fine[0].T, fine[1]],
        [fine[0] * np.nan, fine[1]],
        [fine[0] * 1e300, fine[1]],
        [fine[0], fine[1].astype(float)],
    ):
        with pytest.raises(RefusedUpdate):
            check_update(bad, model)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_the_average_stays_within_the_updates(weights, seed):
    rng = np.random.default_rng(seed)
    updates = [[rng.normal(size=3).astype(np.float32), rng.integers(0, 9, 2)] for _ in weights]
    real, whole = weighted_average(updates, weights)
    assert (real.dtype, whole.dtype) == (np.float32, np.int64)
    exact = np.average([u[0].astype(float) for u in updates], axis=0, weights=weights)
    np.testing.assert_allclose(real, exact, rtol=1e-6, atol=1e-6)


def test_metrics_that_nobody_else_has():
    said = {"a": {"loss": 1.0}, "b": {"loss": 2.0, "more": 1.0}, "c": {"loss": 1.0}, "d": {"other": 1.0}}
    assert odd_metrics(said) == ({"loss"}, {"d": "its metrics do not fit the others': loss"})
    lists = {"a": {"m": [1.0, 2.0]}, "b": {"m": [1.0, 2.0]}, "c": {"m": [1.0]}}
    assert set(odd_metrics(lists)[1]) == {"c"}
    assert odd_metrics({}) == (set(), {})


def test_a_traceback_is_shortened_to_its_last_line():
    text = "<class 'X'>:<'\x1b[36mray::run()\x1b[39m\n  File ...\nValueError: no disk'>"
    assert brief(text) == "ValueError: no disk"
    assert brief("") == "no reason given"
    assert len(brief("x" * 9999)) == 300


# --- records --------------------------------------------------------------------------------------------


def test_ten_thousand_learners_are_on_record_fast_and_completely():
    rows = [LearnerRecord(str(k), f"n{k}", energy_limit_j=math.inf) for k in range(10_000)]
    record = CycleRecord(1, 2.0, learners=rows, metrics={"loss": math.nan})
    start = time.perf_counter()
    data = record.as_dict()
    assert time.perf_counter() - start < 1.0
    assert data["learners"][0]["energy_limit_j"] is None
    assert data["learners"][0]["outcome"] == "left out"
    back = CycleRecord.from_dict(data)
    assert math.isnan(back.metrics["loss"])
    assert back.learners[-1].learner == "9999"
