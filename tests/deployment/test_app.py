"""The example app's parts and the static files, without processes."""

import re
import sys
import tomllib

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from flwr.serverapp.strategy import FedAvg

from tests.deployment.fleet import DEPLOY, ROOT

sys.path.insert(0, str(DEPLOY / "app"))
from mel_fleet import data, model, profile_task, server_app

CONFIG = tomllib.loads((DEPLOY / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
SMALL = CONFIG | {"features": 16, "hidden": 8, "classes": 4}
SYNTHETIC = SMALL | {"data-dir": "synthetic"}


def context(node_config, config, node_id=7):
    return Context(1, node_id, node_config, RecordDict(), config)


def save(directory, x, y):
    np.save(directory / "x.npy", x)
    np.save(directory / "y.npy", y)


def test_the_network_learns():
    x, y = data.synthetic(SMALL, 1, 400)
    start = model.initial_weights(SMALL)
    weights, loss = model.sgd(start, x, y, 5, 32, 0.1, np.random.default_rng(0))
    after, accuracy = model.evaluate(weights, *data.test_data(SYNTHETIC))
    assert loss < model.evaluate(start, x, y)[0]
    assert after < 1
    assert accuracy > 0.8


def test_a_devices_data_are_its_own(tmp_path):
    save(tmp_path, np.ones((3, 16), np.uint8), np.arange(3))
    x, y = data.own_data(context({"data-dir": str(tmp_path)}, SMALL))
    assert (x.shape, list(y)) == ((3, 16), [0, 1, 2])
    parts = [
        data.own_data(context(c, SYNTHETIC, n))[0] for c, n in [({"partition-id": 0}, 7), ({}, 7), ({}, 8)]
    ]
    assert not any(np.array_equal(parts[k], parts[k - 1]) for k in range(3))
    # Made-up data only if the run says so: a forgotten data-dir is an error.
    with pytest.raises(
        FileNotFoundError, match=r"data-dir of the node config must be a directory with x\.npy"
    ):
        data.own_data(context({"partition-id": 0}, SMALL))


def test_data_that_cannot_be_used_are_refused(tmp_path):
    save(tmp_path, np.zeros((3, 2)), np.zeros(4, int))
    with pytest.raises(ValueError, match="one integer per sample"):
        data.load(str(tmp_path), "node config")
    assert data.test_data(SMALL) is None
    with pytest.raises(FileNotFoundError, match="data-dir of the run config"):
        data.server_data(SMALL)


def test_the_app_sets_a_deadline(tmp_path):
    """Without one, a device that is back before Flower notices its crash would block the round."""
    strategy = server_app.planned(FedAvg(fraction_evaluate=0.0, min_available_nodes=1), CONFIG, tmp_path)
    assert strategy.strategy.options.deadline_s(10.0, simulated=False) == 20.0


def test_what_is_profiled_is_the_apps_training():
    profile_task.train(samples=64, epochs=1)


def test_units_script_and_containers_run_the_same_commands():
    """Options of each program, in the units, which the fleet's tests run, and in the other two."""

    def options(path, program):
        text = path.read_text().replace("\\\n", " ")
        lines = re.sub(r"\n\s+(?=--)", " ", text).splitlines()
        (line,) = [line for line in lines if f"{program} --" in line]
        return re.findall(r"--[a-z-]+", line.partition(program)[2])

    for program in ("superlink", "supernode"):
        wanted = sorted(options(DEPLOY / f"{program}.service", f"flower-{program}"))
        assert sorted(options(DEPLOY / "loopback.sh", f"flower-{program}")) == wanted
        assert sorted(options(DEPLOY / "compose.yaml", f"flower-{program}")) == wanted


def test_every_promise_of_the_threat_model_names_a_test():
    text = (ROOT / "SECURITY.md").read_text()
    tables = re.findall(r"^\| promise \| test \|\n\|---\|---\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert len(tables) == 4
    for line in "".join(tables).splitlines():
        assert re.search(r"`tests/[\w/]+\.py::test_\w+`", line), line
    for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text):
        assert re.search(rf"^(def|class) {name}\b", (ROOT / path).read_text(), re.MULTILINE), (
            f"{path}::{name}"
        )
