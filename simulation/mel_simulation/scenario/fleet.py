"""The virtual learners: where they are and what they can do, cycle by cycle.

Everything is a function of the seed and the cycle alone, so that server, clients and a resumed run agree
without talking to each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from flwr_mel import wire
from flwr_mel._validate import complain
from flwr_mel.clientapp import describe
from flwr_mel.devices import Device, Measured
from flwr_mel.tools.fleetfile import Fleet, read_fleet
from flwr_mel.paper import PAPER_CLASSES, PaperFleet
from mel_simulation.scenario.config import RunConfig
from mel_simulation.scenario.phones import PhoneFleet
from mel_simulation.scenario.traces import Traces


@dataclass(frozen=True, slots=True)
class VirtualFleet:
    """K learners in every cycle.

    Parameters
    ----------
    learners : int
        K.
    config : RunConfig
        Seed, energy, mobility, fleet file.
    """

    learners: int
    config: RunConfig

    def devices(self, cycle: int) -> list[Device | Measured]:
        """Return the learners as they are in a cycle, counted from 1."""
        found = self._drawn(cycle)
        if not self.config.links:
            return found
        traces = _traces(self.config.links)
        rates = traces.rates_bps(self.config.seed, self.learners, cycle, self.config.cycle_time)
        given = [device for device in found if isinstance(device, Device)]
        if len(given) < len(found):
            rule = "left out with a fleet of measured costs, which have their links in them"
            raise complain("links", rule, self.config.links)
        return [replace(d, rate_bps=float(rate)) for d, rate in zip(given, rates, strict=True)]

    def _drawn(self, cycle: int) -> list[Device | Measured]:
        c = self.config
        if c.fleet:
            return list(_file_fleet(c.fleet, self.learners))
        if c.phones:
            return list(PhoneFleet(c.seed, self.learners).devices(cycle))
        devices = PaperFleet(c.seed, self.learners, c.energy, c.energy_spread, c.mobility).devices(cycle)
        if not c.speeds:
            return list(devices)
        fastest, steps = max(PAPER_CLASSES.values()), max(self.learners - 1, 1)
        return [
            replace(d, cpu_hz=fastest * c.speeds ** (-k / steps), name=f"learner-{k:02d}")
            for k, d in enumerate(devices)
        ]

    def words(self, learner: int, cycle: int, max_samples: int | None) -> dict[str, Any]:
        """Return what a learner says of itself before a cycle.

        Parameters
        ----------
        learner, cycle : int
            Which learner (from 0), before which cycle (from 1).
        max_samples : int or None
            Samples it holds (FL).
        """
        device = _devices(self, cycle)[learner]
        words = _measured(device) if isinstance(device, Measured) else describe(device)
        words[wire.LEARNER] = device.name or f"device-{learner + 1}"
        limits = [n for n in (device.max_samples, max_samples) if n is not None]
        return words | ({wire.MAX_SAMPLES: min(limits)} if limits else {})


@lru_cache(maxsize=4)
def _devices(fleet: VirtualFleet, cycle: int) -> list[Device | Measured]:
    return fleet.devices(cycle)


@lru_cache(maxsize=4)
def _traces(path: str) -> Traces:
    return Traces.read(Path(path))


@lru_cache(maxsize=4)
def _file_fleet(path: str, learners: int) -> tuple[Device | Measured, ...]:
    fleet: Fleet = read_fleet(Path(path))
    if len(fleet.learners) != learners:
        size = len(fleet.learners)
        remedy = f"With `flwr run` start it with num-supernodes={size}."
        raise complain("learners", f"{size}, as many as {path} has", learners, remedy)
    return tuple(fleet.learners)


def _measured(device: Measured) -> dict[str, Any]:
    values = (device.c2, device.c1, device.c0, device.g2, device.g1, device.g0)
    words: Mapping[str, Any] = dict(zip(wire.COEFFICIENTS, values, strict=True))
    limit = {} if device.energy_limit_j is None else {wire.ENERGY_LIMIT_J: device.energy_limit_j}
    return {**words, **limit}
