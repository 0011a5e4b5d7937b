"""Ours with `cycle_time_s="best"`: short rounds whose T follows from the costs, and Adam on the server."""

from __future__ import annotations

from dataclasses import dataclass

from flwr_mel.cycle.options import Average
from flwr_mel.solvers.rate import LEAST, Rate, best_round
from mel_simulation.arena.rivals.fedadam import with_adam
from mel_simulation.arena.rounds import Rival, repeat
from mel_simulation.arena.world import World


@dataclass(frozen=True, slots=True)
class BestRounds:
    """One pass over d_k samples in every round, averaged per step.

    Parameters
    ----------
    frugality : float
        0: time only; more saves energy.
    most : int
        The most samples of a task.
    """

    frugality: float = 0.0
    most: int = 256

    def run(self, world: World) -> None:
        """Plan once (costs do not change), then go from round to round."""
        power_w = world.setting.power_w or None
        rate = Rate(frugality=self.frugality, most=self.most, reference_s=1.0 if power_w else None)
        plan = best_round(world.costs, power_w, max_samples=world.held, min_samples=LEAST, objective=rate)
        # The energy limits are for the whole round.
        repeat(world, plan.solution, Average.NOVA, least_s=plan.cycle_time_s)


RIVALS: dict[str, tuple[Rival, ...]] = {
    "rate": with_adam(BestRounds(), BestRounds(most=64)),
    "rate-frugal": with_adam(BestRounds(0.25), BestRounds(0.25, most=64)),
}
