"""The rivals, each in one file, with the settings among which one is chosen on a seed of its own."""

from __future__ import annotations

from mel_simulation.arena.rivals import (
    fedadam,
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
    rate,
    tifl,
)
from mel_simulation.arena.rounds import Rival

_PUBLISHED = (fedavg, fedavgm, fedadam, fedprox, fednova, tifl, oort, fedzero, fedasync, fedbuff, fedcompass)
#: Settings of every rival, the usual one first. All have the same number, so that all are tuned alike.
RIVALS: dict[str, tuple[Rival, ...]] = {
    name: tuple(choices) for file in (*_PUBLISHED, ours, rate) for name, choices in file.RIVALS.items()
}
#: Which of them are ours.
OURS = (*ours.RIVALS, *rate.RIVALS)


def server_of(name: str) -> str:
    """Return how a contestant's server moves: "plain", "momentum" or "adam"."""
    kind = type(RIVALS[name][0])
    return {fedavgm.FedAvgM: "momentum", fedadam.FedAdam: "adam"}.get(kind, "plain")
