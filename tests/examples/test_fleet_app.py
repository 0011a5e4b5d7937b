"""The app for real devices on Flower's simulation: the same code, synthetic data."""

import tomllib
from pathlib import Path

import numpy as np
import pytest
from flwr.common.config import validate_config

from flwr_mel.records import Outcome, read_jsonl

APP = Path(__file__).parents[2] / "deploy" / "app"
CONFIG = tomllib.loads((APP / "pyproject.toml").read_text())
DEVICES = 4


def test_flower_takes_it():
    valid, errors, warnings = validate_config(CONFIG, check_module=True, project_dir=APP)
    assert (valid, errors, warnings) == (True, [], [])


@pytest.mark.parametrize("ship", [False, True])
def test_it_trains_on_synthetic_data(engine, tmp_path, ship):
    config = CONFIG["tool"]["flwr"]["app"]["config"] | {
        "devices": DEVICES,
        "rounds": 3,
        "data-dir": "synthetic",
    }
    config |= {
        "features": 16,
        "classes": 4,
        "max-epochs": 3,
        "deadline-slack": 0.0,
        "run-dir": str(tmp_path / "run"),
    }
    config |= {"ship-data": ship, "cycle-time": 60.0 if ship else 0.0}
    engine.play("tests.examples.fleet_app", tmp_path, config=config, nodes=DEVICES)
    records = list(read_jsonl(tmp_path / "run" / "records.jsonl"))
    assert [record.cycle for record in records] == [1, 2, 3]
    for record in records:
        assert len(record.learners) == DEVICES
        assert {row.outcome for row in record.learners if row.asked} == {Outcome.USED}
    # A quarter would be chance.
    assert records[-1].metrics["accuracy"] > 0.8
    with np.load(tmp_path / "run" / "model.npz") as model:
        assert [model[key].shape for key in model.files] == [(16, 32), (32,), (32, 4), (4,)]
