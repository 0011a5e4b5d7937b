"""FedAvg: all learners do the same epochs on all their data; the round waits for all, or drops late ones.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017;
no learner is sampled here; TiFL, Oort and FedZero choose learners. Costs do not change, so that the same
learners are always dropped; what they spent by then is spent.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from mel_simulation.arena.rounds import average, epoch_seconds, gather, rounds
from mel_simulation.arena.world import World


@dataclass(frozen=True, slots=True)
class FedAvg:
    """Rounds of equal epochs.

    Parameters
    ----------
    epochs : int
        Of each learner.
    present : float
        Share of the learners that the round waits for, by their expected times; 1: all.
    """

    epochs: int = 1
    present: float = 1.0

    def run(self, world: World) -> None:
        """Send all, wait for those within the deadline, average by what they hold."""
        takes = epoch_seconds(world, self.epochs)
        # The deadline lets the given share of the learners report.
        last = float(np.sort(takes)[int(np.ceil(self.present * len(world))) - 1])
        deadline = last * (1 + 1e-9) if self.present < 1 else inf
        for _ in rounds(world):
            jobs = [world.send(k, self.epochs) for k in range(len(world))]
            if back := gather(world, jobs, most_s=deadline):
                world.publish(average(world, back))


RIVALS = {
    "fedavg": (FedAvg(1), FedAvg(2), FedAvg(3), FedAvg(5)),
    "fedavg-drop": (FedAvg(2, 0.8), FedAvg(2, 0.6), FedAvg(5, 0.8), FedAvg(5, 0.6)),
}
