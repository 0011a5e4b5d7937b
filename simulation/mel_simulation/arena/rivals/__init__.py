"""The rivals, each in one file, with the settings among which one is chosen on a seed of its own."""

from __future__ import annotations

from mel_simulation.arena.rivals import (
    fedasync,
    fedavg,
    fedavgm,
    fedbuff,
    fedcompass,
    fednova,
    fedprox,
    fedzero,
    oort,
    ours,
    tifl,
)
from mel_simulation.arena.rivals.rival import Rival

#: Settings of every rival, the usual one first. All have the same number, so that all are tuned alike.
RIVALS: dict[str, tuple[Rival, ...]] = {
    **fedavg.RIVALS,
    **fedavgm.RIVALS,
    **fedprox.RIVALS,
    **fednova.RIVALS,
    **tifl.RIVALS,
    **oort.RIVALS,
    **fedzero.RIVALS,
    **fedasync.RIVALS,
    **fedbuff.RIVALS,
    **fedcompass.RIVALS,
    **ours.RIVALS,
}
#: Which of them are ours.
OURS = tuple(ours.RIVALS)
#: Which of them have a server with momentum.
MOMENTUM = tuple(name for name, choices in RIVALS.items() if isinstance(choices[0], fedavgm.FedAvgM))

__all__ = ["MOMENTUM", "OURS", "RIVALS", "Rival"]
