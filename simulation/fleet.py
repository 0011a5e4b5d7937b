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

import numpy as np

from flwr_mel import wire
from flwr_mel._validate import FloatArray
from flwr_mel.clientapp.mod import describe
from flwr_mel.learners import Channel, Device, paper_fleet
from flwr_mel.learners.fleet import Fleet, Measured
from flwr_mel.learners.fleet_files import read_fleet
from flwr_mel.learners.paper import PAPER_RADIUS_M, PAPER_TX_POWER_W, draw_energy, place
from simulation.config import RunConfig

# Independent streams of randomness from one seed.
_PLACES, _ENERGY, _MOVES = 1, 2, 3


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
        if self.config.fleet:
            return list(_file_fleet(self.config.fleet, self.learners))
        base = paper_fleet(_rng(self.config.seed, _PLACES), self.learners, energy_j=None)
        if self.config.mobility:
            channel = Channel()
            rates = [channel.rate_bps(float(r), PAPER_TX_POWER_W) for r in self.distances_m(cycle)]
            base = [replace(d, rate_bps=rate) for d, rate in zip(base, rates, strict=True)]
        if not self.config.energy:
            return list(base)
        rng = _rng(self.config.seed, _ENERGY, cycle)
        limits = draw_energy(rng, self.learners, self.config.energy, self.config.energy_spread)
        return [replace(d, energy_limit_j=float(e)) for d, e in zip(base, limits, strict=True)]

    def distances_m(self, cycle: int) -> FloatArray:
        """Return the distances from the orchestrator in a cycle: a random walk that stays in the disc."""
        rng = _rng(self.config.seed, _PLACES)
        radius = place(rng, self.learners)
        moves = _rng(self.config.seed, _MOVES)
        angle = moves.uniform(0, 2 * np.pi, self.learners)
        at = np.stack([radius * np.cos(angle), radius * np.sin(angle)])
        for _ in range(cycle - 1):
            at = at + moves.normal(0, self.config.mobility, at.shape)
            out = np.hypot(*at)
            # Reflected at the rim, and kept a metre away from the centre.
            at *= np.where(out > PAPER_RADIUS_M, np.maximum(2 * PAPER_RADIUS_M - out, 1) / out, 1.0)
        distances: FloatArray = np.maximum(np.hypot(*at), 1.0)
        return distances

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
def _file_fleet(path: str, learners: int) -> tuple[Device | Measured, ...]:
    fleet: Fleet = read_fleet(Path(path))
    if len(fleet.learners) != learners:
        raise ValueError(
            f"{path} has {len(fleet.learners)} learners, the federation {learners} nodes; start it with "
            f"num-supernodes={len(fleet.learners)}"
        )
    return tuple(fleet.learners)


def _measured(device: Measured) -> dict[str, Any]:
    values = (device.c2, device.c1, device.c0, device.g2, device.g1, device.g0)
    words: Mapping[str, Any] = dict(zip(wire.COEFFICIENTS, values, strict=True))
    limit = {} if device.energy_limit_j is None else {wire.ENERGY_LIMIT_J: device.energy_limit_j}
    return {**words, **limit}


def _rng(seed: int, *stream: int) -> np.random.Generator:
    return np.random.default_rng([seed, *stream])
