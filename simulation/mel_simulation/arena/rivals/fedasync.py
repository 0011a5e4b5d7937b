"""FedAsync: every arrival is mixed into the model at once, the less the older its start.

Xie, Koyejo, Gupta, "Asynchronous Federated Optimization", OPT 2020.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mel_simulation.arena.rounds import aged, keep_busy
from mel_simulation.arena.world import World


@dataclass(frozen=True, slots=True)
class FedAsync:
    """No rounds: all learners are always busy.

    Parameters
    ----------
    mixing : float
        alpha, the weight of a fresh update.
    age : float
        a of the polynomial discount (staleness + 1)^-a.
    epochs : int
        Local epochs.
    proximal : float
        rho.
    """

    mixing: float = 0.6
    age: float = 0.5
    epochs: int = 1
    proximal: float = 0.005

    def run(self, world: World) -> None:
        """Keep all learners busy; mix in what arrives."""
        for arrival in keep_busy(world, self.epochs, self.proximal):
            weight = self.mixing * aged(world, arrival, self.age)
            new = [
                ((1 - weight) * old.astype(np.float64) + weight * mine).astype(old.dtype)
                for old, mine in zip(world.model, arrival.weights, strict=True)
            ]
            world.publish(new)


RIVALS = {"fedasync": (FedAsync(), FedAsync(0.9), FedAsync(0.3), FedAsync(0.6, epochs=3))}
