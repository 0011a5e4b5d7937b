"""Whole cycles with one malicious learner.

When it is refused, the honest learners' weights, outcomes and average are, bit for bit, as if it had failed.
"""

import json

import numpy as np
from flwr.app import Array, Message, RecordDict
from flwr.common import EvaluateRes

import flwr_mel.server
import flwr_mel.serverapp
from flwr_mel._npy import read_npy
from flwr_mel.orchestrator import check_update, weighted_average
from flwr_mel.records import Outcome
from tests import attacks
from tests.attacks import MODEL, Client, pick
from tests.fuzz.tools import NODES, OPTIONS, classic_cycle, fail, inputs, message_cycle


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
    assert outcomes[Outcome.USED] > sum(outcomes.values()) / 20
    assert outcomes[Outcome.REFUSED] > sum(outcomes.values()) / 10


def _arrays(content):
    """Return the arrays of a reply in the model's order, if it has such."""
    record = next(iter(content.array_records.values()), {})
    try:
        return [Array(record[k].numpy()) for k in MODEL]
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
    assert outcomes[Outcome.USED] > sum(outcomes.values()) / 20
    assert outcomes[Outcome.REFUSED] > sum(outcomes.values()) / 10


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
