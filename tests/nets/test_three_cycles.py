"""Three cycles of the simulation on Flower's engine: both APIs, parallelized and federated.

Tasks are compared exactly, accuracy and loss to what another processor may change. The two APIs must agree to
the bit. ``FLWR_MEL_UPDATE_NETS=1 pytest tests/nets/test_three_cycles.py`` writes `three_cycles.json` anew.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest

STORED = Path(__file__).with_name("three_cycles.json")
MODES = {"parallelized": {"mode": "pl"}, "federated": {"mode": "fl", "alpha": 0.5}}


@pytest.fixture(scope="module")
def play(engine, tmp_path_factory):
    """Play three cycles and return the run directory; each run is played once."""
    space = tmp_path_factory.mktemp("nets")

    def played(mode, api):
        run = space / f"{mode}-{api}"
        if not run.exists():
            config = {"cycles": 3, "api": api, "run-dir": str(run)} | MODES[mode]
            offline = {"FLWR_MEL_OFFLINE": "1", "FLWR_MEL_DATA": space / "cache"}
            engine.play("tests.simulation.app", space, config=config, **offline)
        return run

    return played


def results(run):
    """Return tasks and metrics of every cycle, by learner in the fleet's order."""
    found = []
    for line in (run / "records.jsonl").read_text().splitlines():
        record = json.loads(line)
        rows = sorted(record["learners"], key=lambda row: row["learner"])
        found.append(
            {
                "tasks": {
                    row["learner"]: [row["epochs"], row["samples"], str(row["outcome"])] for row in rows
                },
                "metrics": {key: record["metrics"][key] for key in ("accuracy", "loss")},
            }
        )
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("api", ["message", "classic"])
def test_tasks_and_metrics(mode, api, play):
    found = results(play(mode, api))
    if os.environ.get("FLWR_MEL_UPDATE_NETS") == "1":
        stored = json.loads(STORED.read_text()) if STORED.exists() else {}
        STORED.write_text(
            json.dumps(stored | {mode: found}, separators=(",", ":")).replace("},{", "},\n{") + "\n"
        )
    stored = json.loads(STORED.read_text())[mode]
    assert [cycle["tasks"] for cycle in found] == [cycle["tasks"] for cycle in stored]
    for cycle, expected in zip(found, stored, strict=True):
        assert cycle["metrics"] == pytest.approx(expected["metrics"], rel=2e-3)


@pytest.mark.parametrize("mode", MODES)
def test_both_apis_give_the_same_bits(mode, play):
    one, other = (play(mode, api) for api in ("message", "classic"))
    assert results(one) == results(other)
    with np.load(one / "model.npz") as a, np.load(other / "model.npz") as b:
        assert a.files == b.files
        assert all(np.array_equal(a[name], b[name]) for name in a.files)
