"""FedCompass: learners get as many steps as make groups of them arrive together.

Li et al., "FedCompass: Efficient Cross-Silo Federated Learning on Heterogeneous Client Devices Using a
Computing Power Aware Scheduler", ICLR 2024. Speeds are known exactly here, so no learner misses its group
and the paper's latest time of arrival never comes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from flwr_mel._validate import IntArray
from mel_simulation.arena.rounds import moved
from mel_simulation.arena.world import Arrival, World


@dataclass(slots=True)
class _Group:
    """Learners that are to arrive together."""

    due_s: float
    out: set[int] = field(default_factory=set)
    back: list[Arrival] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FedCompass:
    """Groups in place of rounds.

    Parameters
    ----------
    epochs : float
        Most work of a learner, in epochs on an even share of the data.
    least : float
        Least work as a share of the most.
    age : float
        a of the discount (staleness + 1)^-a.
    """

    epochs: float = 2.0
    least: float = 0.2
    age: float = 0.5

    def run(self, world: World) -> None:
        """Assign all learners to groups; when a group is complete, move the model and assign it anew."""
        groups: list[_Group] = []
        for k in range(len(world)):
            self._assign(world, groups, k)
        while not world.over:
            arrival = world.wait()
            if arrival is None:
                return
            group = next(g for g in groups if arrival.job.learner in g.out)
            group.out.discard(arrival.job.learner)
            group.back.append(arrival)
            if group.out:
                continue
            groups.remove(group)
            back = sorted(group.back, key=lambda a: a.job.number)
            share = world.held / world.held.sum()
            scale = [
                float(share[a.job.learner]) * (1 + world.version - a.job.version) ** -self.age for a in back
            ]
            world.publish(moved(world.model, back, scale))
            for each in back:
                self._assign(world, groups, each.job.learner)

    def _steps(self, world: World) -> tuple[int, int]:
        most = max(1, round(self.epochs * float(world.held.mean()) / world.task.batch))
        return max(1, int(self.least * most)), most

    def _assign(self, world: World, groups: list[_Group], learner: int) -> None:
        """Join the group in whose time most steps fit, or open one."""
        low, high = self._steps(world)
        fixed, step = _speed(world, learner)
        steps, mine = 0, None
        for group in groups:
            fit = int((group.due_s - world.now - fixed) / step)
            if low <= fit <= high and fit > steps:
                steps, mine = fit, group
        if mine is None:
            steps = self._open(world, groups, learner)
            mine = _Group(world.now + fixed + steps * step * (1 + 1e-9))
            groups.append(mine)
        mine.out.add(learner)
        world.send(learner, 1, _rows(world, learner, steps * world.task.batch))

    def _open(self, world: World, groups: list[_Group], learner: int) -> int:
        """Return the steps of a new group: so many that it ends when a present group's next turn may."""
        low, high = self._steps(world)
        fixed, step = _speed(world, learner)
        fits = []
        for group in groups:
            quickest = min(_speed(world, k)[1] for k in group.out | {a.job.learner for a in group.back})
            fits.append(int((group.due_s + high * quickest - world.now - fixed) / step))
        return max(low, max((fit for fit in fits if fit <= high), default=high))


def _speed(world: World, learner: int) -> tuple[float, float]:
    """Return the seconds of an exchange and of a step, or more where a job's energy takes longer."""
    c, batch, rest_s = world.costs, world.task.batch, world.rest_s
    exchange = max(c.c0[learner], rest_s * c.g0[learner])
    step = max((c.c2[learner] + c.c1[learner]) * batch, rest_s * (c.g2[learner] + c.g1[learner]) * batch)
    return float(exchange), float(step)


def _rows(world: World, learner: int, samples: int) -> IntArray:
    """Go through a learner's data as often as need be, each time in a new order."""
    mine, rng = world.parts[learner], world.rng(6, learner, len(world.log))
    times = -(-samples // len(mine))
    return np.concatenate([rng.permutation(mine) for _ in range(times)])[:samples]


RIVALS = {
    "fedcompass": (FedCompass(), FedCompass(5.0), FedCompass(2.0, 0.5), FedCompass(1.0)),
}
