"""deploy/loopback.sh: from an empty directory to the first trained round."""

import json
import os
import subprocess

import psutil
import pytest

from flwr_mel.records import Outcome, read_jsonl
from tests.deployment.fleet import BIN, DEPLOY, DEVICES, NGINX
from tests.waiting import PATIENCE_S


def script(*words):
    env = os.environ | {"PATH": os.pathsep.join([str(BIN), os.environ["PATH"], "/usr/sbin"])}
    command = [DEPLOY / "loopback.sh", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.deployment
def test_three_devices_train_their_first_round(tmp_path):
    done = script(tmp_path / "new", "features=16 hidden=8 classes=4")
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = read_jsonl(tmp_path / "new" / "run" / "records.jsonl")
    assert {row.learner: row.outcome for row in record.learners} == dict.fromkeys(DEVICES, Outcome.USED)
    assert record.metrics["accuracy"] > 0.5  # a quarter would be chance
    assert sorted(json.loads((tmp_path / "new" / "devices.json").read_text()).values()) == list(DEVICES)
    assert (tmp_path / "new" / "mel.conf").exists() == (NGINX is not None)
    left = [
        p.cmdline()
        for p in psutil.process_iter(["cmdline"])
        if str(tmp_path) in " ".join(p.info["cmdline"] or [])
    ]
    assert left == []


def test_the_directory_must_be_empty(tmp_path):
    (tmp_path / "x").touch()
    assert script(tmp_path).returncode == script().returncode == 2
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
