"""FedAvgM: the server does not jump to the average but moves towards it with momentum.

Hsu, Qi, Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification", 2019; Flower's `FedAvgM` with its rate of 1 (tested). What makes the average may be any
rival: ours in it is `MelStrategy(FedAvgM(...))`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mel_simulation.arena.rivals.fedavg import FedAvg
from mel_simulation.arena.rounds import Rival
from mel_simulation.arena.world import World
from mel_simulation.scenario.network import Weights


@dataclass(frozen=True, slots=True)
class FedAvgM:
    """A rival whose models are stepped to with momentum.

    Parameters
    ----------
    inner : Rival
        It makes the models.
    momentum : float
        How much of the last step is in the next one.
    """

    inner: Rival
    momentum: float = 0.8

    def run(self, world: World) -> None:
        """Let the rival run in a world whose server has momentum."""
        changes = [np.zeros(w.shape) for w in world.model]

        def step(model: Weights, wanted: Weights) -> Weights:
            """Every step is its change and a share of the step before."""
            for i, (old, new) in enumerate(zip(model, wanted, strict=True)):
                changes[i] = self.momentum * changes[i] + (new.astype(np.float64) - old)
            return [(old + change).astype(old.dtype) for old, change in zip(model, changes, strict=True)]

        world.server = step
        self.inner.run(world)


def with_momentum(*rivals: Rival) -> tuple[FedAvgM, ...]:
    """Return each of some rivals with a strong and a weak momentum."""
    return tuple(FedAvgM(rival, momentum) for momentum in (0.8, 0.5) for rival in rivals)


RIVALS = {"fedavgm": with_momentum(FedAvg(1), FedAvg(3))}
