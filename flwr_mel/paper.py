"""The paper's fleet (its Table 1): four classes of devices, spread over a disc around the orchestrator."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from flwr_mel._validate import FloatArray, Phrase, complain, count, number
from flwr_mel.devices import Channel, Device, watts

#: Layer sizes of the paper's network.
PAPER_LAYERS = (784, 300, 124, 60, 10)
#: Clock per device class, in equal shares.
PAPER_CLASSES: dict[str, float] = {
    "laptop": 6.0e9,
    "phone": 2.4e9,
    "raspberry-pi": 1.4e9,
    "microcontroller": 0.7e9,
}
PAPER_RADIUS_M = 500.0
#: Samples of the paper's dataset, and the smallest batch of a learner that takes part.
PAPER_SAMPLES, PAPER_LEAST_BATCH = 60_000, 100
#: The default of c in all commands.
DEFAULT_STALENESS = 2
PAPER_TX_POWER_W = watts(23.0)

# Independent streams of randomness from one seed.
_PLACES, _ENERGY, _MOVES = 1, 2, 3


def place(rng: np.random.Generator, learners: int, radius_m: float = PAPER_RADIUS_M) -> FloatArray:
    """Draw distances in metres of points uniform in a disc, at least 1 m from its centre.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    learners : int
        How many.
    radius_m : float
        Of the disc.
    """
    _check_draw(rng, learners)
    number("radius_m", radius_m, above=1)
    return np.sqrt(1 + rng.random(learners) * (radius_m**2 - 1))


def draw_energy(rng: np.random.Generator, learners: int, mean_j: float, spread_j: float) -> FloatArray:
    """Draw E_k = E +- spread * U(0, 1), the sign random, as the paper does anew each cycle.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    learners : int
        How many.
    mean_j, spread_j : float
        E and the spread, in joules.
    """
    _check_draw(rng, learners)
    number("mean_j", mean_j, above=0)
    number("spread_j", spread_j, least=0)
    if spread_j >= mean_j:
        raise complain("spread_j", f"below the mean energy {mean_j:g} J", spread_j)
    limits: FloatArray = mean_j + spread_j * rng.random(learners) * rng.choice([-1.0, 1.0], learners)
    return limits


def _check_draw(rng: object, learners: object) -> None:
    if not isinstance(rng, np.random.Generator):
        raise complain("rng", "a numpy.random.Generator", rng, "Use np.random.default_rng(seed).")
    count("learners", learners, least=1)


def paper_fleet(
    rng: np.random.Generator,
    learners: int = 20,
    *,
    energy_j: float | None = 10.0,
    energy_spread_j: float = 2.5,
    radius_m: float = PAPER_RADIUS_M,
    channel: Channel | None = None,
) -> list[Device]:
    """Draw the paper's learners: clocks in equal shares, random places, Shannon rates, energy limits.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness; one seed, one fleet.
    learners : int
        K.
    energy_j : float, optional
        Mean energy limit per cycle, E. None: no limits.
    energy_spread_j : float
        E_k lies within E plus or minus this.
    radius_m : float
        Learners are within this distance.
    channel : Channel, optional
        The paper's by default.
    """
    _check_draw(rng, learners)
    channel = Channel() if channel is None else channel
    if not isinstance(channel, Channel):
        raise complain("channel", "a flwr_mel.Channel", channel)
    distances = place(rng, learners, radius_m)
    classes = list(PAPER_CLASSES.items())
    devices = [
        Device(
            cpu_hz=classes[k % len(classes)][1],
            rate_bps=channel.rate_bps(float(distances[k]), PAPER_TX_POWER_W),
            tx_power_w=PAPER_TX_POWER_W,
            name=f"{classes[k % len(classes)][0]}-{k:02d}",
        )
        for k in range(learners)
    ]
    if energy_j is None:
        return devices
    limits = draw_energy(rng, learners, energy_j, energy_spread_j)
    return [replace(d, energy_limit_j=float(e)) for d, e in zip(devices, limits, strict=True)]


def least_batch(total_samples: int, learners: int) -> int:
    """Return the smallest batch d_l that is used by default: the paper's, for any size of job.

    100 per 60,000 samples, at most half an equal share, at least 1. `flwr-mel plan` and `simulate`
    take it.

    Parameters
    ----------
    total_samples : int
        d.
    learners : int
        K.
    """
    total, k = count("total_samples", total_samples, least=1), count("learners", learners, least=1)
    return max(1, min(round(PAPER_LEAST_BATCH * total / PAPER_SAMPLES), total // (2 * k)))


@dataclass(frozen=True, slots=True)
class PaperFleet:
    """The paper's learners of one seed, cycle by cycle: the fleet that `flwr-mel` draws everywhere.

    Everything is a function of the seed and the cycle alone. Energy limits are drawn anew each cycle, as in
    the paper; learners move only with `mobility_m`.

    Parameters
    ----------
    seed : int
        One seed, one fleet.
    learners : int
        K.
    energy_j, energy_spread_j : float
        E_k lies within the mean plus or minus the spread. energy_j = 0: no limits.
    mobility_m : float
        Metres (standard deviation in x and y) that learners move between cycles.
    """

    seed: int = 0
    learners: int = 20
    energy_j: float = 10.0
    energy_spread_j: float = 2.5
    mobility_m: float = 0.0

    def __post_init__(self) -> None:
        count("seed", self.seed)
        count("learners", self.learners, least=1)
        number("energy_j", self.energy_j, least=0)
        number("energy_spread_j", self.energy_spread_j, least=0)
        number("mobility_m", self.mobility_m, least=0)
        if self.energy_j and self.energy_spread_j >= self.energy_j:
            rule = Phrase(f"below {{}} = {self.energy_j:g}", "energy_j")
            raise complain("energy_spread_j", rule, self.energy_spread_j)

    def devices(self, cycle: int = 1) -> list[Device]:
        """Return the learners as they are in a cycle, counted from 1."""
        count("cycle", cycle, least=1)
        devices = paper_fleet(self._rng(_PLACES), self.learners, energy_j=None)
        if self.mobility_m:
            channel = Channel()
            rates = [channel.rate_bps(float(r), PAPER_TX_POWER_W) for r in self.distances_m(cycle)]
            devices = [replace(d, rate_bps=rate) for d, rate in zip(devices, rates, strict=True)]
        if not self.energy_j:
            return devices
        limits = draw_energy(self._rng(_ENERGY, cycle), self.learners, self.energy_j, self.energy_spread_j)
        return [replace(d, energy_limit_j=float(e)) for d, e in zip(devices, limits, strict=True)]

    def distances_m(self, cycle: int = 1) -> FloatArray:
        """Return the distances from the orchestrator in a cycle: a random walk that stays in the disc."""
        radius, moves = place(self._rng(_PLACES), self.learners), self._rng(_MOVES)
        angle = moves.uniform(0, 2 * np.pi, self.learners)
        at = np.stack([radius * np.cos(angle), radius * np.sin(angle)])
        for _ in range(cycle - 1):
            at = at + moves.normal(0, self.mobility_m, at.shape)
            out = np.hypot(*at)
            # Reflected at the rim, and kept a metre away from the centre.
            at *= np.where(out > PAPER_RADIUS_M, np.maximum(2 * PAPER_RADIUS_M - out, 1) / out, 1.0)
        distances: FloatArray = np.maximum(np.hypot(*at), 1.0)
        return distances

    def _rng(self, *stream: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *stream])
