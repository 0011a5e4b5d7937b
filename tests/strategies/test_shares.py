"""Whose data count: shares on the record, the word about neglected data, and what it does to digits."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from sklearn.datasets import load_digits

from flwr_mel import wire
from flwr_mel.orchestrator import Settings
from flwr_mel.orchestrator.shares import CYCLES, blended
from flwr_mel.records import CycleRecord, LearnerRecord, Outcome
from tests.strategies.drive import APIS, words
from tests.strategies.test_average import PACKAGES

LEARNERS, SLOW = 8, (6, 7)
#: The slow two alone hold the digits 8 and 9, as much as everybody holds.
RARE = (8, 9)
SETTINGS = {
    "cycle_time_s": 1.0,
    "max_epochs": 3,
    "staleness": 2,
    "min_samples": 8,
    "probe_timeout_s": 20.0,
    "stragglers": "keep",
}


@cache
def digits():
    """Training data per learner, and test data."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    x, y = x[order] / 16, y[order]
    (x, x_test), (y, y_test) = (x[:1400], x[1400:]), (y[:1400], y[1400:])
    rare = np.isin(y, RARE)
    fast = [rows[:140] for rows in np.array_split(np.flatnonzero(~rare), LEARNERS - len(SLOW))]
    slow = [rows[:140] for rows in np.array_split(np.flatnonzero(rare), len(SLOW))]
    return [(x[rows], y[rows]) for rows in fast + slow], (x_test, y_test)


def said(k):
    """The slow ones take 30 times as long."""
    return {
        **words(k),
        wire.MAX_SAMPLES: len(digits()[0][k][1]),
        wire.COEFFICIENTS[0]: 2e-3 * (30 if k in SLOW else 1),
    }


def fit(arrays, x, y, epochs, seed):
    """Softmax regression by SGD in batches of 8."""
    w, b = arrays["w"].astype(float), arrays["b"].astype(float)
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        order = rng.permutation(len(y))
        for rows in np.array_split(order, max(len(y) // 8, 1)):
            scores = x[rows] @ w + b
            p = np.exp(scores - scores.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            p[np.arange(len(rows)), y[rows]] -= 1
            w -= 0.05 * x[rows].T @ p / len(rows)
            b -= 0.05 * p.mean(axis=0)
    return {"w": w.astype(np.float32), "b": b.astype(np.float32)}


def train(api, average, cycles=15, **settings):
    """Train for some cycles; return the accuracy in all, that on the rare digits, and the strategy."""
    kind = APIS[api]
    inner = PACKAGES[api].MelFedAvg()
    strategy = kind.strategy(inner, **{**SETTINGS, "average": average, **settings})
    model = {"w": np.zeros((64, 10), np.float32), "b": np.zeros(10, np.float32)}
    driver = kind(strategy, LEARNERS, model, said=said)

    def client(k, cycle, arrays):
        epochs, samples = driver.tasks[k]
        rng = np.random.default_rng([k, cycle])
        x, y = digits()[0][k]
        rows = rng.choice(len(y), min(samples, len(y)), replace=False)
        return fit(arrays, x[rows], y[rows], epochs, [k, cycle, 1]), {}

    for cycle in range(1, cycles + 1):
        driver.cycle(cycle, client)
        strategy.orchestrator.close()
    x, y = digits()[1]
    right = (x @ driver.arrays()["w"] + driver.arrays()["b"]).argmax(axis=1) == y
    return right.mean(), right[np.isin(y, RARE)].mean(), strategy


@pytest.mark.parametrize("api", APIS)
def test_what_only_slow_devices_have_is_learnt_when_data_count_as_they_are_held(api):
    everything, rare, paper = train(api, "samples")
    assert rare == 0
    better, found, nova = train(api, "nova-held")
    assert found > 0.8
    assert better > everything + 0.1
    row = {int(r.learner): r for r in paper.records[-1].learners}
    assert all(0 < row[k].share < 0.005 for k in SLOW)
    row = {int(r.learner): r for r in nova.records[-1].learners}
    assert all(row[k].share == row[k].held / sum(r.held for r in row.values()) for k in row)


def notes(strategy):
    """What was said in which cycle about shares."""
    return [
        (r.cycle, text)
        for r in strategy.records
        for text in r.notes
        if "count for" in text or "hold is" in text
    ]


@pytest.mark.parametrize("api", APIS)
def test_neglected_data_are_told_once_with_the_remedy(api):
    *_, strategy = train(api, "samples", cycles=6)
    ((cycle, text),) = notes(strategy)
    assert cycle == CYCLES
    assert text == (
        "the data of 6, 7 are 24.9% of all and count for 0.2% in the model, so what only they have may stay "
        "unlearnt: average by what learners hold (average='nova-held'), or let them work across cycles "
        "(stragglers='span'), or give them more time (cycle_time_s) or a least batch (min_samples)"
    )
    *_, strategy = train(api, "nova-held", cycles=6)
    assert notes(strategy) == []


def test_whoever_never_gets_work_is_neglected_whatever_the_average():
    *_, strategy = train("message", "nova-held", cycles=4, min_samples=20)
    ((_, text),) = notes(strategy)
    assert text.startswith("the data of 6, 7 are 24.9% of all and count for 0.0% in the model")
    assert "average by" not in text
    assert [r.share for r in strategy.records[0].learners][6:] == [0.0, 0.0]


def test_what_is_not_known_to_be_held_is_told_and_boasting_is_bounded(monkeypatch):
    says = {k: said(k) for k in range(LEARNERS)}
    del says[0][wire.MAX_SAMPLES]
    says[1][wire.MAX_SAMPLES] = 10**9
    monkeypatch.setattr("tests.strategies.test_shares.said", says.__getitem__)
    *_, strategy = train("classic", "nova-held", cycles=2, total_samples=500, max_samples=140)
    ((cycle, text),) = notes(strategy)
    assert (cycle, text.partition(",")[0]) == (1, "what 0 hold is not known")
    rows = strategy.records[0].learners
    assert rows[0].held is None
    assert rows[1].held == 140
    assert rows[0].share == rows[0].weight / (rows[0].weight + sum(r.held or 0 for r in rows))


def test_shares_are_of_updates_that_are_used_and_survive_the_file():
    *_, strategy = train("message", "samples", cycles=1)
    record = strategy.records[0]
    assert sum(r.share for r in record.learners) == pytest.approx(1)
    assert CycleRecord.from_dict(record.as_dict()) == record
    old = record.as_dict()
    for row in old["learners"]:
        del row["share"], row["held"]  # of a file before there were any
    assert [r.share for r in CycleRecord.from_dict(old).learners] == [0.0] * LEARNERS


def test_what_was_done_counts_not_what_was_told():
    rows = [
        LearnerRecord("a", "1", Outcome.USED, epochs=4, weight=10, epochs_done=1),
        LearnerRecord("b", "2", Outcome.USED, epochs=1, weight=10),
    ]
    equal = blended(1, rows, [], Settings(cycle_time_s=1.0, average="nova"))
    assert equal.factors == (1.0, 1.0)
    told = [replace(rows[0], epochs_done=None), rows[1]]
    assert blended(1, told, [], Settings(cycle_time_s=1.0, average="nova")).factors == (0.625, 2.5)
