"""What several tests of the simulation use: the command, records, a run on disk."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from mel_simulation.app.run_dir import RunDir
from mel_simulation.scenario.config import RunConfig
from mel_simulation.scenario.data import embedded
from mel_simulation.scenario.fleet import VirtualFleet
from mel_simulation.scenario.network import initial_weights
from typer.testing import CliRunner

from flwr_mel._processes import end, tree
from flwr_mel.checkpoint import Checkpoint
from flwr_mel.records import CycleRecord, LearnerRecord, Outcome
from flwr_mel.tools.cli import app
from tests.waiting import PATIENCE_S, wait_for

#: Of the run that others are compared with.
CYCLES = 4
# The wall clock is not reproducible, and Flower draws its node ids at random.
NOT_COMPARED = ("node", "reported_time_s")


def records(run: Path) -> list[dict]:
    """What must be the same whenever a run is repeated."""
    found = [json.loads(line) for line in (run / "records.jsonl").read_text().splitlines()]
    for record in found:
        record["learners"] = [
            {k: v for k, v in row.items() if k not in NOT_COMPARED} for row in record["learners"]
        ]
    return found


def accuracies(run: Path) -> list[float]:
    return [record["metrics"]["accuracy"] for record in records(run)]


def assert_same(run: Path, other: Path) -> None:
    assert records(run) == records(other)
    with np.load(run / "model.npz") as a, np.load(other / "model.npz") as b:
        assert a.files == b.files
        assert all(np.array_equal(a[name], b[name]) for name in a.files)
        assert {a[name].dtype.str for name in a.files} == {"<f4"}


def command(*args: object) -> list[str]:
    """How a shell calls us."""
    return [sys.executable, "-m", "flwr_mel.tools.cli", *(str(a) for a in args)]


def interrupted(args: list[str], kept: Path, env: dict[str, str] | None, how: int) -> int:
    """Start a command, end it by a signal once another file is in `kept`; nothing may be left running."""
    before = len(list(kept.glob("*.json")))
    process = subprocess.Popen(
        args, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        family = set()
        while len(list(kept.glob("*.json"))) <= before:
            assert process.poll() is None
            family = tree(process.pid)
            time.sleep(0.1)
        assert len(family) > 3  # Ray and its workers
        process.send_signal(how)
        process.wait(timeout=PATIENCE_S)
        wait_for(lambda: not [p for p in family if p in tree(p.pid)])
    finally:
        end(process)
    return process.returncode


def cli(*args: object, code: int) -> str:
    """Run `flwr-mel simulate`; return what it says."""
    result = CliRunner().invoke(app, ["simulate", *(str(a) for a in args)])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return " ".join(result.output.split())


def record(cycle: int = 1, **change) -> CycleRecord:
    row = LearnerRecord("phone-01", "1", Outcome.USED, "", 3, 200, 200, 9.5, 8.0, 10.0)
    rested = LearnerRecord("phone-02", "2", Outcome.LEFT_OUT, "deadline")
    for key, value in change.items():
        setattr(row, key, value)
    metrics = {"accuracy": 0.5 + cycle / 100, "loss": 1.0}
    clock = {"clock_s": 9.5 * cycle, "energy_j": 8.0, "total_energy_j": 8.0 * cycle}
    return CycleRecord(cycle, 10.0, 9.5, 200, 200, learners=[row, rested], metrics=metrics, **clock)


def finished(path: Path, cycles: int = 3, models: int | None = None, **settings) -> RunDir:
    """Leave a run with so many records, and a model after `models` of them."""
    config = RunConfig(learners=20, cycles=cycles, run_dir=str(path), **settings)
    run = RunDir(path)
    run.start(config, VirtualFleet(20, config).devices(1), embedded())
    for cycle in range(1, cycles + 1):
        run.add(record(cycle), 0.25 * cycle)
        if cycle <= (cycles if models is None else models):
            model = {str(i): w for i, w in enumerate(initial_weights(cycle))}
            run.checkpoints.save(Checkpoint(cycle, model, state={"cycle": cycle}, records=[record(cycle)]))
    return run
