"""FedNova: partial work, averaged by change per step, so that more work does not mean more weight.

Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
NeurIPS 2020.
"""

from __future__ import annotations

from dataclasses import dataclass

from flwr_mel.cycle.options import Average
from mel_simulation.arena.rivals.fedadam import with_adam
from mel_simulation.arena.rivals.fedavgm import with_momentum
from mel_simulation.arena.rounds import Rival, blended, fill, gather, rounds
from mel_simulation.arena.world import World


@dataclass(frozen=True, slots=True)
class FedNova:
    """Rounds with a deadline and normalised averaging.

    Parameters
    ----------
    deadline : float
        Of a round, in rounds of FedAvg with one epoch.
    epochs : int
        The most that a learner does.
    """

    deadline: float = 1.0
    epochs: int = 5

    def run(self, world: World) -> None:
        """Send what fits, wait, average what they did per step."""
        deadline_s = self.deadline * world.round_s
        # By what learners hold; by what they did where the deadline is too short for all of it.
        rule = Average.NOVA_HELD if self.deadline >= 1 else Average.NOVA
        for number in rounds(world):
            if back := gather(world, fill(world, deadline_s, self.epochs, number)):
                world.publish(blended(world, back, rule))


RIVALS: dict[str, tuple[Rival, ...]] = {
    "fednova": (FedNova(), FedNova(1.0, 10), FedNova(0.5), FedNova(0.25)),
    "fednova-m": with_momentum(FedNova(0.25), FedNova(0.125)),
    "fednova-adam": with_adam(FedNova(0.25), FedNova(0.125)),
}
