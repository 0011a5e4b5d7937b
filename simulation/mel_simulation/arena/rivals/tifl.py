"""TiFL: learners of like speed form tiers; each round asks one tier, the less accurate ones more often.

Chai et al., "TiFL: A Tier-based Federated Learning System", HPDC 2020: adaptive tier selection with credits.
Accuracies of the tiers are measured on what their learners hold, at no cost in time (which favours TiFL).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flwr_mel._validate import FloatArray, IntArray
from mel_simulation.arena.rounds import average, epoch_seconds, gather, rounds
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
        each = epoch_seconds(world, self.epochs)
        tiers = np.array_split(np.argsort(each, kind="stable"), self.tiers)
        takes = np.array([each[tier].max() for tier in tiers])
        # Credits: how often a tier may be asked, so that slow ones do not eat the whole time.
        credits = np.maximum(1, np.ceil(world.horizon_s / takes / self.tiers)).astype(np.int64)
        chance = np.full(len(tiers), 1 / len(tiers))
        before = np.zeros(len(tiers))
        rng, current = world.rng(1), 0
        for number in rounds(world):
            done, left = number - 1, np.zeros(len(tiers))
            while not left.sum():
                if done and done % self.interval == 0:
                    now = np.array([_accuracy(world, tier) for tier in tiers])
                    if now[current] <= before[current]:
                        chance = _by_need(now, credits)
                    before = now
                left = np.where(credits > 0, chance, 0.0)
                if not left.sum():
                    credits[:] += 1
            current = int(rng.choice(len(tiers), p=left / left.sum()))
            credits[current] -= 1
            jobs = [world.send(k, self.epochs) for k in tiers[current].tolist()]
            if back := gather(world, jobs):
                world.publish(average(world, back))


def _accuracy(world: World, tier: IntArray) -> float:
    """Return the accuracy on some of what a tier's learners hold."""
    rows = np.concatenate([world.parts[k] for k in tier.tolist()])
    some = world.rng(2).choice(rows, min(len(rows), 500), replace=False)
    return world.task.accuracy(world.model, some)


def _by_need(accuracy: FloatArray, credits: IntArray) -> FloatArray:
    """Return the paper's probabilities: the less accurate a tier with credits, the more likely."""
    able = [i for i in np.argsort(accuracy, kind="stable").tolist() if credits[i] > 0]
    chance = np.zeros(len(accuracy))
    worse = np.arange(len(able))[::-1] if len(able) > 1 else np.ones(len(able))
    chance[able] = worse / worse.sum()
    return chance


RIVALS = {"tifl": (TiFL(), TiFL(epochs=3), TiFL(3), TiFL(3, 3))}
