"""How far declared costs are believed: the rule for late learners, or, if asked for, what was learnt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from flwr_mel._validate import FloatArray, number
from flwr_mel.learning import Estimate, Learning, Observation
from flwr_mel.orchestrator.capability import Costs
from flwr_mel.orchestrator.settings import Settings
from flwr_mel.orchestrator.state import LearnerState
from flwr_mel.records import LearnerRecord, Outcome

#: Doubts about learners that say nothing, and, with a reason, about those whose words cannot be right.
REFUSED = "its capabilities are refused"
SILENT = "does not say what it can do (no mel_mod, or no profile)"

#: A late learner's time is taken for this much longer; a punctual one's is believed again step by step.
_LATE_FACTOR, _TRUST_FACTOR = 1.5, 0.9
#: Seconds or joules; more than that in one cycle is no measurement.
_LARGEST_MEASUREMENT = 1e12
# Share of the cycle that a link takes which was declared to take nothing: a factor needs something to act on.
_LEAST_LINK = 1e-3
# Epochs times samples must be exact in float64, as AllocationProblem demands.
_MOST_STEPS = 2.0**53


def planned_costs(who: Sequence[LearnerState], settings: Settings) -> FloatArray:
    """Return the costs to plan with, one row c2, c1, c0, g2, g1, g0 per learner.

    Parameters
    ----------
    who : sequence of LearnerState
        With costs.
    settings : Settings
        Whether to learn, and how safe plans must be.
    """
    costs: FloatArray = np.array([x.costs for x in who])
    if settings.learning is None:
        costs[:, :3] *= np.array([x.slowdown for x in who])[:, None]
        return costs
    level = settings.learning.level(len(who))
    one = (1.0, 1.0, 1.0)
    factors = np.array([one if x.estimate is None else x.estimate.factors(level) for x in who])
    costs[:, 2] = np.where(costs[:, 1:3].any(axis=1), costs[:, 2], _LEAST_LINK * settings.cycle_time_s)
    costs *= factors[:, [0, 1, 1, 2, 2, 2]]
    costs[:, 0] = np.maximum(costs[:, 0], settings.cycle_time_s / _MOST_STEPS * 2)
    return costs


def assume_costs(learners: Sequence[LearnerState], settings: Settings) -> list[LearnerState]:
    """Assume costs for learners that declare nothing, and return these learners.

    They are taken for as slow as the slowest known learner in each coefficient, but for able to do one
    epoch of the least batch within the cycle, or they could never show what they take.

    Parameters
    ----------
    learners : sequence of LearnerState
        Who is there; changed in place.
    settings : Settings
        Cycle time and least batch.
    """
    silent = [x for x in learners if x.costs is None and x.capability is not None and x.doubt == SILENT]
    if not silent:
        return []
    known = [x for x in learners if x.costs is not None]
    cycle_s, least = settings.cycle_time_s * (1 - 1e-9), settings.min_samples
    costs: Costs = (cycle_s / 2 / least, 0.0, cycle_s / 2, 0.0, 0.0, 0.0)
    if known:
        c2, c1, c0, g2, g1, g0 = planned_costs(known, settings).max(axis=0).tolist()
        fits = min(1.0, cycle_s / ((c2 + c1) * least + c0))
        costs = (c2 * fits, c1 * fits, c0 * fits, g2, g1, g0)
    for learner in silent:
        before = None if learner.estimate is None else learner.estimate.base
        learner.costs, learner.doubt = before or costs, ""
    return silent


def start_estimates(learners: Sequence[LearnerState], learning: Learning) -> None:
    """Begin an estimate for whoever has costs and none, or one that was about other words.

    Parameters
    ----------
    learners : sequence of LearnerState
        Who is there; changed in place.
    learning : Learning
        Spreads and noise.
    """
    for x in learners:
        if x.costs is None or x.capability is None:
            continue
        if x.estimate is None or x.estimate.declared != x.declared:
            x.estimate = Estimate.start(
                x.costs, declared=x.declared, assumed=not x.capability.able, learning=learning
            )


def learn(
    learners: Mapping[str, LearnerState],
    rows: Sequence[LearnerRecord],
    settings: Settings,
    late_after_s: float,
) -> None:
    """Learn from what came back in a cycle.

    Parameters
    ----------
    learners : mapping of node to LearnerState
        Everybody known; their estimates are changed.
    rows : sequence of LearnerRecord
        The cycle's.
    settings : Settings
        Cycle time and what is to be learnt.
    late_after_s : float
        What late learners took at least.
    """
    learning = settings.learning
    if learning is None:
        return
    level = learning.level(sum(bool(row.samples) for row in rows))
    for row in rows:
        learner = learners[row.node]
        if learner.estimate is None or learner.costs is None:
            continue
        if not row.samples:
            learner.estimate.rest()
            continue
        if row.outcome is Outcome.FAILED:  # a crash tells nothing of time
            continue
        seen = Observation(
            row.epochs,
            row.weight or row.samples,
            train_s=row.reported_time_s,
            joules=row.reported_energy_j,
            round_trip_s=row.round_trip_s,
            late_after_s=late_after_s if row.outcome is Outcome.LATE else None,
            planned_s=row.time_s,
        )
        learner.estimate.observe(_with_link(learner.costs, settings), seen, learning, level)


def _with_link(costs: Costs, settings: Settings) -> Costs:
    c2, c1, c0, g2, g1, g0 = costs
    return costs if c1 or c0 else (c2, c1, _LEAST_LINK * settings.cycle_time_s, g2, g1, g0)


def adjust_trust(learners: Mapping[str, LearnerState], rows: Sequence[LearnerRecord]) -> None:
    """Trust late learners less and punctual ones more again: all that can be done without learning.

    Parameters
    ----------
    learners : mapping of node to LearnerState
        Everybody known; their slowdowns are changed.
    rows : sequence of LearnerRecord
        The cycle's.
    """
    for row in rows:
        learner = learners[row.node]
        if row.outcome is Outcome.LATE:
            learner.slowdown *= _LATE_FACTOR
        elif row.outcome is Outcome.USED:
            learner.slowdown = max(1.0, learner.slowdown * _TRUST_FACTOR)


def slowdown_of(learner: LearnerState, row: LearnerRecord | None = None) -> float:
    """Return planned time over declared time.

    Parameters
    ----------
    learner : LearnerState
        Whose.
    row : LearnerRecord, optional
        With its task; without one only the rule for late learners counts.
    """
    if row is None or learner.estimate is None or learner.costs is None:
        return learner.slowdown
    c2, c1, c0 = learner.costs[:3]
    return row.time_s / (c2 * (row.epochs * row.samples) + c1 * row.samples + c0)


def measurement(value: object) -> float | None:
    """Return a time or an energy that a learner reports; None if it cannot be one."""
    try:
        measured = number("measurement", value, least=0)
    except ValueError:
        return None
    return measured if measured <= _LARGEST_MEASUREMENT else None
