"""Everything that parses a stranger's words, fed with 100,000 bent inputs: no crash, no harm to others.

The generator is seeded, so a failure repeats; `attacks.py` makes the inputs. A learner that is refused must
leave the honest learners' weights, outcomes and average as they are, bit for bit, when it merely fails.
"""

import json
import resource
import sys
import tracemalloc

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict
from flwr.common import (
    EvaluateRes,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.server.client_manager import SimpleClientManager
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import flwr_mel.server
import flwr_mel.serverapp
from flwr_mel import wire
from flwr_mel._npy import read_npy
from flwr_mel.clientapp import Assignment
from flwr_mel.learning import Learning
from flwr_mel.orchestrator import (
    Capability,
    Orchestrator,
    RefusedUpdate,
    Settings,
    Task,
    brief,
    check_update,
    odd_metrics,
    weighted_average,
)
from flwr_mel.orchestrator.updates import decode
from flwr_mel.records import Outcome
from flwr_mel.serverapp.replies import check_reply
from tests import attacks
from tests.attacks import COSTS, EVIL, MODEL, Client, OneRound, honest_words, npy, pick

#: Inputs per target. Whole cycles are slow, so most inputs go to the parsers that the cycles call.
PLANNED = {
    "bytes": 70_000,
    "words": 14_000,
    "replies": 5_000,
    "tasks": 12_000,
    "metrics": 3_000,
    "plans": 400,
    "message": 1_000,
    "classic": 1_000,
    "evaluations": 300,
    "hypothesis": 600,
}
NODES = (11, 12, 13)  # the last one is the attacker
OPTIONS = {"cycle_time_s": 2.0, "total_samples": 60, "seed": 3}


@pytest.fixture(autouse=True)
def _outside_of_flowers_runtime(monkeypatch):
    attacks.outside_runtime(monkeypatch)


def check_words(error, longest):
    """Reasons go to logs and records: one line, and not a long one."""
    assert len(str(error)) <= longest
    assert str(error).isprintable()


def inputs(target):
    rng = np.random.default_rng([2022, list(PLANNED).index(target)])
    for _ in range(PLANNED[target]):
        yield rng


def test_there_are_a_hundred_thousand_inputs():
    assert sum(PLANNED.values()) >= 100_000


# --- parsers ------------------------------------------------------------------------------------------


def test_bytes_are_decoded_as_numpy_does_or_refused():
    accepted, fine = 0, [npy(array) for array in MODEL.values()]
    for rng in inputs("bytes"):
        k = int(rng.integers(2))
        data = attacks.evil_bytes(rng, fine[k])
        try:
            array = read_npy(data)
        except ValueError as error:
            check_words(error, 200)
            continue
        accepted += 1
        assert array.nbytes <= len(data)
        # No other reader may see something else in the same bytes: inner strategies use numpy's.
        theirs = np.load(attacks.io.BytesIO(data), allow_pickle=False)
        assert (theirs.shape, theirs.dtype) == (array.shape, array.dtype)
        assert theirs.tobytes() == array.tobytes()
    assert accepted > 1_000


def test_words_are_understood_or_refused():
    able = 0
    for rng in inputs("words"):
        words = attacks.evil_words(rng)
        try:
            capability = Capability.parse(words, "fallback")
        except ValueError as error:
            check_words(error, 400)
            continue
        able += capability.able
        assert capability.learner.isprintable()
        assert 0 < len(capability.learner) <= 200
        assert capability.max_samples is None or 0 <= capability.max_samples <= 2**40
    assert able > 500


def task(samples=30):
    return Task("13", "3", 1, 2, samples, 5)


def test_replies_are_clean_or_refused():
    clean = 0
    for rng in inputs("replies"):
        content = attacks.evil_content(rng)
        try:
            reply = check_reply(content, task(), MODEL, "num-examples")
        except RefusedUpdate as refused:
            check_words(refused, 300)
            continue
        clean += 1
        assert 1 <= reply.weight <= 30
        again = reply.content(set(reply.metrics), ("arrays", "metrics"))
        assert (len(again.array_records), len(again.metric_records)) == (1, 1)
        for key, array in again["arrays"].items():
            assert np.isfinite(array.numpy()).all()
            assert (array.shape, array.dtype) == (MODEL[key].shape, str(MODEL[key].dtype))
    assert clean > 300


def test_tasks_from_a_malicious_server_are_understood_or_refused():
    fine = {wire.EPOCHS: 2, wire.SAMPLES: 2, wire.CYCLE: 1, wire.SEED: 7, f"{wire.SHARD}0": npy(MODEL["a"])}
    read = 0
    for rng in inputs("tasks"):
        words = dict(fine)
        for _ in range(int(rng.integers(1, 3))):
            key = pick(rng, list(fine))
            words[key] = (
                attacks.evil_value(rng) if rng.random() < 0.6 else attacks.evil_bytes(rng, npy(MODEL["a"]))
            )
        if rng.random() < 0.1:
            del words[key]
        try:
            if rng.random() < 0.05:
                message = Message(
                    RecordDict({"c": attacks.config(words)}), dst_node_id=1, message_type="train"
                )
                assigned = Assignment.from_message(message)
            else:
                assigned = Assignment.from_config(words)
        except (ValueError, KeyError) as error:
            check_words(error, 600)
            continue
        read += 1
        assert min(assigned.epochs, assigned.samples, assigned.cycle) >= 1
        assigned.rng()
        assert len(assigned.choose(10)) <= 10
        assert all(len(part) == assigned.samples for part in assigned.shard or ())
    assert read > 200


def test_one_learners_metrics_never_have_another_refused():
    for rng in inputs("metrics"):
        honest = {"num-examples": 3, "loss": 0.5, "parts": [1.0, 2.0]}
        said = {f"honest-{k}": honest for k in range(int(rng.integers(1, 4)))}
        evil = dict(honest)
        for _ in range(int(rng.integers(1, 4))):
            evil[attacks.metric_name(rng)] = attacks.evil_value(rng)
            evil.pop(pick(rng, ("loss", "parts", "none")), None)
        order = [*said.items(), ("evil", evil)]
        keys, odd = odd_metrics(dict(order if rng.random() < 0.5 else order[::-1]))
        assert set(odd) <= {"evil"}
        assert keys <= set(honest)
        if len(said) > 1:
            assert keys == set(honest)
        if not odd:
            assert np.isfinite(np.hstack([0.0, *(evil[key] for key in keys)])).all()


@given(hnp.arrays(st.sampled_from(attacks.DTYPES), hnp.array_shapes(min_dims=0, min_side=0), elements=None))
@settings(max_examples=PLANNED["hypothesis"] // 2, derandomize=True, deadline=None)
def test_what_numpy_writes_is_read(array):
    for order in ("C", "F"):
        back = read_npy(npy(np.asarray(array, order=order)))
        assert back.tobytes() == array.tobytes()
        assert not back.flags.writeable


@given(st.text() | st.binary().map(lambda b: b.decode("latin-1")), st.integers(0, 5))
@settings(max_examples=PLANNED["hypothesis"] // 2, derandomize=True, deadline=None)
def test_reasons_fit_one_line_of_a_log(text, times):
    for reason in (str(RefusedUpdate(text * 10**times)), brief(text * 10**times)):
        assert len(reason) <= 300
        assert reason.isprintable()


# --- whole cycles, Message API ----------------------------------------------------------------------------


def message_cycle(attack, inner=None):
    """Run a cycle with two honest learners and what `attack` makes of the third one's task."""
    inner = inner or flwr_mel.serverapp.MelFedAvg(fraction_evaluate=0.0, min_train_nodes=3)
    strategy = flwr_mel.serverapp.MelStrategy(inner, **OPTIONS)
    arrays = ArrayRecord({key: Array(value) for key, value in MODEL.items()})
    grid = OneRound({node: honest_words(i + 1) for i, node in enumerate(NODES)})
    replies = []
    for message in strategy.configure_train(1, arrays, ConfigRecord(), grid):
        node = message.metadata.dst_node_id
        message.metadata.__dict__["_message_id"] = f"task-{node}"
        if node == NODES[-1]:
            replies[:0] = attack(message)  # who is malicious is also quick
        else:
            replies.append(Message(attacks.honest_content(float(node)), reply_to=message))
    average, metrics = strategy.aggregate_train(1, replies)
    record = strategy.orchestrator.record
    strategy.orchestrator.close()
    return record, {key: array.numpy() for key, array in average.items()}, dict(metrics)


def check_cycle(record, average, failed, used_updates):
    """Compare a cycle with the one in which the third learner simply failed."""
    base_record, base = failed
    text = json.dumps(record.as_dict(), allow_nan=False)
    assert len(text) < 10_000
    rows = {row.node: row for row in record.learners}
    for row in base_record.learners[:2]:
        mine = rows[row.node]
        assert (mine.learner, mine.outcome, mine.epochs, mine.samples, mine.weight) == (
            row.learner, row.outcome, row.epochs, row.samples, row.weight,
        )  # fmt: skip
    evil = rows[str(NODES[-1])]
    assert evil.learner == "3"
    assert evil.reason.isprintable()
    assert evil.weight <= evil.samples
    assert all(note.isprintable() for note in record.notes)
    if evil.outcome is Outcome.USED:
        weights = [rows[str(node)].weight for node in NODES]
        expected = weighted_average(used_updates, weights)
    else:
        assert evil.weight == 0
        expected = list(base.values())
    for ours, theirs in zip(average.values(), expected, strict=True):
        assert ours.tobytes() == theirs.tobytes()
        assert np.isfinite(ours).all()
    return evil.outcome


def honest_update(node):
    return [value + value.dtype.type(float(node)) for value in MODEL.values()]


def fail(message):
    return [Message(Error(0, "broken"), reply_to=message)]


def test_whole_cycles_of_the_message_api():
    record, average, metrics = message_cycle(fail)
    outcomes = dict.fromkeys(Outcome, 0)
    for rng in inputs("message"):
        content = attacks.evil_content(rng)
        mine, ours, said = message_cycle(lambda m, c=content: [Message(c, reply_to=m)])
        update = [np.asarray(a.numpy()) for a in _arrays(content)] if _arrays(content) else None
        updates = [honest_update(NODES[0]), honest_update(NODES[1]), update]
        outcome = check_cycle(mine, ours, (record, average), updates)
        outcomes[outcome] += 1
        assert set(said) == set(metrics)
        assert np.isfinite(np.hstack(list(said.values()))).all()
        if outcome is not Outcome.USED:
            assert said == metrics
    assert outcomes[Outcome.USED] > 50
    assert outcomes[Outcome.REFUSED] > 100


def _arrays(content):
    """Return the arrays of a reply in the model's order, if it has such."""
    record = next(iter(content.array_records.values()), {})
    try:
        return [Array(record[k].numpy().astype(v.dtype)) for k, v in MODEL.items()]
    except Exception:
        return None


def test_the_first_reply_counts_and_nobody_answers_for_another():
    record, average, _ = message_cycle(fail)

    def twice(message):
        good, bad = attacks.honest_content(1.0), attacks.honest_content(99.0)
        return [Message(good, reply_to=message), Message(bad, reply_to=message)]

    _, once, _ = message_cycle(lambda m: twice(m)[:1])
    _, both, _ = message_cycle(twice)
    assert all(once[k].tobytes() == both[k].tobytes() for k in MODEL)

    def as_another(message):
        reply = Message(attacks.honest_content(99.0), reply_to=message)
        reply.metadata.__dict__["_reply_to_message_id"] = f"task-{NODES[0]}"
        return [reply]

    mine, ours, _ = message_cycle(as_another)
    assert check_cycle(mine, ours, (record, average), None) is Outcome.LATE


# --- whole cycles, classic API ----------------------------------------------------------------------------


def join(metrics):
    total = sum(n for n, _ in metrics)
    return {"loss": sum(n * m["loss"] for n, m in metrics) / total, "tag": metrics[0][1]["tag"]}


def classic_cycle(result):
    inner = flwr_mel.server.MelFedAvg(min_fit_clients=3, fit_metrics_aggregation_fn=join)
    strategy = flwr_mel.server.MelStrategy(inner, **OPTIONS)
    manager = SimpleClientManager()
    for i, node in enumerate(NODES):
        manager.register(Client(node, honest_words(i + 1)))
    results = []
    for proxy, _ in strategy.configure_fit(1, ndarrays_to_parameters(list(MODEL.values())), manager):
        if proxy.cid != str(NODES[-1]):
            results.append((proxy, attacks.honest_result(float(proxy.cid))))
        elif result is not None:
            results.append((proxy, result))
    parameters, metrics = strategy.aggregate_fit(1, results, [])
    record = strategy.orchestrator.record
    strategy.orchestrator.close()
    return record, dict(zip(MODEL, parameters_to_ndarrays(parameters), strict=True)), metrics


def test_whole_cycles_of_the_classic_api():
    record, average, metrics = classic_cycle(None)
    outcomes = dict.fromkeys(Outcome, 0)
    for rng in inputs("classic"):
        result = attacks.evil_result(rng)
        mine, ours, said = classic_cycle(result)
        tensors = result.parameters.tensors
        try:
            update = check_update([read_npy(t) for t in tensors], list(MODEL.values()))
        except ValueError:
            update = None
        updates = [honest_update(NODES[0]), honest_update(NODES[1]), update]
        outcome = check_cycle(mine, ours, (record, average), updates)
        outcomes[outcome] += 1
        assert np.isfinite(said["loss"])
        if outcome is not Outcome.USED:
            assert said == metrics
    assert outcomes[Outcome.USED] > 50
    assert outcomes[Outcome.REFUSED] > 100


# --- evaluation ---------------------------------------------------------------------------------------------


def test_evaluations_never_end_the_run():
    message = flwr_mel.serverapp.MelStrategy(flwr_mel.serverapp.MelFedAvg(), **OPTIONS)
    classic = flwr_mel.server.MelStrategy(flwr_mel.server.MelFedAvg(), **OPTIONS)
    to = [Message(RecordDict(), dst_node_id=node, message_type="evaluate") for node in NODES]
    for rng in inputs("evaluations"):
        contents = [attacks.honest_content(0.5), attacks.honest_content(0.5), attacks.evil_content(rng)]
        replies = [Message(content, reply_to=asked) for content, asked in zip(contents, to, strict=True)]
        metrics = dict(message.aggregate_evaluate(1, replies))
        assert set(metrics) == {"loss", "parts"}
        assert np.isfinite([metrics["loss"], *metrics["parts"]]).all()
        evil = attacks.evil_result(rng)
        number = pick(rng, attacks.NUMBERS)
        results = [EvaluateRes(evil.status, 1.5, 10, {"acc": 0.5})] * 2
        results += [EvaluateRes(evil.status, number, evil.num_examples, evil.metrics)]
        clients = [Client(node, {}) for node in NODES]
        loss, _ = classic.aggregate_evaluate(1, list(zip(clients, results, strict=True)), [])
        assert np.isfinite(loss)


# --- capabilities and names ---------------------------------------------------------------------------------


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
        brain.settle(used, {}, {"13": attacks.evil_words(rng)})
        record = brain.record
        brain.close()
        assert len(json.dumps(record.as_dict(), allow_nan=False)) < 10_000
        assert {"11", "12"} <= {task.node for task in brain.plan(2, nodes).tasks}


def test_a_name_belongs_to_one_learner_at_a_time():
    brain = Orchestrator(Settings(**OPTIONS))
    brain.state.remembered = {"1": 4.0}
    brain.strangers(["11", "12"])
    brain.hear("11", honest_words(1))
    brain.hear("12", honest_words(1))
    assert [brain.state.learners[node].name for node in ("11", "12")] == ["1", "12"]
    assert [brain.state.learners[node].slowdown for node in ("11", "12")] == [4.0, 1.0]
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
    assert [brain.state.learners[node].name for node in ("11", "14")] == ["11", "1"]


@pytest.mark.parametrize("limit", [None, 50])
def test_claims_of_endless_data_do_not_end_the_run(limit):
    brain = Orchestrator(Settings(cycle_time_s=2.0, max_samples=limit))
    for k in (1, 2, 3):
        brain.hear(f"n{k}", {**honest_words(k), wire.MAX_SAMPLES: 100 if k < 3 else 2**40})
    plan = brain.plan(1, ["n1", "n2", "n3"])
    assert {task.node for task in plan.tasks} == {"n1", "n2", "n3"}
    assert brain.record.asked_samples == (2**40 if limit is None else 150)


def test_one_learner_cannot_end_the_run_while_the_others_are_silent():
    brain = Orchestrator(Settings(cycle_time_s=2.0, total_samples=60))
    brain.hear("n1", None)
    brain.hear("n2", {wire.CPU_HZ: 1e9, wire.RATE_BPS: 1e6, wire.TX_POWER_W: 0.1})  # no workload is given
    assert brain.plan(1, ["n1", "n2"]).tasks == ()
    brain.hear("n1", honest_words(1))
    assert [task.node for task in brain.plan(2, ["n1", "n2"]).tasks] == ["n1"]


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


# --- resources and side effects -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        attacks.npy_claiming("<f4", "(100000000000,)", b"\x00" * 24),
        attacks.npy_claiming("|S0", "(100000000000,)", b""),
        attacks.npy_claiming("<f4", "(" * 4000, b""),
        attacks.ARCHIVE,
        *attacks.PICKLES,
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
    ],
    ids=["huge", "nothing-often", "nested", "archive", "pickle", "objects", "header"],
)
def test_bombs_do_not_go_off(data):
    tracemalloc.start()
    try:
        with pytest.raises(RefusedUpdate, match=r"decoded|bytes"):
            decode("a", data, MODEL["a"])
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


WATCHED = ("open", "os.", "shutil.", "subprocess.", "socket.", "pickle.", "exec", "import", "ctypes.")
_seen = []
_watching = [False]


def _watch(event, args):
    if _watching[0] and event.startswith(WATCHED):
        _seen.append((event, str(args)[:200]))


def test_nothing_a_learner_sends_reaches_the_disk_or_is_executed():
    message_cycle(fail)
    classic_cycle(None)  # what is imported late is imported now
    sys.addaudithook(_watch)
    rng = np.random.default_rng(1)
    for _ in range(60):
        content, result = attacks.evil_content(rng), attacks.evil_result(rng)
        content[wire.RECORD] = ConfigRecord({wire.LEARNER: EVIL, **COSTS})
        _watching[0] = True
        try:
            message_cycle(lambda m, c=content: [Message(c, reply_to=m)])
            classic_cycle(result)
        finally:
            _watching[0] = False
    touched = [seen for seen in _seen if seen[0] != "exec" or EVIL in seen[1]]
    # Python's own: numpy evaluates the header of the checked arrays, threads are started for the probes.
    assert [seen for seen in touched if seen[0] not in ("import",)] == []
    _watching[0] = True
    with open(__file__, encoding="utf-8"):
        _watching[0] = False
    assert any(event == "open" for event, _ in _seen)  # the watch works


def test_memory_stays_bounded():
    """The peak of this process after all the inputs above, whichever of them ran here."""
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rng = np.random.default_rng(2)
    for _ in range(50):
        content = attacks.evil_content(rng)
        message_cycle(lambda m, c=content: [Message(c, reply_to=m)])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_kb < 100_000
