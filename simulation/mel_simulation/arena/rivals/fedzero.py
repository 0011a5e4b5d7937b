"""FedZero's rule: the shortest round in which enough learners can do their least work on their energy.

Wiesner et al., "FedZero: Leveraging Renewable Excess Energy in Federated Learning", e-Energy 2024. Here a
learner's energy is its limit, a power times the round's length, in place of excess solar power; learners that
took part are blocked and come back by chance: (p - mean)^-alpha after p rounds, and 1 while p is at most one
above the mean of all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flwr_mel._validate import FloatArray, IntArray
from mel_simulation.arena.rounds import average, epoch_seconds, gather, rounds
from mel_simulation.arena.world import World


@dataclass(frozen=True, slots=True)
class FedZero:
    """Rounds as long as the energy asks.

    Parameters
    ----------
    share : float
        Of the learners that a round needs.
    most : int
        Most epochs of a learner; the least is one.
    fairness : float
        alpha: how strongly frequent learners are kept out.
    """

    share: float = 0.5
    most: int = 5
    fairness: float = 1.0

    def run(self, world: World) -> None:
        """Find the round, ask its learners for what fits, average."""
        wanted = max(1, round(self.share * len(world)))
        power = world.setting.power_w or np.inf
        used = np.zeros(len(world), dtype=np.int64)
        blocked = np.zeros(len(world), dtype=bool)
        loss = np.ones(len(world))
        rng = world.rng(4)
        #: The shortest round in which each learner can do 1, 2, ... epochs on its energy.
        needs = []
        for epochs in range(1, self.most + 1):
            energy_j = world.costs.energy_j(np.full(len(world), epochs), world.held)
            needs.append(np.maximum(epoch_seconds(world, epochs), energy_j / power))

        for _ in rounds(world):
            blocked[:] &= rng.random(len(world)) >= _released(used, self.fairness)
            if (~blocked).sum() < wanted:
                blocked[:] = False
            able = np.flatnonzero(~blocked)
            length = float(np.sort(needs[0][able])[wanted - 1])
            fits = able[needs[0][able] <= length]
            # Among the able learners those with the highest loss.
            chosen = np.sort(fits[np.argsort(-(world.held * loss)[fits], kind="stable")][:wanted])
            used[chosen] += 1
            blocked[chosen] = True
            jobs = [world.send(k, sum(float(n[k]) <= length for n in needs)) for k in chosen.tolist()]
            if back := gather(world, jobs):
                for arrival in back:
                    loss[arrival.job.learner] = arrival.loss
                world.publish(average(world, back))


def _released(used: IntArray, fairness: float) -> FloatArray:
    """Return the chance to be let in again: 1 up to a round above the mean use, falling beyond that."""
    chance: FloatArray = np.maximum(used - used.mean(), 1.0) ** -fairness
    return chance


RIVALS = {"fedzero": (FedZero(), FedZero(0.3), FedZero(0.8), FedZero(0.5, 10))}
