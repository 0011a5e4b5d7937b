"""Learners whose apps follow all of a task, only its epochs, only its samples, or nothing: one plan for each.

Where all follow everything, which is the rule, there is one allocation, the paper's. A learner that always
uses all its samples can be told epochs only: d_k is what it holds. One that always does its own epochs does
one of its own rounds, on as many samples as it can be told. No two learners that can be told their epochs
differ by more than the staleness cap, whichever part they are in.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flwr_mel._validate import IntArray
from flwr_mel.allocation import Solution
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.limiting import Limit, limiting
from flwr_mel.orchestrator.planning import solve
from flwr_mel.orchestrator.problems import Limits, Share, build_problem
from flwr_mel.orchestrator.settings import InForce, Mode
from flwr_mel.orchestrator.state import LearnerState
from flwr_mel.records import CycleRecord


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """An allocation to some of the learners.

    Parameters
    ----------
    share : Share
        What was asked, and for whom; an epoch is a whole round of those who do their own epochs.
    solution : Solution
        What came out.
    max_epochs : int, optional
        What anybody may do; the share's problem has less where others are slower.
    """

    share: Share
    solution: Solution
    max_epochs: int | None = None

    @property
    def epochs(self) -> IntArray:
        """tau_k."""
        own = [1 if x.own is None or x.own.steers_epochs else x.own.epochs for x in self.share.who]
        epochs: IntArray = self.solution.epochs * np.array(own, dtype=np.int64)
        return epochs

    @property
    def limited(self) -> list[Limit]:
        """What keeps everybody from more."""
        problem, epochs, samples = self.share.problem, self.solution.epochs, self.solution.samples
        late = problem.coefficients.time_s(epochs + 1, samples) > problem.deadline_s
        found = limiting(problem, epochs, samples)
        for k, x in enumerate(self.share.who):
            if found[k] is Limit.MAX_EPOCHS and epochs[k] != self.max_epochs:
                found[k] = Limit.STALENESS  # to those of another part
            if x.own is None or not epochs[k]:
                continue
            if not x.own.steers_epochs:
                found[k] = Limit.DATA  # its own round, whatever it is told
            elif not x.own.steers_samples and found[k] is Limit.DATA:
                found[k] = Limit.TIME if late[k] else Limit.ENERGY  # it uses all its data in any case
        return found


def allocate_parts(
    able: Sequence[LearnerState], settings: InForce, record: CycleRecord, busy: Collection[str] = ()
) -> list[Part]:
    """Allocate a cycle; empty: nobody works.

    Parameters
    ----------
    able : sequence of LearnerState
        With costs.
    settings : InForce
        The limits.
    record : CycleRecord
        Told what had to be given up.
    busy : collection of str
        Names of learners that are at work still.
    """
    told, whole, fixed = _sorted(able, settings)
    whole, fixed = ([x for x in some if x.name not in busy] for some in (whole, fixed))
    once, some = replace(settings, max_epochs=1), [x for x in fixed if _divides(x)]
    parts = _undivided([x for x in fixed if not _divides(x)], once, record)
    epochs = _undivided(whole, settings, record)
    left = _left(settings, _used([*parts, *epochs]), len(told), len(some))
    both = _divided(told, _within(left, epochs), record, busy)
    left = _left(settings, _used([*parts, *epochs, *both]), len(some))
    parts += _divided(some, replace(left, max_epochs=1), record)
    if epochs and both:
        lowest = min(int(part.epochs[part.epochs > 0].min()) for part in both)
        epochs = [_slowed(part, lowest + settings.staleness, settings, record) for part in epochs]
    return [replace(part, max_epochs=settings.max_epochs) for part in (*parts, *epochs, *both)]


def _sorted(
    able: Sequence[LearnerState], settings: InForce
) -> tuple[list[LearnerState], list[LearnerState], list[LearnerState]]:
    """Tell who can be told everything, epochs only, or no epochs."""
    if settings.mode is Mode.PARALLELIZED:
        return list(able), [], []
    fixed = [x for x in able if x.own is not None and not x.own.steers_epochs]
    whole = [x for x in able if x.own is not None and x.own.steers_epochs and not x.own.steers_samples]
    told = [x for x in able if x.own is None or (x.own.steers_epochs and x.own.steers_samples)]
    return told, whole, fixed


def _divides(x: LearnerState) -> bool:
    return x.own is not None and x.own.steers_samples


def _left(settings: InForce, used: int, learners: int, others: int = 0) -> InForce:
    """Return what is left of a given total for some learners, when others shall have as much each."""
    if settings.total_samples is None or not (used or others):
        return settings
    left = (settings.total_samples - used) * learners // max(learners + others, 1)
    return replace(settings, total_samples=max(left, settings.min_samples * max(learners, 1)))


def _within(settings: InForce, others: Sequence[Part]) -> InForce:
    """Return the settings for learners that keep within the staleness cap of others."""
    if not others:
        return settings
    highest = min(int(part.epochs.min()) for part in others) + settings.staleness
    return replace(settings, max_epochs=min(highest, settings.max_epochs or highest))


def _used(parts: Sequence[Part]) -> int:
    return sum(int(part.solution.samples.sum()) for part in parts)


def _divided(
    who: Sequence[LearnerState], settings: InForce, record: CycleRecord, busy: Collection[str] = ()
) -> list[Part]:
    """Allocate to those who can be given some of their samples."""
    if not who:
        return []
    before, record.asked_samples = record.asked_samples, 0
    shares = build_problem([_by_rounds(x) for x in who], settings, record, busy)
    record.asked_samples += before
    return _solved(shares, settings, record)


def _undivided(who: Sequence[LearnerState], settings: InForce, record: CycleRecord) -> list[Part]:
    """Allocate to those who always use all their samples; who cannot do so in time is left out."""
    if not who:
        return []
    settings = replace(settings, min_samples=1, max_samples=None)
    held = np.array([x.own.samples for x in who if x.own is not None], dtype=np.int64)
    limits = replace(Limits.of([_by_rounds(x) for x in who], settings), most=held)
    once = np.ones(len(who), dtype=np.int64)
    problem = limits.problem(once, settings, int(held.sum()))
    fits = Capacities.of(problem).at(1) >= held
    rows = {row.node: row for row in record.learners}
    for k in np.flatnonzero(~fits).tolist():
        took = float(problem.coefficients.time_s(1, held)[k])
        rows[
            who[k].node
        ].reason = (
            f"always uses all its {held[k]:,} samples, which takes {took:.3g} s: give it fewer by Assignment"
        )
    record.asked_samples += int(held.sum())
    if not fits.any():
        return []
    some = limits.take(np.flatnonzero(fits))
    problem = some.problem(once[fits], settings, int(held[fits].sum()))
    return _solved([Share(problem, some.who, [1] * len(some.who), settings.solver)], settings, record)


def _solved(shares: Sequence[Share], settings: InForce, record: CycleRecord) -> list[Part]:
    found = ((share, solve(share, settings, record)) for share in shares)
    return [Part(share, solution) for share, solution in found if solution is not None]


def _slowed(part: Part, highest: int, settings: InForce, record: CycleRecord) -> Part:
    """Return an allocation in which nobody does more epochs than this."""
    if int(part.epochs.max()) <= highest:
        return part
    share = replace(part.share, problem=part.share.problem.replace(max_epochs=highest))
    return next(iter(_solved([share], settings, record)), part)


def _by_rounds(x: LearnerState) -> LearnerState:
    """Count in own rounds what a learner does that does its own epochs whatever it is told."""
    if x.own is None or x.own.steers_epochs or x.costs is None:
        return x
    c2, c1, c0, g2, g1, g0 = x.costs
    return replace(x, costs=(c2 * x.own.epochs, c1, c0, g2 * x.own.epochs, g1, g0))
