"""The virtual learners, cycle by cycle.

Everything is a function of the seed and the cycle alone, so that server, clients and a resumed run agree
without messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from flwr_mel import wire
from flwr_mel._validate import complain
from flwr_mel.clientapp import describe
from flwr_mel.devices import Device, Measured
from flwr_mel.paper import PaperFleet
from flwr_mel.tools.fleetfile import read_fleet
from mel_simulation.scenario.config import RunConfig
from mel_simulation.scenario.phones import PhoneFleet

Learner: TypeAlias = Device | Measured


@dataclass(frozen=True, slots=True)
class VirtualFleet:
    """K learners in every cycle: those of a file, phones, or the paper's."""

    learners: int
    config: RunConfig

    def devices(self, cycle: int) -> list[Learner]:
        """Return the learners as they are in a cycle, counted from 1."""
        return list(_devices(self, cycle))

    @property
    def names(self) -> tuple[str, ...]:
        """What the learners are called."""
        return tuple(device.name or f"device-{k + 1}" for k, device in enumerate(self.devices(1)))

    def capability(self, learner: int, cycle: int, held: int | None) -> dict[str, Any]:
        """Return what a learner declares before a cycle; `held`: the samples it has (FL)."""
        device = _devices(self, cycle)[learner]
        declared = _measured(device) if isinstance(device, Measured) else describe(device)
        limits = [n for n in (device.max_samples, held) if n is not None]
        declared |= {wire.MAX_SAMPLES: min(limits)} if limits else {}
        return declared | {wire.LEARNER: self.names[learner]}


@lru_cache(maxsize=4)
def _devices(fleet: VirtualFleet, cycle: int) -> tuple[Learner, ...]:
    c = fleet.config
    if c.fleet:
        return _from_file(c.fleet, fleet.learners)
    if c.phones:
        return tuple(PhoneFleet(c.seed, fleet.learners).devices(cycle))
    return tuple(PaperFleet(c.seed, fleet.learners, c.energy, c.energy_spread, c.mobility).devices(cycle))


@lru_cache(maxsize=4)
def _from_file(path: str, learners: int) -> tuple[Learner, ...]:
    found = tuple(read_fleet(Path(path)).learners)
    if len(found) != learners:
        remedy = f"With `flwr run` start it with num-supernodes={len(found)}."
        raise complain("learners", f"{len(found)}, as many as {path} has", learners, remedy)
    return found


def _measured(device: Measured) -> dict[str, Any]:
    values = (device.c2, device.c1, device.c0, device.g2, device.g1, device.g0)
    limit = {} if device.energy_limit_j is None else {wire.ENERGY_LIMIT_J: device.energy_limit_j}
    return {**dict(zip(wire.COEFFICIENTS, values, strict=True)), **limit}
