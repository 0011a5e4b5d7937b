"""The paper's fleet (its Table 1): four classes of devices, spread over a disc around the orchestrator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flwr_mel._validate import FloatArray, complain, count, number
from flwr_mel.learners.channel import Channel, watts
from flwr_mel.learners.device import Device

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
PAPER_TX_POWER_W = watts(23.0)


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
