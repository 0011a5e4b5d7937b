"""One fleet of real processes for all tests that need one."""

import os
import subprocess

import numpy as np
import pytest

from tests.deployment.fleet import BIN, DEPLOY, Fleet, blocks


def pytest_itemcollected(item):
    if {"fleet", "script"} & set(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.deployment)


@pytest.fixture(scope="package")
def fleet(tmp_path_factory):
    """TLS, registered keys, three devices: what docs/DEPLOY.md sets up, its first training included."""
    made = Fleet(tmp_path_factory.mktemp("fleet"))
    rng = np.random.default_rng(0)
    for prefix in ("", "test-"):
        np.save(made.root / "data" / f"{prefix}x.npy", rng.random((60, 784), np.float32))
        np.save(made.root / "data" / f"{prefix}y.npy", rng.integers(10, size=60))
    try:
        made.said = [made.shell(block.replace("rounds=20", "rounds=1")) for block in blocks("sh")]
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="package")
def script(tmp_path_factory):
    """deploy/loopback.sh, started: it runs while other tests wait for Flower."""
    root = tmp_path_factory.mktemp("script")
    env = os.environ | {"PATH": os.pathsep.join([str(BIN), os.environ["PATH"], "/usr/sbin"])}
    with (root / "log").open("w") as log:
        command = [DEPLOY / "loopback.sh", root / "new", "features=16 hidden=8 classes=4"]
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    yield process, root
    process.terminate()
    process.wait()
