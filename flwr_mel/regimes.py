"""What a fleet lacks: time, energy or neither, judged by what more of it would bring.

The thresholds are ours; the paper speaks of low, medium and high resources without numbers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum
from math import floor, log

import numpy as np

from flwr_mel.allocation.capacity import Capacities, relaxed_synchronous
from flwr_mel.allocation.problem import AllocationProblem
from flwr_mel.allocation.screening import diagnose, screen
from flwr_mel.allocation.solution import Infeasible

#: A resource is low from this share of the joint gain on, and high up to the other.
LOW_SHARE, HIGH_SHARE = 0.6, 0.2

#: Resources in sum are very low while fewer relaxed epochs than this fit, abundant from the other on.
SCARCE_EPOCHS, ABUNDANT_EPOCHS = 3.0, 8.0


class Level(StrEnum):
    """How much of a resource there is."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


@dataclass(frozen=True, slots=True)
class Resource:
    """Time or energy, judged by what twice of it would bring.

    Parameters
    ----------
    level : Level
        Low if `share` is at least `LOW_SHARE`, high if it is at most `HIGH_SHARE`.
    doubled : float
        tau* with twice of it, over tau*.
    share : float
        log(doubled) over the same with both doubled: which part of the joint gain it accounts for.
    binds : int
        Learners whose batch it stops first at floor(tau*) epochs.
    """

    level: Level
    doubled: float
    share: float
    binds: int


@dataclass(frozen=True, slots=True)
class Regimes:
    """What the fleet lacks.

    Parameters
    ----------
    relaxed_epochs : float
        tau*, the relaxed synchronous optimum.
    rounding : float
        tau* / floor(tau*): what whole epochs cost HA-Sync, and most of what staleness can win back.
    amount : Level
        Low below `SCARCE_EPOCHS` relaxed epochs, high from `ABUNDANT_EPOCHS` on.
    time, energy : Resource
        Which of the two it is that limits.
    both_doubled, unlimited_energy : float
        tau* with both doubled, and without energy limits, over tau*.
    bound_by_data : int
        Learners stopped by their own data first.
    """

    relaxed_epochs: float
    rounding: float
    amount: Level
    time: Resource
    energy: Resource
    both_doubled: float
    unlimited_energy: float
    bound_by_data: int


@dataclass(frozen=True, slots=True)
class Advice:
    """A scheme, the c to cross-validate, and why."""

    scheme: str
    staleness: tuple[int, ...]
    reason: str


def regimes_of(problem: AllocationProblem) -> Regimes:
    """Ask what twice the time, twice the energy, or both would bring.

    Parameters
    ----------
    problem : AllocationProblem
        The learners and the limits.

    Raises
    ------
    Infeasible
        If no allocation keeps all limits.
    """
    able = screen(Capacities.of(problem))[0]
    mine = Capacities.of(problem).take(able)
    if not len(able) or mine.at(1).sum() < problem.total_samples:
        raise Infeasible(diagnose(problem))

    def relaxed(time: float = 1.0, energy: float = 1.0) -> float:
        # The learners stay the same: one more straggler would hide what the rest gains.
        changed = replace(
            mine, cycle_time_s=mine.cycle_time_s * time, energy_limit_j=mine.energy_limit_j * energy
        )
        return relaxed_synchronous(changed, problem.total_samples)

    tau = relaxed()
    doubled = {"time": relaxed(2, 1) / tau, "energy": relaxed(1, 2) / tau}
    both, free = relaxed(2, 2) / tau, relaxed(1, np.inf) / tau
    binds = Counter(_tightest(mine, floor(tau)))
    resources = {}
    for name, factor in doubled.items():
        share = log(max(factor, 1.0)) / log(both) if both > 1 else 0.0
        level = Level.LOW if share >= LOW_SHARE else Level.HIGH if share <= HIGH_SHARE else Level.MEDIUM
        resources[name] = Resource(level, factor, share, binds[name])
    amount = Level.LOW if tau < SCARCE_EPOCHS else Level.HIGH if tau >= ABUNDANT_EPOCHS else Level.MEDIUM
    return Regimes(
        tau,
        tau / floor(tau),
        amount,
        **resources,
        both_doubled=both,
        unlimited_energy=free,
        bound_by_data=binds["data"],
    )


def _tightest(mine: Capacities, epochs: int) -> list[str]:
    """Say what stops each learner's batch first."""
    alone = (
        replace(mine, energy_limit_j=np.full(len(mine), np.inf), most=np.full_like(mine.most, 2**40)),
        replace(mine, cycle_time_s=np.inf, most=np.full_like(mine.most, 2**40)),
    )
    caps = np.stack([*(a.relaxed(float(epochs)) for a in alone), mine.most])
    return [("time", "energy", "data")[i] for i in caps.argmin(axis=0)]


def paper_rule(regimes: Regimes, most: int) -> Advice:
    """Apply the two steps of the paper's Discussion.

    Parameters
    ----------
    regimes : Regimes
        Of a fleet.
    most : int
        The largest c.
    """
    levels = {regimes.time.level, regimes.energy.level}
    said = f"time is {regimes.time.level}, energy {regimes.energy.level}, epochs {regimes.amount}"
    few = tuple(range(1, min(most, 2) + 1))
    many = tuple(range(3, most + 1)) or few
    if regimes.amount is Level.LOW:
        return Advice("ha-asyn", few, f"{said}: in the very low region c = 1 and 2 may suffice")
    if regimes.amount is Level.HIGH:
        return Advice("ha-asyn", many, f"{said}: with abundant resources take c from 3 on")
    if Level.HIGH in levels:
        return Advice(
            "ha-asyn", many, f"{said}: one resource is low and the other abundant, take c from 3 on"
        )
    if Level.LOW in levels:
        return Advice("ha-asyn", few, f"{said}: a resource is low")
    return Advice("ha-sync", (0,), f"{said}: in the medium range HA-Sync works best")
