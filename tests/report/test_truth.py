"""The report shows the limits that were in force, and bounds of the objective that was asked for."""

import json

import pytest

from flwr_mel.allocation.limiting import Limit
from flwr_mel.records import CycleRecord, LearnerRecord, Outcome
from tests.report.helpers import add, lines, make_run, page


@pytest.fixture(scope="module")
def progress(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs") / "progress", "ha-progress", cycles=3, staleness=2)


def test_progress_stands_beside_its_own_bound(progress):
    records, found = lines(progress), page(progress)
    value = sum(r["value"] for r in records) / 3
    assert value > 1000
    assert f"Progress S {value:,.0f} bound {value:,.0f}" in found.text
    assert "Progress S and bound" in found.text
    for row, record in zip(found.data[0]["cycles"], records, strict=True):
        for key in ("objective", "value", "bound", "gap", "mean_epochs"):
            assert row[key] == record[key]


def test_a_fleet_files_energy_limits_are_shown_not_the_configurations(tmp_path):
    rows = [
        LearnerRecord(name, name, Outcome.USED, epochs=2, samples=50, weight=50, time_s=5.0, energy_j=3.0,
                      energy_limit_j=limit, limited_by=Limit.STALENESS)
        for name, limit in (("pi-1", 4.5), ("pi-2", 30.0), ("plugged", None))
    ]  # fmt: skip
    add(tmp_path, CycleRecord(1, 10.0, learners=rows))
    config = {"fleet": "my.toml", "energy": 10.0, "energy-spread": 2.5, "cycle-time": 10.0}
    (tmp_path / "config.json").write_text(json.dumps({"config": config}))
    text = page(tmp_path).text
    assert "E k = 4.5\u201330 J, none for 1 learner" in text
    assert "10 \u00b1 2.5" not in text
    assert "What kept them from more: staleness for 3 learners" in text
