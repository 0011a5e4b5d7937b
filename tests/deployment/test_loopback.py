"""deploy/loopback.sh: from an empty directory to the first trained round."""

import json
import subprocess

import psutil

from flwr_mel.records import Outcome, read_jsonl
from tests.deployment.fleet import DEPLOY, DEVICES, NGINX
from tests.waiting import PATIENCE_S


def test_three_devices_train_their_first_round(script):
    process, root = script
    assert process.wait(PATIENCE_S) == 0, (root / "log").read_text()
    (record,) = read_jsonl(root / "new" / "run" / "records.jsonl")
    assert [row.outcome for row in record.learners] == [Outcome.USED] * len(DEVICES)
    assert record.metrics["accuracy"] > 0.5  # a quarter would be chance
    assert sorted(json.loads((root / "new" / "devices.json").read_text()).values()) == list(DEVICES)
    assert (root / "new" / "mel.conf").exists() == (NGINX is not None)
    running = [" ".join(found.info["cmdline"] or []) for found in psutil.process_iter(["cmdline"])]
    assert [words for words in running if str(root) in words] == []


def test_what_cannot_start_leaves_no_trace(tmp_path):
    """No directory, one that is not empty, and no flwr-mel on PATH."""
    (tmp_path / "x").touch()
    for words, code in (([], 2), ([tmp_path], 2), ([tmp_path / "new"], 4)):
        command, env = [DEPLOY / "loopback.sh", *words], {"PATH": "/usr/bin:/bin"}
        assert subprocess.run(command, env=env, capture_output=True, check=False).returncode == code
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
