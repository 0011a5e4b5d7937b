"""The app for real devices on Flower's simulation: the same code, data that come with it."""

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


@pytest.mark.parametrize("mode", ["federated", "parallelized"])
def test_it_trains_where_nobody_has_a_data_directory(engine, tmp_path, mode):
    config = CONFIG["tool"]["flwr"]["app"]["config"] | {"devices": DEVICES, "cycles": 3, "mode": mode}
    config |= {
        "features": 16,
        "classes": 4,
        "overhead": 0.0,
        "max-epochs": 3,
        "run-dir": str(tmp_path / "run"),
    }
    engine.play("tests.examples.fleet_app", tmp_path, config=config, nodes=DEVICES)
    records = list(read_jsonl(tmp_path / "run" / "records.jsonl"))
    assert [record.cycle for record in records] == [1, 2, 3]
    for record in records:
        assert len(record.learners) == DEVICES
        assert {row.outcome for row in record.learners if row.samples} == {Outcome.USED}
    # A quarter would be chance.
    assert records[-1].metrics["accuracy"] > 0.8
    with np.load(tmp_path / "run" / "model.npz") as model:
        assert [model[key].shape for key in model.files] == [(16, 32), (32,), (32, 4), (4,)]
