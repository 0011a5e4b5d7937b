"""FedCompass: learners get as many steps as make groups of them arrive together.

Li et al., "FedCompass: Efficient Cross-Silo Federated Learning on Heterogeneous Client Devices Using a
Computing Power Aware Scheduler", ICLR 2024. Speeds are known exactly here, so no learner misses its group
and the paper's latest time of arrival never comes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from flwr_mel._validate import IntArray
from mel_simulation.arena.rounds import aged, moved
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
        c, batch, rest_s = world.costs, world.task.batch, world.rest_s
        #: Seconds of an exchange and of a step, or more where a job's energy takes longer.
        fixed = np.maximum(c.c0, rest_s * c.g0)
        step = np.maximum((c.c2 + c.c1) * batch, rest_s * (c.g2 + c.g1) * batch)
        most = max(1, round(self.epochs * float(world.held.mean()) / batch))
        least = max(1, int(self.least * most))
        groups: list[_Group] = []

        def assign(k: int) -> None:
            """Join the group in whose time most steps fit, or open one."""
            fits = [int((group.due_s - world.now - fixed[k]) / step[k]) for group in groups]
            able = [i for i, fit in enumerate(fits) if least <= fit <= most]
            if able:
                joined = max(able, key=lambda i: fits[i])
                steps, group = fits[joined], groups[joined]
            else:
                steps = first_steps(k)
                group = _Group(world.now + float(fixed[k]) + steps * float(step[k]) * (1 + 1e-9))
                groups.append(group)
            group.out.add(k)
            world.send(k, 1, _rows(world, k, steps * batch))

        def first_steps(k: int) -> int:
            """Return the steps of a new group: so many that it ends when a present group's next turn may."""
            fits = []
            for group in groups:
                quickest = min(step[m] for m in group.out | {a.job.learner for a in group.back})
                fits.append(int((group.due_s + most * quickest - world.now - fixed[k]) / step[k]))
            return max(least, max((fit for fit in fits if fit <= most), default=most))

        for k in range(len(world)):
            assign(k)
        while (arrival := world.wait()) is not None:
            group = next(g for g in groups if arrival.job.learner in g.out)
            group.out.discard(arrival.job.learner)
            group.back.append(arrival)
            if group.out:
                continue
            groups.remove(group)
            back = sorted(group.back, key=lambda a: a.job.number)
            share = world.held / world.held.sum()
            scale = [float(share[a.job.learner]) * aged(world, a, self.age) for a in back]
            world.publish(moved(world.model, back, scale))
            for each in back:
                assign(each.job.learner)


def _rows(world: World, learner: int, samples: int) -> IntArray:
    """Go through a learner's data as often as need be, each time in a new order."""
    mine, rng = world.parts[learner], world.rng(6, learner, len(world.log))
    times = -(-samples // len(mine))
    return np.concatenate([rng.permutation(mine) for _ in range(times)])[:samples]


RIVALS = {"fedcompass": (FedCompass(), FedCompass(5.0), FedCompass(2.0, 0.5), FedCompass(1.0))}
