"""Fleets that the commands are asked about."""

import pytest

from flwr_mel.devices import Measured
from flwr_mel.fleets import write_fleet
from flwr_mel.paper import PaperFleet


@pytest.fixture
def paper(tmp_path):
    """The fleet that `flwr-mel fleet --paper` writes."""
    path = tmp_path / "fleet.toml"
    path.write_text(write_fleet(PaperFleet().devices()))
    return path


@pytest.fixture
def straggling(tmp_path):
    """Four fast learners and one that holds them up."""
    fast = [Measured(1e-4, 0, 1, 0, 0, 0, name=f"fast-{k}") for k in range(4)]
    path = tmp_path / "straggling.toml"
    path.write_text(write_fleet([*fast, Measured(4.0, 0, 1, 0, 0, 0, name="slow [red]")]))
    return path
