"""Metrics over HTTP, read back with the library's own parser."""

import math
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from flwr_mel.records import CycleRecord, LearnerRecord, Outcome, PrometheusWriter, Standing
from flwr_mel.records.prometheus import MOST_LEARNERS


@pytest.fixture
def writer():
    made = PrometheusWriter(0)
    yield made
    made.close()


def read(writer):
    """Return the values by name and labels."""
    with urlopen(f"http://127.0.0.1:{writer.port}/metrics") as answer:
        text = answer.read().decode()
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def record(**fields):
    row = LearnerRecord("pi-1", "7", Outcome.USED, epochs=3, samples=50, time_s=8.0)
    row.sent_at, row.received_at, row.standing, row.since = 100.0, 109.5, Standing.IDLE, 109.5
    late = LearnerRecord('evil"\n{}', "8", Outcome.LATE, standing=Standing.LATE)
    metrics = {"accuracy": 0.5, "loss": math.nan}
    times = {"waited_s": 9.5, "duration_s": 12.0, "flower_s": 1.5, "ended_at": 112.0, "began_at": 100.0}
    return CycleRecord(4, 10.0, 8.0, learners=[row, late], metrics=metrics, gone={"pi-9": 50.0}, **times)


def test_the_last_cycle_is_served(writer):
    assert read(writer) == {}
    writer(CycleRecord(3, 10.0))
    writer(record())
    found = read(writer)
    assert found["mel_cycle",] == 4
    assert found["mel_planned_last_report_seconds",] == 8.0
    assert found["mel_last_report_seconds",] == 9.5
    assert found["mel_flower_seconds",] == 1.5
    assert found["mel_metric", "accuracy"] == 0.5
    assert math.isnan(found["mel_metric", "loss"])
    assert {outcome: found["mel_learners", outcome] for outcome in ("used", "late", "failed")} == {
        "used": 1,
        "late": 1,
        "failed": 0,
    }
    assert found["mel_learner_took_seconds", "pi-1"] == 9.5
    assert found["mel_learner_standing", "gone", "pi-9"] == found["mel_learner_standing", "idle", "pi-1"] == 1
    assert ("mel_learner_took_seconds", 'evil" {}') not in found
    assert found["mel_learner_samples", 'evil" {}'] == 0


def test_simulations_and_large_fleets(writer):
    writer(CycleRecord(1, 10.0))
    assert not [key for key in read(writer) if key[0] in ("mel_last_report_seconds", "mel_flower_seconds")]
    rows = [LearnerRecord(str(k), str(k)) for k in range(MOST_LEARNERS + 1)]
    writer(CycleRecord(1, 10.0, learners=rows))
    found = read(writer)
    assert found["mel_learners", "left out"] == MOST_LEARNERS + 1
    assert not [key for key in found if key[0].startswith("mel_learner_")]
