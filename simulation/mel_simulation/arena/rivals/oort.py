"""Oort: learners are chosen for the loss they still have and the time they take.

Lai et al., "Oort: Efficient Federated Learning via Guided Participant Selection", OSDI 2021. The statistical
utility uses the mean training loss of the last epoch in place of the root mean square over samples. The pacer
looks back five rounds in place of twenty, as bouts are short; learners that were cut off stay to be explored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flwr_mel._validate import FloatArray, IntArray
from mel_simulation.arena.rounds import average, epoch_seconds, gather, rounds
from mel_simulation.arena.world import World

_EXPLORE, _DECAY, _LEAST_EXPLORE = 0.9, 0.98, 0.2
_OVERCOMMIT = 1.3
_CUTOFF = 0.95
_PACE_STEP = 0.1


@dataclass(frozen=True, slots=True)
class Oort:
    """Rounds of chosen learners.

    Parameters
    ----------
    share : float
        Of the learners whose updates make a round.
    epochs : int
        Local epochs.
    penalty : float
        alpha, the exponent of the penalty on slow learners.
    """

    share: float = 0.5
    epochs: int = 1
    penalty: float = 2.0

    def run(self, world: World) -> None:
        """Choose, overcommit, take the first, average."""
        takes = epoch_seconds(world, self.epochs)
        wanted = max(1, round(self.share * len(world)))
        size = min(len(world), int(np.ceil(_OVERCOMMIT * wanted)))
        #: Utility of each learner, and the round that it was last seen in (0: never).
        utility, last = np.zeros(len(world)), np.zeros(len(world), dtype=np.int64)
        pace, explore = 0.5, _EXPLORE
        rng, gained = world.rng(3), []
        for number in rounds(world):
            known, fresh = np.flatnonzero(last > 0), np.flatnonzero(last == 0)
            new = min(len(fresh), max(round(explore * size), size - len(known)))
            explore = max(_LEAST_EXPLORE, explore * _DECAY)
            unsure = np.sqrt(0.1 * np.log(number + 1) / np.maximum(last[known], 1))
            worth = utility[known] + unsure * float(utility.max(initial=1.0))
            preferred = float(np.quantile(takes, pace))
            late = (preferred / takes[known]) ** self.penalty
            worth = worth * np.where(takes[known] > preferred, late, 1.0)
            chosen = known[_exploit(worth, size - new, rng)].tolist()
            if new:
                # New ones by speed, as the paper prefers.
                speed = 1 / takes[fresh]
                chosen += rng.choice(fresh, new, replace=False, p=speed / speed.sum()).tolist()
            jobs = [world.send(k, self.epochs) for k in sorted(chosen)]
            if back := gather(world, jobs, enough=wanted):
                learners = [arrival.job.learner for arrival in back]
                utility[learners] = [float(world.held[a.job.learner]) * a.loss for a in back]
                last[learners] = number
                gained.append(sum(utility[learners].tolist()))
                # The pacer: where utility falls, slower learners are let in.
                if len(gained) > 10 and sum(gained[-5:]) < sum(gained[-10:-5]):
                    pace = min(1.0, pace + _PACE_STEP)
                world.publish(average(world, back))


def _exploit(worth: FloatArray, wanted: int, rng: np.random.Generator) -> IntArray:
    """Draw from those whose utility is near that of the best ones, by utility."""
    if wanted <= 0 or not len(worth):
        return np.zeros(0, dtype=np.int64)
    line = _CUTOFF * np.sort(worth)[-min(wanted, len(worth))]
    pool = np.flatnonzero(worth >= line)
    p = np.maximum(worth[pool], 1e-12)
    return rng.choice(pool, min(wanted, len(pool)), replace=False, p=p / p.sum())


RIVALS = {"oort": (Oort(), Oort(0.3), Oort(0.5, 3), Oort(0.3, 3))}
