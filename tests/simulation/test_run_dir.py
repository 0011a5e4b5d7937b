"""What a run leaves behind: ledger, records, model, and what a resumed run may change."""

import csv
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mel_simulation.app.run_dir import BATTERY_J, RunDir, describe_run, ledger_rows
from mel_simulation.scenario.config import RunConfig
from mel_simulation.scenario.data import embedded
from mel_simulation.scenario.fleet import VirtualFleet
from mel_simulation.scenario.network import initial_weights

from flwr_mel._files import atomically
from flwr_mel.paper import PAPER_CLASSES
from tests.simulation.tools import finished, record


def test_the_ledger_adds_up():
    busy, rested = ledger_rows(record())
    assert busy == [1, "phone-01", 3, 200, 9.5, 0.5, 10.0, 8.0, 10.0, 8.0 / 36_000, "used"]
    assert rested == [1, "phone-02", 0, 0, 0.0, 10.0, 10.0, 0.0, None, 0.0, "left out"]
    assert BATTERY_J == 36_000


@pytest.mark.parametrize("change", [{"time_s": 10.0001}, {"energy_j": 10.0001}])
def test_the_ledger_refuses_who_exceeds_a_limit(change, tmp_path):
    with pytest.raises(RuntimeError, match="phone-01 took"):
        ledger_rows(record(**change))
    run = RunDir(tmp_path)
    with pytest.raises(RuntimeError):
        run.add(record(**change), 1.0)
    assert run.records() == []
    assert len(ledger_rows(record(time_s=10.0, energy_j=10.0))) == 2


def table(path: Path) -> list[dict]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_what_a_run_leaves(tmp_path):
    run = finished(tmp_path / "run")
    assert [r.cycle for r in run.records()] == [1, 2, 3]
    assert [float(row["wall_s"]) for row in table(run.path / "metrics.csv")] == [0.25, 0.5, 0.75]
    assert len(table(run.path / "ledger.csv")) == 6
    for row in table(run.path / "ledger.csv"):
        assert float(row["busy_s"]) + float(row["idle_s"]) == float(row["cycle_time_s"])
    found = run.checkpoint()
    assert found.cycle == run.cycles_done() == 3
    assert all(np.array_equal(a, b) for a, b in zip(found.model.values(), initial_weights(3), strict=True))
    run.finish({"cycles": 3}, initial_weights(3))
    with np.load(run.path / "model.npz") as kept:
        assert all(np.array_equal(kept[f"w{i:03d}"], w) for i, w in enumerate(initial_weights(3)))
    facts = run.facts()
    assert RunConfig.parse(facts["config"]).cycles == 3
    assert {"python", "flwr", "torch", "numpy"} <= set(facts["versions"])
    assert facts["data"] == {"source": embedded().source, "train": 4000, "test": 1000}
    assert {d["class"] for d in facts["fleet"]} == set(PAPER_CLASSES)
    assert "wall" not in (run.path / "records.jsonl").read_text()


def test_resume_cuts_the_records_to_the_checkpoint(tmp_path):
    run = finished(tmp_path / "run", cycles=3, models=2)  # killed between record and model
    with (run.path / "records.jsonl").open("a") as file:
        file.write('{"cycle": 4, "cyc')  # and once more while writing
    config = RunConfig(learners=20, cycles=9, run_dir=str(run.path), resume=True)
    run.start(config, VirtualFleet(20, config).devices(1), embedded())
    assert [r.cycle for r in run.records()] == [1, 2]
    assert [row["wall_s"] for row in table(run.path / "metrics.csv")] == ["0.250", "0.500"]
    assert len(table(run.path / "ledger.csv")) == 4
    run.add(record(3), 1.0)
    assert [r.cycle for r in run.records()] == [1, 2, 3]


def test_resume_refuses_another_run(tmp_path):
    run = finished(tmp_path / "run")

    def check(fleet_seed=0, data=None, **change):
        config = RunConfig(learners=20, run_dir=str(run.path), resume=True, **change)
        fleet = VirtualFleet(20, replace(config, seed=fleet_seed)).devices(1)
        run.check_same(describe_run(config, fleet, data or embedded()))

    check(cycles=50, api="classic", target_accuracy=0.9)
    with pytest.raises(ValueError, match="staleness must be 2 as the run began, got 3"):
        check(staleness=3)
    with pytest.raises(
        ValueError, match="cycles must be at least 3, the cycles that the run has done, got 2"
    ):
        check(cycles=2)
    with pytest.raises(ValueError, match="got other learners"):
        check(fleet_seed=1)
    small = replace(embedded(), train_x=embedded().train_x[:100], train_y=embedded().train_y[:100])
    with pytest.raises(ValueError, match="dataset must be as the run began"):
        check(data=small)
    (run.path / "records.jsonl").write_text("")
    with pytest.raises(ValueError, match="0 cycles on record, but a model after 3"):
        run.trim(3)


def test_files_are_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "file"
    atomically(path, lambda f: f.write("old"))

    def fail(file):
        file.write("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        atomically(path, fail)
    assert path.read_text() == "old"
    assert [p.name for p in path.parent.iterdir()] == ["file"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_names_of_new_run_directories():
    path = RunDir.of(RunConfig(scheme="ha-sync", mode="fl")).path
    assert path.parent == Path("runs")
    assert path.name.endswith(f"-ha-sync-fl-{os.getpid()}")
