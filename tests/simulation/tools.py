"""What several tests of the simulation use: the command, records, a run on disk."""

import json
import sys
from pathlib import Path

import numpy as np
from mel_simulation.app.run_dir import RunDir
from mel_simulation.scenario.config import RunConfig
from typer.testing import CliRunner

from flwr_mel.records import CycleRecord, JsonlWriter, LearnerRecord, Outcome
from flwr_mel.tools.cli import app

#: Of the run that others are compared with.
CYCLES = 3
# The wall clock is not reproducible, and Flower draws its node ids at random.
NOT_COMPARED = ("node", "train_s")


def records(run: Path) -> list[dict]:
    """What must be the same whenever a run is repeated."""
    found = [json.loads(line) for line in (run / "records.jsonl").read_text().splitlines()]
    for record in found:
        record["learners"] = [
            {k: v for k, v in row.items() if k not in NOT_COMPARED} for row in record["learners"]
        ]
    return found


def assert_same(run: Path, other: Path) -> None:
    assert records(run) == records(other)
    with np.load(run / "model.npz") as a, np.load(other / "model.npz") as b:
        assert a.files == b.files
        assert all(np.array_equal(a[name], b[name]) for name in a.files)


def command(*args: object) -> list[str]:
    """How a shell calls us."""
    return [sys.executable, "-m", "flwr_mel.tools.cli", *(str(a) for a in args)]


def cli(*args: object, code: int) -> str:
    """Run `flwr-mel simulate` in this process; return what it prints."""
    result = CliRunner().invoke(app, ["simulate", *(str(a) for a in args)])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return " ".join(result.output.split())


def record(cycle: int = 1) -> CycleRecord:
    work = {
        "epochs": 3,
        "samples": 200,
        "weight": 200,
        "time_s": 9.5,
        "energy_j": 8.0,
        "energy_limit_j": 10.0,
    }
    row = LearnerRecord("phone-01", "1", Outcome.USED, **work)
    rested = LearnerRecord("phone-02", "2", Outcome.SKIPPED, "deadline")
    metrics = {"accuracy": 0.5 + cycle / 100, "loss": 1.0}
    clock = {"clock_s": 9.5 * cycle, "energy_j": 8.0, "total_energy_j": 8.0 * cycle}
    samples = {"total_samples": 200, "asked_samples": 200}
    return CycleRecord(cycle, 10.0, 9.5, learners=[row, rested], metrics=metrics, **samples, **clock)


def finished(path: Path, cycles: int = 3, models: int | None = None, **settings) -> RunDir:
    """Make a run with so many records, and a model after `models` of them."""
    run = RunDir(path)
    run.start(RunConfig(learners=20, cycles=cycles, run_dir=str(path), **settings))
    for cycle in range(1, cycles + 1):
        JsonlWriter(run.records_file)(record(cycle))
        if cycle <= (cycles if models is None else models):
            run.checkpoints.mkdir(exist_ok=True)
            (run.checkpoints / f"round-{cycle:08d}.npz").write_bytes(b"")
    return run
