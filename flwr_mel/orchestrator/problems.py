"""Who takes part in a cycle and within which limits: the allocation problems to be solved."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import MAX_COUNT, FloatArray, IntArray, Phrase, complain
from flwr_mel.allocation import AllocationProblem, Solver
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.screening import carried, screen
from flwr_mel.allocation.solution import Reason
from flwr_mel.costs import Coefficients
from flwr_mel.orchestrator.cycle_time import deadlines
from flwr_mel.orchestrator.pacing import Flags, OwnPace, find_pace
from flwr_mel.orchestrator.settings import InForce, Mode, OnInfeasible, Stragglers
from flwr_mel.orchestrator.state import LearnerState
from flwr_mel.orchestrator.trust import planned_costs, trusted_samples
from flwr_mel.records import CycleRecord

#: Why a learner that takes several cycles begins in a later one.
_WAITS = "begins in a later cycle, so that slow learners do not all report in the same one"


@dataclass(frozen=True, slots=True, eq=False)
class Limits:
    """Learners with costs, and what each may take, in arrays.

    Parameters
    ----------
    who : list of LearnerState
        The learners.
    coefficients : Coefficients
        What they are planned with.
    per_cycle_j, in_all_j : float arrays
        Joules that each may spend per cycle, and on one task however long; infinity: no limit.
    most : int array
        The most samples of each.
    """

    who: list[LearnerState]
    coefficients: Coefficients
    per_cycle_j: FloatArray
    in_all_j: FloatArray
    most: IntArray

    @classmethod
    def of(cls, who: Sequence[LearnerState], settings: InForce) -> Limits:
        """Read the limits off what learners say of themselves."""
        said = [x.capability for x in who if x.capability is not None]
        return cls(
            list(who),
            Coefficients(*planned_costs(who, settings).T),
            np.array([np.inf if c.energy_limit_j is None else max(c.energy_limit_j, 1e-12) for c in said]),
            np.array([np.inf if c.battery_j is None else max(c.battery_j, 1e-12) for c in said]),
            believed(who, settings),
        )

    def take(self, index: npt.NDArray[np.intp]) -> Limits:
        """Return the limits of some learners only."""
        return Limits(
            [self.who[k] for k in index],
            self.coefficients.take(index),
            self.per_cycle_j[index],
            self.in_all_j[index],
            self.most[index],
        )

    def within(self, cycles: int, settings: InForce) -> Capacities:
        """Return what everybody can carry in so many cycles.

        Parameters
        ----------
        cycles : int
            For one task.
        settings : InForce
            Cycle time, least batch and most epochs.
        """
        return Capacities(
            self.coefficients,
            settings.window(cycles) * settings.cycle_time_s,
            np.minimum(cycles * self.per_cycle_j, self.in_all_j),
            self.most,
            settings.min_samples,
            MAX_COUNT if settings.max_epochs is None else settings.max_epochs,
        )

    def problem(
        self, spans: IntArray, settings: InForce, samples: int, staleness: int | None = None
    ) -> AllocationProblem:
        """Return the allocation problem.

        Parameters
        ----------
        spans : int array
            Cycles that each learner has for its task.
        settings : InForce
            All other limits.
        samples : int
            To be handed out.
        staleness : int, optional
            In place of the settings'.
        """
        energy_j = np.minimum(spans * self.per_cycle_j, self.in_all_j)
        time_s = deadlines(self.who, self.coefficients, settings)
        windows = np.array([settings.window(m) for m in spans.tolist()])
        return AllocationProblem(
            self.coefficients,
            time_s if (spans == 1).all() else (windows * time_s).tolist(),
            [None if np.isinf(limit) else limit for limit in energy_j.tolist()],
            total_samples=samples,
            staleness=settings.staleness if staleness is None else staleness,
            min_samples=settings.min_samples,
            max_samples=self.most,
            max_epochs=settings.max_epochs,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """Some learners, and what is to be solved for them.

    Parameters
    ----------
    problem : AllocationProblem
        Their limits; a task of m cycles has m times the cycle time and the energy limit.
    who : list of LearnerState
        In the problem's order.
    spans : list of int
        Cycles per task.
    solver : Solver
        How to solve it.
    """

    problem: AllocationProblem
    who: list[LearnerState]
    spans: list[int]
    solver: Solver


def build_problem(
    able: Sequence[LearnerState], settings: InForce, record: CycleRecord, busy: Collection[str] = ()
) -> list[Share]:
    """Return the cycle's allocation problems and whom they are about; none: nobody works in this cycle.

    The second one, if there is one, is that of learners that have their turn at a pace of their own.

    Parameters
    ----------
    able : sequence of LearnerState
        With costs.
    settings : InForce
        The limits.
    record : CycleRecord
        Told how many samples are asked for, and the pace.
    busy : collection of str
        Names of learners that are at work still.
    """
    if settings.stragglers is Stragglers.KEEP:
        total = record.asked_samples = _asked_samples(able, settings)
        limits, once = Limits.of(able, settings), np.ones(len(able), dtype=np.int64)
        if settings.total_samples is None and any(x.own is not None for x in able):
            # All that they were seen to hold, as far as it fits: nobody asked for more.
            total = max(min(total, carried(limits.problem(once, settings, MAX_COUNT))), 1)
        chosen = _crowd(limits, once, settings, record, total)
        return [] if chosen is None else [chosen]
    return _paced(able, settings, record, busy)


def _paced(
    able: Sequence[LearnerState], settings: InForce, record: CycleRecord, busy: Collection[str]
) -> list[Share]:
    """Let those take part who keep the pace, in one cycle or in several; the others have their turns."""
    free = np.array([x.name not in busy for x in able])
    if not free.any():
        return []
    limits = Limits.of(able, settings)
    ways = [limits.within(m, settings) for m in range(1, settings.longest_task + 1)]
    own_data = settings.total_samples is None and settings.mode is Mode.FEDERATED
    total = None if own_data else _asked_samples([], settings)
    least = np.full(len(able), settings.min_samples)
    pace = find_pace(ways, np.maximum(limits.most, least) if own_data else least, total, free)
    record.pace = pace.epochs
    turns = _turns(limits, settings, record, free & (pace.spans == 0), ways[-1])
    taken = 0 if turns is None or settings.dataset is None else turns.problem.total_samples
    waits = _spread(pace.spans, free, np.array([x.idle for x in able]))
    _say(record, {limits.who[k].node: _WAITS for k in np.flatnonzero(waits)})
    index = np.flatnonzero(free & (pace.spans > 0) & ~waits)
    spans = pace.spans[index]
    if total is None:
        # What everybody can carry at this pace: nobody's claim makes the others carry more, or wait.
        total = sum(
            int(ways[m - 1].take(index[spans == m]).at(pace.epochs).sum()) for m in set(spans.tolist())
        )
    record.asked_samples = min(max(total, 1), MAX_COUNT)
    _say_why_not(limits, record, np.flatnonzero(free & (pace.spans == 0)), ways[-1])
    main = None
    if len(index):
        main = _crowd(limits.take(index), spans, settings, record, max(record.asked_samples - taken, 1))
    return [share for share in (main, turns) if share is not None]


def _spread(spans: IntArray, free: Flags, idle: IntArray) -> Flags:
    """Return who waits with a task of several cycles, so that as many begin, and report, in each of them.

    Otherwise all slow learners report in the same cycle, and in those between the model forgets what only
    they know. Of N learners that take m cycles at most N / m, rounded up, begin in one: the longest idle.
    """
    waits = np.zeros(len(spans), dtype=np.bool_)
    for m in np.unique(spans[spans > 1]).tolist():
        room = -(-int((spans == m).sum()) // m)
        ready = np.flatnonzero(free & (spans == m))
        waits[ready[np.argsort(-idle[ready], kind="stable")][room:]] = True
    return waits


def _turns(
    limits: Limits, settings: InForce, record: CycleRecord, left: Flags, way: Capacities
) -> Share | None:
    """Give those who have long been without work a task of their own pace, in the longest time there is."""
    idle = np.array([x.idle for x in limits.who])
    index = np.flatnonzero(left & (idle >= settings.turn_after) & (way.most_epochs > 0))
    if not len(index):
        return None
    mine, spans = limits.take(index), np.full(len(index), settings.longest_task)
    if settings.dataset is not None:  # the others' samples become fewer by theirs
        mine = replace(mine, most=np.minimum(mine.most, settings.min_samples))
    names = ", ".join(x.name for x in mine.who[:3]) + (
        f" and {len(index) - 3} more" if len(index) > 3 else ""
    )
    record.notes.append(
        f"without work for {settings.turn_after} cycles or more, now at their own pace: {names}"
    )
    total = int(mine.within(settings.longest_task, settings).at(1).sum())
    return Share(
        mine.problem(spans, settings, total, staleness=MAX_COUNT), mine.who, spans.tolist(), OwnPace()
    )


def _say_why_not(limits: Limits, record: CycleRecord, out: npt.NDArray[np.intp], way: Capacities) -> None:
    """Put on record why learners do not take part: they cannot at all, or they do not keep up."""
    if not len(out):
        return
    _, excluded = screen(way.take(out))
    _say(record, {limits.who[k].node: str(excluded.get(i, Reason.STRAGGLER)) for i, k in enumerate(out)})


def _say(record: CycleRecord, reasons: Mapping[str, str]) -> None:
    """Put reasons, by node, on record."""
    for row in record.learners:
        row.reason = reasons.get(row.node, row.reason)


def _crowd(
    limits: Limits, spans: IntArray, settings: InForce, record: CycleRecord, total: int
) -> Share | None:
    """Return the problem of all these learners.

    Where there are too few samples for everybody's least batch, those who cannot take part anyway do not
    count; of the others the strongest take part, unless the policy is "skip" or "error". Who has long been
    without work comes before the strongest.
    """
    least = settings.min_samples
    if total >= least * len(limits.who):
        return Share(limits.problem(spans, settings, total), limits.who, spans.tolist(), settings.solver)
    capacities = Capacities.of(limits.problem(spans, settings, least * len(limits.who)))
    index, excluded = screen(capacities)
    reasons = {limits.who[k].node: str(reason) for k, reason in excluded.items()}
    room = total // least
    if room < len(index) or not room:
        text = f"{total:,} samples are too few for {len(index)} learners of at least {least:,} each"
        if settings.on_infeasible is OnInfeasible.ERROR:
            share = f"at most {total // max(len(index), 1):,}, because {text}"
            raise complain("min_samples", share, least, Phrase("Lower it, or use more {}.", "total_samples"))
        if settings.on_infeasible is OnInfeasible.SKIP or not room:
            record.notes.append(f"nobody works in this cycle: {text}")
            return None
        record.notes.append(f"{text}: the {room} strongest take part")
        due = np.array([limits.who[k].idle >= settings.turn_after for k in index])
        due &= settings.stragglers is not Stragglers.KEEP
        strongest = np.lexsort((-capacities.at(1)[index], ~due))
        for k in index[strongest[room:]]:
            reasons[limits.who[k].node] = "too few samples for everybody's least batch"
        index = np.sort(index[strongest[:room]])
    _say(record, reasons)
    if not len(index):
        record.notes.append("nobody works in this cycle: no learner can take part")
        return None
    chosen = limits.take(index)
    problem = chosen.problem(spans[index], settings, total)
    return Share(problem, chosen.who, spans[index].tolist(), settings.solver)


def of_the_chosen(settings: InForce, chosen: int, connected: int) -> InForce:
    """Return the settings of a cycle that chooses a part of the fleet: it has its share of the samples.

    Parameters
    ----------
    settings : InForce
        What is asked of the whole fleet.
    chosen, connected : int
        How many may be given work, of how many that are there; 0: not known.
    """
    total = settings.total_samples
    if total is None and settings.dataset is not None:
        total = len(settings.dataset[0])
    if total is None or not 0 < chosen < connected:
        return settings
    return replace(settings, total_samples=max(total * chosen // connected, 1))


def _asked_samples(who: Sequence[LearnerState], settings: InForce) -> int:
    if settings.total_samples is not None:
        return settings.total_samples
    if settings.dataset is not None:
        return len(settings.dataset[0])
    held = [
        0 if held_by(x) is None else n for x, n in zip(who, believed(who, settings).tolist(), strict=True)
    ]
    return min(max(sum(held), 1), MAX_COUNT)


def believed(who: Sequence[LearnerState], settings: InForce) -> IntArray:
    """Return how many samples each learner can be given, as far as it is believed.

    Parameters
    ----------
    who : sequence of LearnerState
        The learners.
    settings : InForce
        What nobody gets more than, and whether to learn.
    """
    most = np.array([most_samples(x, settings) for x in who], dtype=np.int64)
    return trusted_samples(most, who, settings)


def held_by(x: LearnerState) -> int | None:
    """Return how many samples a learner has: what it declares, else what it was seen to hold."""
    declared = None if x.capability is None else x.capability.max_samples
    return x.own.samples if declared is None and x.own is not None else declared


def most_samples(x: LearnerState, settings: InForce) -> int:
    """Return how many samples a learner can be given.

    Parameters
    ----------
    x : LearnerState
        Who.
    settings : InForce
        What nobody gets more than.
    """
    most = MAX_COUNT if settings.max_samples is None else settings.max_samples
    held = held_by(x)
    return most if held is None else min(held, most)
