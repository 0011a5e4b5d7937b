"""Problems of any size, drawn as the paper draws its own."""

from __future__ import annotations

import numpy as np

from flwr_mel import AllocationProblem, Coefficients, Workload
from flwr_mel.devices import Channel
from flwr_mel.paper import PAPER_CLASSES, PAPER_LAYERS, PAPER_TX_POWER_W, draw_energy, place


def fleet_problem(
    learners: int, time_s: float, energy_j: float, staleness: int, seed: int = 0
) -> AllocationProblem:
    """Draw a problem as the paper does, for any number of learners, with clocks that differ by up to 20 %.

    Parameters
    ----------
    learners : int
        K; every learner brings 3,000 samples.
    time_s, energy_j : float
        T and the mean of E_k.
    staleness : int
        c.
    seed : int
        One seed, one problem.
    """
    rng = np.random.default_rng(seed)
    clock = np.resize(list(PAPER_CLASSES.values()), learners) * rng.uniform(0.8, 1.2, learners)
    channel, job = Channel(), Workload.mlp(PAPER_LAYERS)
    attenuation_db = channel.loss_at_1km_db + channel.loss_per_decade_db * np.log10(
        place(rng, learners) / 1000
    )
    noise_w = 10 ** (channel.noise_dbm_per_hz / 10 - 3) * channel.bandwidth_hz
    rate = channel.bandwidth_hz * np.log2(1 + PAPER_TX_POWER_W * 10 ** (-attenuation_db / 10) / noise_w)
    costs = Coefficients(
        c2=job.operations_per_sample / clock,
        c1=job.sample_bits / rate,
        c0=2 * job.model_bits / rate,
        g2=1e-28 * clock**2 * job.operations_per_sample,
        g1=np.zeros(learners),
        g0=PAPER_TX_POWER_W * job.model_bits / rate,
    )
    limits = draw_energy(rng, learners, energy_j, 2.5)
    return AllocationProblem(
        costs, time_s, limits, total_samples=3000 * learners, staleness=staleness, min_samples=100
    )
