"""A training function in files, meters that this machine does not have."""

import sys
import types

import pytest

APP = """
import time
from neighbour import SECONDS
def train(samples: int, epochs: int):
    print("hello from the function")
    time.sleep(SECONDS * samples * epochs + 0.01)
def swapped(n, tau): ...
def fails(samples, epochs): raise RuntimeError("out of data")
def nothing(samples, epochs): ...
number = 3
"""


@pytest.fixture
def app(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    known = set(sys.modules)
    (tmp_path / "neighbour.py").write_text("SECONDS = 4e-4\n")
    (tmp_path / "my_app.py").write_text(APP)
    (tmp_path / "bad.py").write_text("import nowhere_to_be_found\n")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - known:
        if name in ("neighbour", "my_app", "flwr_mel_profiled_my_app", "bad"):
            del sys.modules[name]


@pytest.fixture
def no_zeus(monkeypatch):
    monkeypatch.setitem(sys.modules, "zeus.device", None)


@pytest.fixture
def battery(monkeypatch):
    """A battery that loses 0.05 % at every look; no machine that runs tests has one to discharge."""
    psutil = pytest.importorskip("psutil")
    state = types.SimpleNamespace(percent=80.01, power_plugged=False)

    def look():
        state.percent -= 0.05
        return state

    monkeypatch.setattr(psutil, "sensors_battery", look, raising=False)
    return state
