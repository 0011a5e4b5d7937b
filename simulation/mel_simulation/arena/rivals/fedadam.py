"""FedAdam: the average gives the direction of the server's step, Adam its length.

Reddi et al., "Adaptive Federated Optimization", ICLR 2021; Flower's `FedAdam` with a tau that suits small
steps. What makes the average may be any rival.
"""

from __future__ import annotations

from dataclasses import dataclass

from mel_simulation.arena.rivals.fedavg import FedAvg
from mel_simulation.arena.rounds import Rival
from mel_simulation.arena.world import World
from mel_simulation.scenario.adam import adam


@dataclass(frozen=True, slots=True)
class FedAdam:
    """A rival whose models are stepped to by Adam.

    Parameters
    ----------
    inner : Rival
        It makes the models.
    eta : float
        Length of a step.
    """

    inner: Rival
    eta: float = 0.004

    def run(self, world: World) -> None:
        """Let the rival run in a world whose server has Adam."""
        step = adam(self.eta)
        world.server = lambda model, wanted: step(world.version + 1, model, wanted)
        self.inner.run(world)


def with_adam(*rivals: Rival) -> tuple[FedAdam, ...]:
    """Return each of some rivals with a short and a long step."""
    return tuple(FedAdam(rival, eta) for eta in (0.004, 0.02) for rival in rivals)


RIVALS = {"fedavg-adam": with_adam(FedAvg(1), FedAvg(3))}
