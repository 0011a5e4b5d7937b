"""One fleet of real processes for all tests that need one."""

import numpy as np
import pytest

from tests.deployment.fleet import Fleet, blocks


def pytest_itemcollected(item):
    if "fleet" in getattr(item, "fixturenames", ()):
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
        made.said = [made.shell(block) for block in blocks("sh")]
        yield made
    finally:
        made.stop()
