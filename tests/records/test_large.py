"""Records of large fleets."""

import math

from flwr_mel.records import CycleRecord, LearnerRecord


def test_ten_thousand_learners_are_on_record_completely_and_without_deep_copies(monkeypatch):
    """`dataclasses.asdict` copies deeply, which takes a second for so many."""
    for name in ("copy.deepcopy", "dataclasses.asdict"):
        monkeypatch.setattr(name, None)
    rows = [LearnerRecord(str(k), f"n{k}", energy_limit_j=math.inf) for k in range(10_000)]
    record = CycleRecord(1, 2.0, learners=rows, metrics={"loss": math.nan})
    data = record.as_dict()
    assert data["learners"][0]["energy_limit_j"] is None
    assert data["learners"][0]["outcome"] == "left out"
    back = CycleRecord.from_dict(data)
    assert math.isnan(back.metrics["loss"])
    assert back.learners[-1].learner == "9999"
