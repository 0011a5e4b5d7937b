"""Ours: epochs and samples of each learner by exact allocation within a cycle time and energy limits."""

from __future__ import annotations

from dataclasses import dataclass

from flwr_mel.allocation import AllocationProblem, Solution, Status, allocate
from flwr_mel.cycle.options import Average
from flwr_mel.paper import least_batch
from flwr_mel.solvers.schemes import SchemeName, scheme
from mel_simulation.arena.rivals.fedadam import with_adam
from mel_simulation.arena.rivals.fedavgm import with_momentum
from mel_simulation.arena.rounds import Rival, repeat
from mel_simulation.arena.world import World


@dataclass(frozen=True, slots=True)
class Allocated:
    """Cycles of equal length.

    Parameters
    ----------
    name : str
        Of the scheme.
    cycle : float
        T, in rounds of FedAvg with one epoch.
    staleness : int
        c; 0 for synchronous schemes.
    share : float
        d as a share of all data; less where the fleet cannot carry it.
    average : Average
        The paper's rule or FedNova's.
    """

    name: str
    cycle: float = 1.0
    staleness: int = 2
    share: float = 0.5
    average: Average = Average.SAMPLES

    def run(self, world: World) -> None:
        """Allocate once (costs do not change), then go from cycle to cycle."""
        repeat(world, self._plan(world), self.average)

    def _plan(self, world: World) -> Solution:
        time_s = self.cycle * world.round_s
        total = max(1, int(self.share * world.held.sum()))
        which = scheme(self.name, None if SchemeName(self.name).synchronous else self.staleness)
        problem = AllocationProblem(
            world.costs,
            time_s,
            world.setting.power_w * time_s or None,
            total_samples=total,
            staleness=which.staleness,
            min_samples=least_batch(total, len(world)),
            max_samples=world.held,
        )
        plan = allocate(problem, which.solver, throw=False)
        if plan.status is Status.INFEASIBLE and plan.diagnosis is not None and plan.diagnosis.carried:
            plan = allocate(problem.replace(total_samples=plan.diagnosis.carried), which.solver)
        return plan


def _grid(name: str, staleness: int) -> tuple[Allocated, ...]:
    cycles = ((1.0, Average.SAMPLES), (0.5, Average.SAMPLES), (0.5, Average.NOVA), (0.25, Average.NOVA))
    return tuple(Allocated(name, cycle, staleness, average=average) for cycle, average in cycles)


_SHORT = [Allocated("ha-asyn", cycle, average=Average.NOVA) for cycle in (0.25, 0.125)]
RIVALS: dict[str, tuple[Rival, ...]] = {
    "ha-asyn": _grid("ha-asyn", 2),
    "ha-sync": _grid("ha-sync", 0),
    # Momentum and Adam make up for what short cycles do little of.
    "ha-asyn-m": with_momentum(*_SHORT),
    "ha-asyn-adam": with_adam(*_SHORT),
}
