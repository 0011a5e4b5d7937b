"""The example app's parts, without processes."""

import json
import resource
import tomllib

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, RecordDict
from flwr.serverapp.strategy import FedAvg
from flwr_mel.cli.watch.place import Place
from flwr_mel.records.follow import Entry, History

from flwr_mel import wire
from flwr_mel.records import CycleRecord, JsonlWriter
from flwr_mel.serverapp import MelResult, MelStrategy
from tests.deployment.reference import initial_weights, train
from tests.deployment.tools import CLASSES, DEPLOY, FEATURES, blobs, save_data

from mel_fleet import client_app, data, lock, model, profile_task, server_app  # isort: skip

CONFIG = tomllib.loads((DEPLOY / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
SMALL = CONFIG | {"features": FEATURES, "hidden": 8, "classes": CLASSES}


def context(node_config, **run_config):
    return Context(1, 1, node_config, RecordDict(), SMALL | run_config)


def test_the_network_learns():
    x, y = blobs(0)
    start = initial_weights(FEATURES, 8, CLASSES, np.random.default_rng(0))
    weights, loss = train(start, x, y, 5, 32, 0.1, np.random.default_rng(0))
    after, accuracy = model.evaluate(weights, *blobs(1))
    assert loss < model.evaluate(start, x, y)[0]
    assert after < 1
    assert accuracy > 0.8


def test_a_device_times_itself_once_per_run(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(client_app, "perf_counter", lambda: clock[0])

    def paced(weights, x, y, epochs, **options):
        clock[0] += 0.25 + 0.002 * epochs * len(y)
        return train(weights, x, y, epochs, **options)

    where = context({"mel-learner": "pi-7"}, mode="parallelized", margin=0.0, overhead=3.0)
    words = client_app.describe_self(where, paced)
    assert words[wire.LEARNER] == "pi-7"
    assert words["mel-c2"] == pytest.approx(0.002)
    assert words["mel-c0"] == pytest.approx(0.25 + 3.0)
    assert client_app.describe_self(where, None) == words, "the second time nothing is trained"


@pytest.mark.parametrize("disturbed", [{1}, {3, 4}, {6, 9, 11}, {0, 2, 5, 13, 15}])
def test_bursts_of_other_work_do_not_spoil_the_measurement(monkeypatch, disturbed):
    clock, calls = [0.0], [0]
    monkeypatch.setattr(client_app, "perf_counter", lambda: clock[0])

    def paced(weights, x, y, epochs, **options):
        slower = 40 if calls[0] in disturbed else 1
        calls[0] += 1
        clock[0] += slower * (0.01 + 0.002 * epochs * len(y))

    where = context({}, mode="parallelized", margin=0.0, overhead=0.0)
    words = client_app.describe_self(where, paced)
    assert words["mel-c2"] == pytest.approx(0.002)
    assert words["mel-c0"] == pytest.approx(0.01)


def test_what_the_operator_says_comes_first(tmp_path):
    save_data(tmp_path / "d", *blobs(0, 50))
    told = dict.fromkeys(wire.COEFFICIENTS, 0.5)
    words = client_app.describe_self(context({"data-dir": str(tmp_path / "d"), **told}), None)
    assert words == told | {wire.MAX_SAMPLES: 50}
    words = client_app.describe_self(
        context({"data-dir": str(tmp_path / "d"), **told, "mel-max-samples": 9}), None
    )
    assert words[wire.MAX_SAMPLES] == 9


def test_data_that_cannot_be_used_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no x\.npy in data-dir ''"):
        data.load("")
    save_data(tmp_path, np.zeros((3, 2)), np.zeros(4, int))
    with pytest.raises(ValueError, match="one integer per sample"):
        data.load(str(tmp_path))
    assert data.load_test(str(tmp_path)) is None


def test_one_run_per_directory(tmp_path):
    busy = pytest.raises(RuntimeError, match="another run works in")
    with lock.alone_in(tmp_path / "run"), busy, lock.alone_in(tmp_path / "run"):
        pass
    with lock.alone_in(tmp_path / "run"):
        pass


def test_the_defaults_are_settings():
    assert server_app.settings(CONFIG)["mode"] == "federated"
    assert server_app.settings(CONFIG)["allow_insecure_shards"] is False


def test_names_are_bound_to_keys_where_the_operator_wrote_them_down(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert server_app.settings(CONFIG)["names"] is None
    (tmp_path / "devices.json").write_text('{"12": "pi-1"}', encoding="utf-8")
    assert server_app.settings(CONFIG)["names"].read_text(encoding="utf-8") == '{"12": "pi-1"}'
    assert server_app.settings({**CONFIG, "devices-file": ""})["names"] is None
    MelStrategy(FedAvg(), **server_app.settings(CONFIG))


def test_what_is_profiled_is_the_apps_training():
    profile_task.train(samples=64, epochs=1)


def ended(*records):
    return MelResult(arrays=ArrayRecord([np.arange(2000.0)]), records=list(records), cycles=len(records))


def test_the_end_of_a_run_is_in_its_directory(tmp_path):
    cycles = [CycleRecord(n, 10.0, 9.0, waited_s=w, duration_s=w + 2) for n, w in ((1, 9.5), (2, 12.0))]
    for record in cycles:
        JsonlWriter(tmp_path / "records.jsonl")(record)
    server_app.finish(tmp_path, ended(*cycles))
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["duration_s"], summary["planned_s"]) == (25.5, 18.0)
    assert summary["cycles_within_t"] == "1 of 2"
    place, history = Place(tmp_path), History()
    for event in place.poll():
        assert isinstance(event, Entry)
        history.add(event.record)
    assert place.ending(history) == "finished: 2 cycles done"


def test_a_model_that_the_disk_does_not_take_is_not_half_there(tmp_path):
    (tmp_path / "model.npz").write_bytes(b"the last one")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(RuntimeError, match="It is safe in the last checkpoint: free some space"):
            server_app.finish(tmp_path, ended())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"model.npz": b"the last one"}
