"""FedNova: partial work, averaged by change per step, so that who does more does not pull the model its way.

Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
NeurIPS 2020.
"""

from __future__ import annotations

from dataclasses import dataclass

from flwr_mel.orchestrator.averaging import Average
from mel_simulation.arena.rounds import blended, gather, most_epochs
from mel_simulation.arena.world import World


@dataclass(frozen=True, slots=True)
class FedNova:
    """Rounds with a deadline and normalised averaging.

    Parameters
    ----------
    deadline : float
        Of a round, in rounds of FedAvg with one epoch.
    epochs : int
        The most anybody does.
    """

    deadline: float = 1.0
    epochs: int = 5

    def run(self, world: World) -> None:
        """Send what fits, wait, average what they did per step."""
        fits = most_epochs(world, self.deadline * world.round_s, self.epochs)
        while not world.over:
            back = gather(world, [world.send(k, int(n)) for k, n in enumerate(fits) if n])
            if back and not world.over:
                world.publish(blended(world, back, Average.NOVA_HELD))


RIVALS = {
    "fednova": (FedNova(), FedNova(1.0, 10), FedNova(2.0, 10), FedNova(1.0, 3)),
}
