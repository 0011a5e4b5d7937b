"""How far declared costs are believed: one estimate per learner, fed by what came back.

Without learning the only evidence is that a report did not come in time: then a learner's costs are taken for
larger, and it is believed again step by step. With learning all that is measured counts too, and plans are
made to be safe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from flwr_mel._slots import changed
from flwr_mel._validate import FloatArray, IntArray
from flwr_mel.devices import Costs
from flwr_mel.learning import CallCost, Estimate, Learning, Observation
from flwr_mel.orchestrator.averaging import FEWEST
from flwr_mel.orchestrator.doubts import Why
from flwr_mel.orchestrator.settings import InForce, Mode
from flwr_mel.orchestrator.state import LearnerState
from flwr_mel.records import LearnerRecord, Outcome

# Share of the cycle that a link takes which was declared to take nothing: a factor needs something to act on.
_LEAST_LINK = 1e-3
# Epochs times samples must be exact in float64, as AllocationProblem demands.
_MOST_STEPS = 2.0**53
# Without learning lateness is judged like this, with no safety on top: costs are taken for about 1.6 times
# larger each time, as long as it goes on, and for a tenth less in every other cycle.
_SAFE, _MIDDLE = Learning(), Learning(on_time=0.5)
_LATENESS, _EVEN = Learning(declared_spread=0.4, undeclared_spread=0.4, drift=0.4), 0.5
_ONE = (1.0, 1.0, 1.0)
# By so much a learner is believed to excel the middle one on its word alone, and once more with every task
# that it delivers; after so many there is no bound to speak of. Of fewer learners there is no middle one.
_ON_ITS_WORD, _PROVEN = 2.0, 40


def planned_costs(who: Sequence[LearnerState], settings: InForce) -> FloatArray:
    """Return the costs to plan with, one row c2, c1, c0, g2, g1, g0 per learner.

    Parameters
    ----------
    who : sequence of LearnerState
        With costs.
    settings : InForce
        Whether to learn, and how safe plans must be.
    """
    costs: FloatArray = np.array([x.costs for x in who])
    learnt = np.array([learning_of(x, settings) is not None for x in who])
    factors = np.array([_factors(x, settings, len(who)) for x in who])
    # One that was measured in a simulation has no link, and none is learnt.
    linked = np.array([not x.measured or x.estimate is None or x.estimate.link.seen > 0 for x in who])
    unlinked = learnt & linked & ~costs[:, 1:3].any(axis=1)
    costs[unlinked, 2] = _LEAST_LINK * settings.cycle_time_s
    costs *= factors[:, [0, 1, 1, 2, 2, 2]]
    if learnt.any() and len(who) >= FEWEST:
        credit = np.array([_credit(x) for x in who])
        for i in (0, 2):
            quickest = float(np.median(costs[:, i])) / credit
            costs[learnt, i] = np.maximum(costs[learnt, i], quickest[learnt])
    costs[learnt, 0] = np.maximum(costs[learnt, 0], settings.cycle_time_s / _MOST_STEPS * 2)
    costs[:, 2] += [0.0 if x.estimate is None else x.estimate.fixed_s for x in who]
    return costs


def trusted_samples(most: IntArray, who: Sequence[LearnerState], settings: InForce) -> IntArray:
    """Return the most samples of each learner, of newcomers and of those who return as far as is believed.

    Parameters
    ----------
    most : int array
        What each can be given by its own word.
    who : sequence of LearnerState
        The learners.
    settings : InForce
        Whether to learn: who is believed in everything is believed in this, too.
    """
    found = most.copy()
    middle = max(float(np.median(most)), settings.min_samples) if len(who) >= FEWEST else np.inf
    for k, x in enumerate(who):
        learning = learning_of(x, settings)
        if learning is None:
            continue
        returning = None if x.estimate is None else x.estimate.most_samples(learning.level(len(who)))
        bounds = [middle * _credit(x), np.inf if returning is None else max(returning, settings.min_samples)]
        found[k] = int(min(float(found[k]), *bounds))
    return found


def _credit(x: LearnerState) -> float:
    """Return how many times the middle learner's speed and samples one is believed to have.

    Its word alone counts for twice as much, and every task that it has delivered doubles that.
    """
    delivered = 0 if x.estimate is None else x.estimate.delivered
    return float(_ON_ITS_WORD ** (1 + min(delivered + (x.own is not None), _PROVEN)))


def learning_of(x: LearnerState, settings: InForce) -> Learning | None:
    """Return how to learn of a learner; None: what it declares is believed, but for lateness.

    Parameters
    ----------
    x : LearnerState
        Whose costs were declared or measured.
    settings : InForce
        What was asked for; by default those are learnt that declare nothing.
    """
    if settings.learning is None:
        # A cycle time that nobody asked for is no promise: the middle will do.
        return (_MIDDLE if settings.paced else _SAFE) if x.measured else None
    return settings.learning if isinstance(settings.learning, Learning) else None


def _factors(x: LearnerState, settings: InForce, learners: int) -> tuple[float, float, float]:
    learning = learning_of(x, settings)
    if learning is None:
        return _late_factors(x)
    return _ONE if x.estimate is None else x.estimate.factors(learning.level(learners))


def _late_factors(learner: LearnerState) -> tuple[float, float, float]:
    """Return the factors of a learner that was late: never less than it says, and its energy as it says."""
    if learner.estimate is None:
        return _ONE
    compute, link, _ = learner.estimate.factors(_EVEN)
    return max(compute, 1.0), max(link, 1.0), 1.0


def assume_costs(learners: Sequence[LearnerState], settings: InForce) -> list[LearnerState]:
    """Return the learners with assumed costs for those that declare nothing.

    They are taken for as slow as the slowest known learner in each coefficient, but for able to do one
    epoch of the least batch within the cycle, or they could never show what they take.

    Parameters
    ----------
    learners : sequence of LearnerState
        Who is there.
    settings : InForce
        Cycle time and least batch.
    """
    if settings.paced or not any(_is_silent(x, settings) for x in learners):
        return list(learners)
    known = [x for x in learners if x.costs is not None]
    cycle_s, least = settings.cycle_time_s * (1 - 1e-9), settings.min_samples
    costs: Costs = (cycle_s / 2 / least, 0.0, cycle_s / 2, 0.0, 0.0, 0.0)
    if known:
        c2, c1, c0, g2, g1, g0 = planned_costs(known, settings).max(axis=0).tolist()
        fits = min(1.0, cycle_s / ((c2 + c1) * least + c0))
        costs = (c2 * fits, c1 * fits, c0 * fits, g2, g1, g0)
    return [replace(x, costs=costs, doubt=None) if _is_silent(x, settings) else x for x in learners]


def _is_silent(x: LearnerState, settings: InForce) -> bool:
    """Whether a learner takes part by assumption: there is nothing to go by, and it is not to be measured."""
    if x.costs is not None or x.capability is None or x.doubt is None or settings.learning is False:
        return False
    untold = x.doubt.why is Why.UNTOLD and not gets_own_round(x, settings)
    return untold or x.doubt.why in (Why.SILENT, Why.UNANSWERED)


def gets_own_round(x: LearnerState, settings: InForce) -> bool:
    """Whether a learner's next task is the project's own round, to be measured.

    That is everybody's first task where no cycle time is given, and the first of those who declare nothing
    where one is given that need not be kept.

    Parameters
    ----------
    x : LearnerState
        Who.
    settings : InForce
        What was asked for.
    """
    if settings.mode is Mode.PARALLELIZED or not x.modded or x.capability is None:
        return False
    untold = x.doubt is None or x.doubt.why in (Why.UNTOLD, Why.NO_TOTAL)
    if settings.paced:
        return x.own is None and untold and (settings.learning is not False or x.capability.able)
    possible = settings.learning is not False and not settings.enforce_deadline
    return possible and untold and x.costs is None and not x.capability.able


def recall_costs(x: LearnerState) -> LearnerState:
    """Return a learner with the costs that were measured or assumed before, if it declares none."""
    base = None if x.estimate is None else x.estimate.base
    if x.costs is not None or x.capability is None or x.capability.able or base is None:
        return x
    return replace(x, costs=base, doubt=None)


def start_estimates(learners: Sequence[LearnerState], settings: InForce) -> list[LearnerState]:
    """Return the learners with estimates for whoever has costs; those about other words begin anew.

    Parameters
    ----------
    learners : sequence of LearnerState
        Who is there.
    settings : InForce
        Whether to learn; if not, only those who were late have estimates.
    """
    return [_started(x, settings) for x in learners]


def _started(x: LearnerState, settings: InForce) -> LearnerState:
    if x.costs is None or x.capability is None:
        return x
    if x.estimate is not None and x.estimate.declared == x.declared:
        return x
    learning = learning_of(x, settings)
    if learning is None:
        return x if x.estimate is None else replace(x, estimate=None)
    assumed = not x.capability.able
    start = Estimate.start(x.costs, declared=x.declared, assumed=assumed, learning=learning)
    return replace(x, estimate=start)


def measured(x: LearnerState, costs: Costs, settings: InForce) -> LearnerState:
    """Return a learner that declares nothing with what its own round cost it.

    Nothing is held to be known of it but these costs, so that its next report, which a first loading of
    data or a warming up does not spoil, is believed more than they are.

    Parameters
    ----------
    x : LearnerState
        Without costs.
    costs : tuple of six floats
        c2, c1, c0, g2, g1, g0.
    settings : InForce
        Spreads and noise.
    """
    asked = settings.learning
    learning = asked if isinstance(asked, Learning) else (_MIDDLE if settings.paced else _SAFE)
    estimate = Estimate.start(costs, declared=False, assumed=True, learning=learning)
    if settings.paced:  # T follows what learners take: it must not change because their work does
        estimate.call = CallCost()
    return replace(x, costs=costs, doubt=None, estimate=estimate)


def learn(
    learners: Mapping[str, LearnerState],
    rows: Sequence[LearnerRecord],
    settings: InForce,
    late_after_s: float,
) -> dict[str, LearnerState]:
    """Learn from what came back in a cycle; return those of whom there is something new.

    Parameters
    ----------
    learners : mapping of node to LearnerState
        Everybody known.
    rows : sequence of LearnerRecord
        The cycle's.
    settings : InForce
        Cycle time and what is to be learnt.
    late_after_s : float
        What late learners took at least.
    """
    asked = sum(row.asked for row in rows)
    changed = {}
    for row in rows:
        if row.outcome is Outcome.BUSY:  # nothing is known yet
            continue
        before = learners[row.node]
        learning = learning_of(before, settings)
        if row.free:
            continue
        if learning is None:
            after = _judge(before, row, settings, late_after_s)
        else:
            after = _measure(before, row, settings, late_after_s, learning, learning.level(asked))
        if after is not before:
            changed[row.node] = after
    return changed


def _judge(x: LearnerState, row: LearnerRecord, settings: InForce, late_after_s: float) -> LearnerState:
    """Hold it against a learner that it was late, or forgive it a little."""
    late = row.outcome is Outcome.LATE and x.costs is not None
    if x.estimate is None and not late:
        return x
    if late and x.costs is not None:
        fresh = Estimate.start(x.costs, declared=x.declared, assumed=False, learning=_LATENESS)
        estimate = fresh if x.estimate is None else x.estimate.copy()
        seen = Observation(row.epochs, row.samples, late_after_s=late_after_s * row.span)
        estimate.observe(_with_link(x.costs, settings), seen, _LATENESS, _EVEN)
        return changed(x, estimate=estimate)
    if x.estimate is None or row.outcome in (Outcome.FAILED, Outcome.REFUSED):
        return x
    estimate = x.estimate.copy()
    return replace(x, estimate=None if estimate.forgive() else estimate)


def _measure(
    x: LearnerState,
    row: LearnerRecord,
    settings: InForce,
    late_after_s: float,
    learning: Learning,
    level: float,
) -> LearnerState:
    """Learn from all that is known of a task."""
    # A crash tells nothing of time.
    crashed = row.samples and row.outcome is Outcome.FAILED
    if x.estimate is None or x.costs is None or crashed:
        return x
    estimate = x.estimate.copy()
    if not row.samples:
        estimate.rest()
        return changed(x, estimate=estimate)
    used = row.samples_used or 0
    seen = Observation(
        round(row.epochs_done or 0) or row.epochs,
        # More than it was given is what it did; less may be a count of batches.
        int(used) if used > row.samples else row.weight or row.samples,
        train_s=row.reported_time_s,
        joules=row.reported_energy_j,
        round_trip_s=row.round_trip_s,
        late_after_s=late_after_s * row.span if row.outcome is Outcome.LATE else None,
        planned_s=row.time_s,
    )
    estimate.observe(_with_link(x.costs, settings), seen, learning, level)
    return changed(x, estimate=estimate)


def _with_link(costs: Costs, settings: InForce) -> Costs:
    c2, c1, c0, g2, g1, g0 = costs
    return costs if c1 or c0 else (c2, c1, _LEAST_LINK * settings.cycle_time_s, g2, g1, g0)


def slowdown_of(learner: LearnerState, settings: InForce, row: LearnerRecord | None = None) -> float:
    """Return planned time over declared time.

    Parameters
    ----------
    learner : LearnerState
        Whose.
    settings : InForce
        Whether all that is measured counts.
    row : LearnerRecord, optional
        With its task; without one only lateness counts.
    """
    if learning_of(learner, settings) is None:
        return _late_factors(learner)[0]
    if row is None or learner.estimate is None or learner.costs is None:
        return 1.0
    c2, c1, c0 = learner.costs[:3]
    return row.time_s / (c2 * (row.epochs * row.samples) + c1 * row.samples + c0)
