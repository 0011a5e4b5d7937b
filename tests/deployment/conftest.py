"""Federations of real processes, each started once: with TLS and registered devices, and without."""

import pytest

from tests.deployment.harness import Federation

#: Seconds per sample and epoch, on the devices' own clocks.
PACES = {"device-0": 0.01, "device-1": 0.03, "device-2": 0.09}


def pytest_itemcollected(item):
    if {"federation", "open_fleet", "small_fleet"} & set(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.deployment)


def started(directory, paces, *, secure=True):
    made = Federation(directory, secure=secure)
    try:
        made.start_superlink()
        made.add_nodes(paces)
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="package")
def federation(tmp_path_factory):
    """TLS, registered keys, three devices of different speed."""
    yield from started(tmp_path_factory.mktemp("fleet") / "f", PACES)


@pytest.fixture(scope="module")
def small_fleet(tmp_path_factory):
    """TLS, registered keys, two devices: for the test that restarts the server again and again."""
    yield from started(tmp_path_factory.mktemp("small") / "f", {"device-0": 0.001, "device-1": 0.002})


@pytest.fixture(scope="module")
def open_fleet(tmp_path_factory):
    """Neither TLS nor keys, two devices that know nothing but their place, Flower's own SuperNodes."""
    paces = {"device-0": 0.002, "device-1": 0.002}
    yield from started(tmp_path_factory.mktemp("open") / "f", paces, secure=False)
