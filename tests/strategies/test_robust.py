"""Flower's robust aggregation and differential privacy inside MelStrategy, against one learner that lies.

No engine: the strategies are driven as Flower's loop does, with real messages and results.
"""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import strategy as classic
from flwr.server.client_manager import SimpleClientManager
from flwr.serverapp import strategy as message

import flwr_mel.server
import flwr_mel.serverapp
from flwr_mel import wire
from flwr_mel.orchestrator import weighted_average
from flwr_mel.records import Outcome
from tests import attacks
from tests.attacks import COSTS, MODEL, Client, OneRound
from tests.strategies.drive import FIRST

K, LIAR = 9, 4
# These are about weights of exactly the allocated samples; the bound on shares has tests of its own.
OPTIONS = {"cycle_time_s": 3.0, "total_samples": 400, "staleness": 3, "seed": 1, "max_share": None}
MANY = {"min_train_nodes": K, "min_available_nodes": K}
CLASSIC = {"min_fit_clients": K, "min_available_clients": K}


@pytest.fixture(autouse=True)
def _outside_of_flowers_runtime(monkeypatch):
    attacks.outside_runtime(monkeypatch)


def words(k):
    """Learners of different speeds, so that their shares differ."""
    slower = {key: (1 + k) * COSTS[key] for key in wire.COEFFICIENTS[:2]}
    return {wire.LEARNER: str(k), wire.MAX_SAMPLES: 200, **COSTS, **slower}


def honest(k):
    return [value + value.dtype.type(0.01 * (k + 1)) for value in MODEL.values()]


def update(k, factor):
    """What learner k sends: the liar turns its step around and scales it."""
    if k != LIAR:
        return honest(k)
    pairs = zip(honest(k), MODEL.values(), strict=True)
    return [old - old.dtype.type(factor) * (new - old) for new, old in pairs]


def through_messages(inner, factor):
    """Run one cycle; return the new model and the rows of the record."""
    strategy = flwr_mel.serverapp.MelStrategy(inner, **OPTIONS)
    arrays = ArrayRecord({key: Array(value) for key, value in MODEL.items()})
    grid = OneRound({FIRST + k: words(k) for k in range(K)})
    replies = []
    for sent in strategy.configure_train(1, arrays, ConfigRecord(), grid):
        k = sent.metadata.dst_node_id - FIRST
        sent.metadata.__dict__["_message_id"] = f"task-{k}"
        mine = ArrayRecord({key: Array(a) for key, a in zip(MODEL, update(k, factor), strict=True)})
        content = RecordDict({"arrays": mine, "metrics": MetricRecord({"num-examples": 10**6, "loss": 1.0})})
        replies.append(Message(content, reply_to=sent))
    average, _ = strategy.aggregate_train(1, replies)
    return [average[key].numpy() for key in MODEL], strategy.orchestrator.record.learners


def through_results(inner, factor):
    """Do the same in the classic API."""
    strategy = flwr_mel.server.MelStrategy(inner, **OPTIONS)
    manager = SimpleClientManager()
    for k in range(K):
        manager.register(Client(FIRST + k, words(k)))
    results = []
    for proxy, _ in strategy.configure_fit(1, ndarrays_to_parameters(list(MODEL.values())), manager):
        mine = ndarrays_to_parameters(update(int(proxy.cid) - FIRST, factor))
        results.append((proxy, FitRes(Status(Code.OK, ""), mine, 10**6, {})))
    parameters, _ = strategy.aggregate_fit(1, results, [])
    return parameters_to_ndarrays(parameters), strategy.orchestrator.record.learners


def off(model, rows):
    """Largest distance from the honest learners' average by allocated samples."""
    trusted = [int(row.learner) for row in rows if row.learner != str(LIAR)]
    weights = [row.samples for row in rows if row.learner != str(LIAR)]
    expected = weighted_average([honest(k) for k in trusted], weights)
    return max(float(np.abs(a - b).max()) for a, b in zip(model, expected, strict=True))


ROBUST = {
    "Krum": (through_messages, lambda: message.Krum(num_malicious_nodes=1, **MANY)),
    "MultiKrum": (
        through_messages,
        lambda: message.MultiKrum(num_malicious_nodes=1, num_nodes_to_select=4, **MANY),
    ),
    "FedTrimmedAvg": (through_messages, lambda: message.FedTrimmedAvg(beta=0.2, **MANY)),
    "FedMedian": (through_messages, lambda: message.FedMedian(**MANY)),
    "Bulyan": (through_messages, lambda: message.Bulyan(num_malicious_nodes=1, **MANY)),
    "Krum, classic": (through_results, lambda: classic.Krum(num_malicious_clients=1, **CLASSIC)),
    "MultiKrum, classic": (
        through_results,
        lambda: classic.Krum(num_malicious_clients=1, num_clients_to_keep=4, **CLASSIC),
    ),
    "FedTrimmedAvg, classic": (through_results, lambda: classic.FedTrimmedAvg(beta=0.2, **CLASSIC)),
    "FedMedian, classic": (through_results, lambda: classic.FedMedian(**CLASSIC)),
    "Bulyan, classic": (
        through_results,
        lambda: classic.Bulyan(num_malicious_clients=1, to_keep=0, **CLASSIC),
    ),
}
PLAIN = {
    "FedAvg": (through_messages, lambda: message.FedAvg(**MANY)),
    "FedAvg, classic": (through_results, lambda: classic.FedAvg(**CLASSIC)),
}


@pytest.mark.parametrize("factor", [1e2, 1e6, 1e15])
@pytest.mark.parametrize("name", ROBUST)
def test_robust_aggregation_stays_with_the_honest(name, factor):
    drive, inner = ROBUST[name]
    model, rows = drive(inner(), factor)
    assert all(row.outcome is Outcome.USED for row in rows)
    # Honest updates lie within 0.01 to 0.09 of the old model.
    assert off(model, rows) <= 0.08


@pytest.mark.parametrize("name", PLAIN)
def test_plain_averaging_does_not(name):
    drive, inner = PLAIN[name]
    model, rows = drive(inner(), 1e6)
    assert off(model, rows) > 100
    # But the liar counts for no more than its share, although it claims a million samples.
    (liar,) = [row for row in rows if row.learner == str(LIAR)]
    expected = weighted_average([update(int(r.learner), 1e6) for r in rows], [r.samples for r in rows])
    assert liar.weight == liar.samples < OPTIONS["total_samples"] / 2
    for ours, theirs in zip(model, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4)


@pytest.mark.parametrize("drive", [through_messages, through_results])
def test_what_would_overflow_is_refused(drive):
    inner = message.FedAvg(**MANY) if drive is through_messages else classic.FedAvg(**CLASSIC)
    model, rows = drive(inner, 1e18)
    (liar,) = [row for row in rows if row.learner == str(LIAR)]
    first = "a" if drive is through_messages else "0"
    reason = f"array {first} has values that are larger than 1e+15"
    assert (liar.outcome, liar.reason) == (Outcome.REFUSED, reason)
    assert off(model, rows) < 1e-6


@pytest.mark.parametrize("name", ["MultiKrum", "MultiKrum, classic"])
def test_multi_krum_weights_those_it_keeps_by_allocated_samples(name):
    drive, _ = ROBUST[name]
    if drive is through_messages:
        inner = message.MultiKrum(num_malicious_nodes=1, num_nodes_to_select=K - 1, **MANY)
    else:
        inner = classic.Krum(num_malicious_clients=1, num_clients_to_keep=K - 1, **CLASSIC)
    model, rows = drive(inner, 1e6)
    assert len({row.samples for row in rows}) > 1
    assert off(model, rows) < 1e-6


@pytest.mark.parametrize("name", ["FedMedian", "FedMedian, classic"])
def test_the_median_takes_no_weights(name):
    drive, inner = ROBUST[name]
    model, _ = drive(inner(), 1e6)
    middle = [np.median(layers, axis=0) for layers in zip(*(update(k, 1e6) for k in range(K)), strict=True)]
    for ours, theirs in zip(model, middle, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def private(drive, noise, clip):
    if drive is through_messages:
        wrapper, inner = message.DifferentialPrivacyServerSideFixedClipping, message.FedAvg(**MANY)
    else:
        wrapper, inner = classic.DifferentialPrivacyServerSideFixedClipping, classic.FedAvg(**CLASSIC)
    return wrapper(inner, noise, clip, K)


def moved(model):
    pairs = zip(model, MODEL.values(), strict=True)
    return float(np.sqrt(sum(((new - old) ** 2).sum() for new, old in pairs)))


@pytest.mark.parametrize("drive", [through_messages, through_results])
def test_private_aggregation_clips_everybody(drive):
    """Whatever the liar sends, the average moves by at most the clipping norm."""
    clip = 0.05
    model, rows = drive(private(drive, 0.0, clip), 1e6)
    assert all(row.outcome is Outcome.USED for row in rows)
    assert 0 < moved(model) <= clip * 1.001
    total = sum(row.weight for row in rows)
    steps = []
    for row in rows:
        step = [new - old for new, old in zip(update(int(row.learner), 1e6), MODEL.values(), strict=True)]
        norm = np.sqrt(sum((s.astype(float) ** 2).sum() for s in step))
        steps.append([row.weight / total * min(1, clip / norm) * s for s in step])
    for ours, old, *parts in zip(model, MODEL.values(), *steps, strict=True):
        np.testing.assert_allclose(ours - old, sum(parts), atol=1e-6)


@pytest.mark.parametrize("drive", [through_messages, through_results])
def test_private_aggregation_adds_noise(drive):
    quiet, _ = drive(private(drive, 0.0, 0.05), 1.0)
    noisy, _ = drive(private(drive, 1000.0, 0.05), 1.0)
    # Standard deviation 1000 * 0.05 / 9 = 5.6 per weight, ten weights.
    assert moved(quiet) < 0.1 < 1 < moved(noisy) < 100
