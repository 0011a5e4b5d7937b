"""TiFL: learners of like speed form tiers; each round asks one tier, the less accurate ones more often.

Chai et al., "TiFL: A Tier-based Federated Learning System", HPDC 2020: adaptive tier selection with credits.
Accuracies of the tiers are measured on what their learners hold, at no cost in time (which favours TiFL).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flwr_mel._validate import FloatArray, IntArray
from mel_simulation.arena.rounds import average, epoch_seconds, gather, held_by
from mel_simulation.arena.world import World


@dataclass(frozen=True, slots=True)
class TiFL:
    """Rounds within a tier.

    Parameters
    ----------
    tiers : int
        How many.
    epochs : int
        Local epochs.
    interval : int
        Rounds after which probabilities are looked at again.
    """

    tiers: int = 5
    epochs: int = 1
    interval: int = 5

    def run(self, world: World) -> None:
        """Draw a tier, ask all of it, average."""
        tiers = np.array_split(np.argsort(epoch_seconds(world, self.epochs), kind="stable"), self.tiers)
        takes = np.array([epoch_seconds(world, self.epochs)[tier].max() for tier in tiers])
        # Credits: how often a tier may be asked, so that slow ones do not eat the whole time.
        credits = np.maximum(1, np.ceil(world.horizon_s / takes / self.tiers)).astype(np.int64)
        chance = np.full(len(tiers), 1 / len(tiers))
        before = np.zeros(len(tiers))
        rng, number, current = world.rng(1), 0, 0
        while not world.over:
            if number and number % self.interval == 0:
                now = self._accuracies(world, tiers)
                if now[current] <= before[current]:
                    chance = _by_need(now, credits)
                before = now
            left = np.where(credits > 0, chance, 0.0)
            if not left.sum():
                credits += 1
                continue
            current = int(rng.choice(len(tiers), p=left / left.sum()))
            credits[current] -= 1
            back = gather(world, [world.send(int(k), self.epochs) for k in tiers[current]])
            if back and not world.over:
                world.publish(average(back, held_by(world, back)))
            number += 1

    def _accuracies(self, world: World, tiers: list[IntArray]) -> FloatArray:
        found = []
        for tier in tiers:
            rows = np.concatenate([world.parts[int(k)] for k in tier])
            some = world.rng(2).choice(rows, min(len(rows), 500), replace=False)
            found.append(world.task.accuracy_on(world.model, some))
        return np.array(found)


def _by_need(accuracy: FloatArray, credits: IntArray) -> FloatArray:
    """Return the paper's probabilities: the less accurate a tier with credits, the more likely."""
    order = np.argsort(accuracy, kind="stable")
    able = [int(i) for i in order if credits[i] > 0]
    count = len(able)
    chance = np.zeros(len(accuracy))
    if count < 2:
        chance[able] = 1.0
        return chance if count else np.full(len(accuracy), 1 / len(accuracy))
    whole = count * (count - 1) / 2
    for place, tier in enumerate(able):
        chance[tier] = (count - 1 - place) / whole
    return chance


RIVALS = {
    "tifl": (TiFL(), TiFL(epochs=3), TiFL(3), TiFL(3, 3)),
}
