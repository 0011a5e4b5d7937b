"""docs/DEPLOY.md as an operator walks it: every command of the page, in its order, on the loopback."""

import json
import os
import re
import subprocess

import numpy as np
import pytest

from flwr_mel.deployment.bundles import Bundle
from flwr_mel.deployment.place import ServerPlace
from flwr_mel.deployment.running import holder, stop_holder
from flwr_mel.records import read_jsonl
from tests.deployment.test_app import CONFIG
from tests.deployment.tools import BIN, HAS_NGINX, ROOT, environment, save_data
from tests.ports import free_port
from tests.waiting import PATIENCE_S

PAGE = ROOT / "docs" / "DEPLOY.md"
DEVICES = ("pi-1", "pi-2")


def blocks(language):
    """Return the page's blocks of one language, each as a script."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def substitutions(root):
    """What is different on the loopback: names, ports, directories, and that all machines are this one."""
    port = free_port()
    control = free_port() if HAS_NGINX else port
    ports = f"--host 127.0.0.1 --port {port} --control-port {control}"
    return {
        "mel.example.org 192.0.2.7": f"localhost {ports}" + ("" if HAS_NGINX else " --without-proxy"),
        # Never a service of the machine that runs the tests.
        "server up": "server up --run background",
        "device start": "device start --run background",
        "scp -r": "cp -r",
        "$name:/srv/": f"{root}/",
        "ssh $name ": "",
        "/srv/": f"{root}/",
    }


@pytest.fixture
def world(tmp_path):
    """The machines' directories; ends what the walk has left running."""
    config = CONFIG["features"], CONFIG["classes"]
    rng = np.random.default_rng(0)
    save_data(tmp_path / "data", rng.random((60, config[0]), np.float32), rng.integers(config[1], size=60))
    yield tmp_path
    for name in DEVICES:
        stop_holder(Bundle(tmp_path / name).lock)
    stop_holder(ServerPlace(tmp_path / "flwr-mel").lock)


def run(block, root, replacements):
    for old, new in replacements.items():
        block = block.replace(old, new)
    env = environment(root / "home") | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-eu", "-c", block],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.deployment
def test_the_walk(world):
    replacements, place = substitutions(world), ServerPlace(world / "flwr-mel")
    said = [(block, run(block, world, replacements)) for block in blocks("sh")]
    done = {words: out for block, out in said for words in block.splitlines()}
    assert len({" ".join(words.split()[:3]) for words in done}) >= 8, "the page has lost its commands"

    def told(start):
        (found,) = [out for words, out in done.items() if start in words]
        return found

    assert "devices come in at localhost" in " ".join(told("server up").split())
    for name in DEVICES:
        assert f"{name} takes part as node" in told("device start")
        assert holder(Bundle(world / name).lock) is None
    assert told("server list").count("online") >= len(DEVICES)
    records = list(read_jsonl(place.state / "runs" / "first" / "records.jsonl"))
    assert [[row.learner for row in record.learners] for record in records] == [list(DEVICES)] * 2
    assert all(row.samples for row in records[0].learners)
    assert (place.state / "runs" / "first" / "report.html").stat().st_size > 1000
    assert (place.state / "runs" / "first" / "model.npz").exists()
    # The key that was made on the device never came to the server, and was taken back in the end.
    assert not Bundle(place.bundles / "pi-3").key.exists()
    assert sorted(json.loads(place.devices.read_text()).values()) == list(DEVICES)
    assert "\nready\n" in told("doctor")
    assert holder(place.lock) is None


def test_what_is_not_run_is_not_of_the_walk():
    """Installing is tested in tests/packaging, the simulation in tests/examples, the rest is shown only."""
    first = [block.split()[0] for block in blocks("console")]
    assert first == ["python3", "flwr", "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1", "cd"]
    assert set(re.findall(r"^```(\w+)$", PAGE.read_text(), re.MULTILINE)) == {"sh", "console"}
