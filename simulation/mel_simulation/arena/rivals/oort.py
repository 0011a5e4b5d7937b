"""Oort: learners are chosen for the loss they still have and the time they take.

Lai et al., "Oort: Efficient Federated Learning via Guided Participant Selection", OSDI 2021. The statistical
utility uses the mean training loss of the last epoch in place of the root mean square over samples. The pacer
looks back five rounds in place of twenty, as bouts are short; learners that were cut off stay to be explored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flwr_mel._validate import FloatArray
from mel_simulation.arena.rounds import average, epoch_seconds, gather, held_by
from mel_simulation.arena.world import Arrival, World

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
        memory = _Memory(np.zeros(len(world)), np.zeros(len(world), dtype=np.int64))
        pace, explore, round_no = 0.5, _EXPLORE, 0
        rng, gained = world.rng(3), []
        while not world.over:
            round_no += 1
            preferred = float(np.quantile(takes, pace))
            chosen = self._choose(memory, takes, preferred, round_no, explore, wanted, rng)
            explore = max(_LEAST_EXPLORE, explore * _DECAY)
            back = gather(world, [world.send(int(k), self.epochs) for k in chosen], enough=wanted)
            gained.append(memory.learn(world, back, round_no))
            # The pacer: where utility falls, slower learners are let in.
            if len(gained) > 10 and sum(gained[-5:]) < sum(gained[-10:-5]):
                pace = min(1.0, pace + _PACE_STEP)
            if back and not world.over:
                world.publish(average(back, held_by(world, back)))

    def _choose(
        self,
        memory: _Memory,
        takes: FloatArray,
        preferred: float,
        round_no: int,
        explore: float,
        wanted: int,
        rng: np.random.Generator,
    ) -> list[int]:
        size = min(len(takes), int(np.ceil(_OVERCOMMIT * wanted)))
        known = np.flatnonzero(memory.last > 0)
        fresh = np.flatnonzero(memory.last == 0)
        new = min(len(fresh), max(round(explore * size), size - len(known)))
        utility = memory.utility[known] + np.sqrt(
            0.1 * np.log(round_no + 1) / np.maximum(memory.last[known], 1)
        ) * float(memory.utility.max(initial=1.0))
        slow = takes[known] > preferred
        utility = utility * np.where(slow, (preferred / takes[known]) ** self.penalty, 1.0)
        chosen: list[int] = []
        if size > new and len(known):
            line = _CUTOFF * np.sort(utility)[-min(size - new, len(known))]
            pool = np.flatnonzero(utility >= line)
            p = np.maximum(utility[pool], 1e-12)
            some = rng.choice(pool, min(size - new, len(pool)), replace=False, p=p / p.sum())
            chosen += [int(k) for k in known[some]]
        if new:
            # New ones by speed, as the paper prefers.
            speed = 1 / takes[fresh]
            chosen += [int(k) for k in rng.choice(fresh, new, replace=False, p=speed / speed.sum())]
        return sorted(chosen)


@dataclass(slots=True)
class _Memory:
    """Utility of each learner and the round that it was last seen in (0: never)."""

    utility: FloatArray
    last: np.ndarray

    def learn(self, world: World, back: list[Arrival], round_no: int) -> float:
        for arrival in back:
            k = arrival.job.learner
            self.utility[k] = float(world.held[k]) * arrival.loss
            self.last[k] = round_no
        return float(sum(self.utility[a.job.learner] for a in back))


RIVALS = {
    "oort": (Oort(), Oort(0.3), Oort(0.5, 3), Oort(0.3, 3)),
}
