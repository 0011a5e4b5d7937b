"""The virtual learners, cycle by cycle.

Everything is a function of the configuration and the cycle alone, so that server, clients and a resumed run
agree without messages.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from flwr_mel._validate import complain
from flwr_mel.paper import PaperFleet
from flwr_mel.tools.fleetfile import Learner, read_fleet
from mel_simulation.scenario.config import RunConfig


@lru_cache(maxsize=4)
def devices(config: RunConfig, cycle: int) -> tuple[Learner, ...]:
    """Return the learners as they are in a cycle, counted from 1: those of a file, or the paper's."""
    if config.fleet:
        return _from_file(config.fleet, config.learners)
    fleet = PaperFleet(config.seed, config.learners, config.energy, config.energy_spread)
    return tuple(fleet.devices(cycle))


def names(config: RunConfig) -> list[str]:
    """Return what the learners are called."""
    return [device.name for device in devices(config, 1)]


@lru_cache(maxsize=4)
def _from_file(path: str, learners: int) -> tuple[Learner, ...]:
    """Read a fleet file; an unnamed learner is called device-<number>."""
    fleet = read_fleet(Path(path))
    if len(fleet) != learners:
        remedy = f"With `flwr run` start it with num-supernodes={len(fleet)}."
        raise complain("learners", f"{len(fleet)}, as many as {path} has", learners, remedy)
    return tuple(replace(device, name=name) for device, name in zip(fleet.learners, fleet.names, strict=True))
