"""Fleets that commands are asked about, runs to report on, meters that this machine does not have."""

import sys

import pytest

from flwr_mel.devices import Measured
from flwr_mel.paper import PaperFleet
from flwr_mel.tools.fleetfile import Fleet, write_fleet
from tests.tools.runs import make_run


@pytest.fixture
def paper(tmp_path):
    """The fleet that `flwr-mel fleet --paper` writes."""
    path = tmp_path / "fleet.toml"
    path.write_text(write_fleet(Fleet(PaperFleet().devices())))
    return path


@pytest.fixture
def straggling(tmp_path):
    """Four fast learners and one that holds them up."""
    fast = [Measured(1e-4, 0, 1, 0, 0, 0, name=f"fast-{k}") for k in range(4)]
    path = tmp_path / "straggling.toml"
    path.write_text(write_fleet(Fleet([*fast, Measured(4.0, 0, 1, 0, 0, 0, name="slow [red]")])))
    return path


@pytest.fixture(scope="session")
def several(tmp_path_factory):
    """Runs of two schemes with three seeds each."""
    folder = tmp_path_factory.mktemp("runs")
    return [make_run(folder / f"{c}-{seed}", staleness=c, seed=seed) for c in (2, 0) for seed in range(3)]


@pytest.fixture
def no_zeus(monkeypatch):
    monkeypatch.setitem(sys.modules, "zeus.device", None)


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
    """A directory with training functions, good and bad."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    known = set(sys.modules)
    (tmp_path / "neighbour.py").write_text("SECONDS = 4e-4\n")
    (tmp_path / "my_app.py").write_text(APP)
    (tmp_path / "bad.py").write_text("import nowhere_to_be_found\n")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - known:
        if name in ("neighbour", "my_app", "bad"):
            del sys.modules[name]
