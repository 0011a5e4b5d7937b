"""Records carry the objective with its own value, bound and gap, and those of version 0.1 are still read."""

import json

import numpy as np
import pytest

from flwr_mel import Workload, paper_fleet
from flwr_mel.allocation.limiting import Limit
from flwr_mel.clientapp import describe
from flwr_mel.orchestrator import Orchestrator, Settings
from flwr_mel.records import CycleRecord, JsonlWriter, read_jsonl
from flwr_mel.solvers import Exact

# A line of version 0.1, cut to one learner.
OLD = (
    '{"cycle": 1, "cycle_time_s": 10.0, "makespan_s": 9.9, "total_samples": 60000, "asked_samples": 60000, '
    '"staleness": 2, "status": "optimal", "mean_epochs": 2.55, "bound": 3.4, "energy_j": 60.0, '
    '"clock_s": 9.9, "total_energy_j": 60.0, '
    '"learners": [{"learner": "laptop-00", "node": "7", "outcome": "used", '
    '"reason": "", "epochs": 2, "samples": 12000, "weight": 12000, "time_s": 9.9, "energy_j": 8.0, '
    '"energy_limit_j": 10.0, "limited_by": "time", "reported_time_s": null, "reported_energy_j": null, '
    '"slowdown": 1.0, "round_trip_s": null}], "metrics": {"accuracy": 0.9, "loss": null}, "notes": [], '
    '"stopped": ""}'
)


def planned(objective: str) -> CycleRecord:
    fleet = paper_fleet(np.random.default_rng(0), 20, energy_j=10.0)
    settings = Settings(
        cycle_time_s=10.0,
        total_samples=60_000,
        staleness=2,
        min_samples=100,
        solver=Exact(objective=objective),
        workload=Workload.mlp((784, 300, 124, 60, 10), ship_data=False),
    )
    brain = Orchestrator(settings)
    for k, device in enumerate(fleet):
        brain.hear(str(k), describe(device))
    brain.plan(1, [str(k) for k in range(20)])
    assert brain.record is not None
    return brain.record


@pytest.mark.parametrize("objective", ["epochs", "progress"])
def test_value_bound_and_gap_are_of_the_objective_on_record(objective):
    record = planned(objective)
    tau, d = [r.epochs for r in record.learners], [r.samples for r in record.learners]
    progress = sum(t * n * n for t, n in zip(tau, d, strict=True)) / sum(d)
    assert record.objective == objective
    assert record.value == (progress if objective == "progress" else sum(tau) / 20)
    assert record.mean_epochs == sum(tau) / 20
    assert record.bound >= record.value
    assert record.gap == record.bound / record.value - 1
    assert {type(r.limited_by) for r in record.learners} == {Limit}


def test_new_records_come_back_as_they_went(tmp_path):
    record = planned("progress")
    JsonlWriter(tmp_path / "r.jsonl")(record)
    assert list(read_jsonl(tmp_path / "r.jsonl")) == [record]


def test_records_of_version_0_1_are_read_as_what_they_were(tmp_path):
    (tmp_path / "old.jsonl").write_text(f"{OLD}\n")
    (record,) = read_jsonl(tmp_path / "old.jsonl")
    # Its bound was one on the epochs, whatever had been maximised.
    assert (record.objective, record.value, record.bound) == ("epochs", 2.55, 3.4)
    assert record.gap == 3.4 / 2.55 - 1
    assert record.learners[0].limited_by is Limit.TIME
    skipped = CycleRecord.from_dict({**json.loads(OLD), "mean_epochs": 0.0, "bound": None})
    assert (skipped.value, skipped.gap) == (0.0, None)


def test_a_gap_without_end_is_not_known():
    record = CycleRecord(1, 10.0, gap=float("inf"))
    assert CycleRecord.from_dict(record.as_dict()).gap is None


def test_a_limit_that_nobody_knows_is_refused():
    data = json.loads(OLD)
    data["learners"][0]["limited_by"] = "the weather"
    with pytest.raises(ValueError, match="'the weather' is not a valid Limit"):
        CycleRecord.from_dict(data)
