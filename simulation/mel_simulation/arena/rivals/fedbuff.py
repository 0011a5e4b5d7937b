"""FedBuff: asynchronous, but the model moves only when a buffer of changes is full.

Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation", AISTATS 2022: changes are scaled
by 1 / sqrt(1 + staleness).
"""

from __future__ import annotations

from dataclasses import dataclass

from mel_simulation.arena.rivals.fedadam import with_adam
from mel_simulation.arena.rivals.fedavgm import FedAvgM
from mel_simulation.arena.rounds import Rival, aged, keep_busy, moved
from mel_simulation.arena.world import Arrival, World


@dataclass(frozen=True, slots=True)
class FedBuff:
    """All learners are always busy; the server steps when enough has come.

    Parameters
    ----------
    buffer : int
        Changes per step of the server.
    epochs : int
        Local epochs.
    rate : float
        The server's learning rate.
    """

    buffer: int = 10
    epochs: int = 1
    rate: float = 1.0

    def run(self, world: World) -> None:
        """Collect changes, step when the buffer is full."""
        buffer: list[Arrival] = []
        for arrival in keep_busy(world, self.epochs):
            buffer.append(arrival)
            if len(buffer) >= min(self.buffer, len(world)):
                # In the order of the jobs' numbers: sums of floats depend on it.
                full = sorted(buffer, key=lambda a: a.job.number)
                scale = [self.rate * aged(world, arrival, 0.5) / len(full) for arrival in full]
                world.publish(moved(world.model, full, scale))
                buffer.clear()


RIVALS: dict[str, tuple[Rival, ...]] = {
    "fedbuff": (FedBuff(), FedBuff(5), FedBuff(3), FedBuff(5, 3)),
    "fedbuff-m": tuple(FedAvgM(FedBuff(buffer), momentum) for buffer in (10, 5) for momentum in (0.3, 0.5)),
    "fedbuff-adam": with_adam(FedBuff(10), FedBuff(5)),
}
