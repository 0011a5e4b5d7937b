"""FedProx with partial work: a deadline, within which each learner does as much as it can.

Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020: devices may do inexact work, and a
proximal term keeps them near the model they began with.
"""

from __future__ import annotations

from dataclasses import dataclass

from mel_simulation.arena.rounds import average, fill, gather, rounds
from mel_simulation.arena.world import World


@dataclass(frozen=True, slots=True)
class FedProx:
    """Rounds with a deadline.

    Parameters
    ----------
    proximal : float
        mu.
    deadline : float
        Of a round, in rounds of FedAvg with one epoch.
    epochs : int
        The most that a learner does.
    """

    proximal: float = 0.01
    deadline: float = 1.0
    epochs: int = 5

    def run(self, world: World) -> None:
        """Send what fits, wait, average by what they hold."""
        deadline_s = self.deadline * world.round_s
        for number in rounds(world):
            jobs = fill(world, deadline_s, self.epochs, number, self.proximal)
            if back := gather(world, jobs):
                world.publish(average(world, back))


RIVALS = {
    "fedprox": (FedProx(), FedProx(0.1), FedProx(0.01, 0.5), FedProx(0.01, 0.25)),
}
