"""Tasks in progress: who is busy with which cycle's task, and what becomes of updates that come later.

An update that was begun with the model of an earlier cycle is moved onto the present one (present model plus
what the learner changed) and counts for its samples over the square root of the cycles that it took; where
data count as they are held, it counts again in later cycles (`echoes`). Nobody waits for it. A task that is
not back after twice the longest span is given up, so that the server keeps a bounded number of old models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from flwr_mel import wire
from flwr_mel.orchestrator.cycle_time import as_planned
from flwr_mel.orchestrator.echoes import lasting
from flwr_mel.orchestrator.hearing import Words, hear
from flwr_mel.orchestrator.own_work import measurement
from flwr_mel.orchestrator.returned import Returned
from flwr_mel.orchestrator.settings import Settings, Stragglers
from flwr_mel.orchestrator.shares import held_of
from flwr_mel.orchestrator.state import Flight, LearnerState, State, Task
from flwr_mel.orchestrator.trust import learn, learning_of
from flwr_mel.records import CycleRecord, LearnerRecord, Outcome

#: Tasks are given up after so many times the longest span.
_PATIENCE = 2


def give_up(state: State, settings: Settings, cycle: int) -> None:
    """Forget tasks that have been in progress for too long; the state is changed.

    Parameters
    ----------
    state : State
        A copy.
    settings : Settings
        The longest span.
    cycle : int
        The coming one.
    """
    for name, flight in list(state.flights.items()):
        if cycle - flight.cycle > _PATIENCE * settings.max_span:
            del state.flights[name]
            state.notes.append(f"{name}: no reply to the task of cycle {flight.cycle}, which is given up")


def others(state: State, present: Sequence[LearnerState], settings: Settings) -> list[LearnerRecord]:
    """Return rows of those who may not be given work in this cycle, but whose earlier work may count.

    Parameters
    ----------
    state : State
        With the tasks in progress.
    present : sequence of LearnerState
        Those who may.
    settings : Settings
        Whether it matters what they hold.
    """
    names, rows = {x.name for x in present}, []
    for x in {**state.flights, **state.arrived}.values():
        if x.learner not in names:
            row = LearnerRecord(x.learner, x.node, Outcome.BUSY, f"works on the task of cycle {x.cycle}")
            who = state.learners.get(x.node) or state.absent.get(x.learner)
            row.held = held_of(who, settings) if lasting(settings) else None
            rows.append(row)
    return rows


def take_off(
    state: State, settings: Settings, tasks: Sequence[Task], rows: Sequence[LearnerRecord]
) -> dict[str, Flight]:
    """Return this cycle's tasks as flights; none where late updates do not count.

    Parameters
    ----------
    state : State
        With the clock.
    settings : Settings
        The policy.
    tasks : sequence of Task
        Of this cycle, in the order in which shards are cut.
    rows : sequence of LearnerRecord
        With the planned times.
    """
    if settings.stragglers is not Stragglers.SPAN:
        return {}
    time_s = {row.node: row.time_s for row in rows}
    flights, at = {}, 0
    for t in (task for task in tasks if not task.free):
        planned = time_s[t.node]
        flights[t.learner] = Flight(
            t.node, t.learner, t.cycle, t.epochs, t.samples, t.span, at, planned, state.clock_s + planned
        )
        at += t.samples
    return flights


def expected_s(record: CycleRecord) -> float:
    """Return when the last of those who are waited for reports, by the cost model."""
    waited_for = [row.time_s for row in record.learners if row.asked and row.span == 1]
    busy = any(row.outcome is Outcome.BUSY or row.span > 1 for row in record.learners)
    return max(waited_for, default=record.cycle_time_s if busy else 0.0)


def due(state: State, record: CycleRecord) -> list[str]:
    """Return the nodes whose tasks are over by the end of this cycle on the virtual clock.

    Parameters
    ----------
    state : State
        With which the cycle was planned.
    record : CycleRecord
        From `plan`.
    """
    end = (state.clock_s + expected_s(record)) * (1 + 1e-12)
    return [x.node for x in state.flights.values() if x.ends_s <= end]


def arrive(
    state: State,
    settings: Settings,
    reports: Mapping[str, Words],
    round_trips: Mapping[str, float] | None = None,
) -> State:
    """Take in that replies to earlier cycles' tasks are there: learn from them; their learners are free.

    Parameters
    ----------
    state : State
        With the tasks in progress.
    settings : Settings
        What is to be learnt.
    reports : mapping of node to mapping or None
        What learners said along with their replies; None: an error came, which tells nothing of time.
    round_trips : mapping of node to float, optional
        By the server's clock.
    """
    new = state.copy()
    force = as_planned(settings, settings.cycle_time_s or state.cycle_time_s or 0.0)
    seconds = round_trips or {}
    rows = []
    for name, flight in state.flights.items():
        if flight.node not in reports:
            continue
        new.arrived[name] = new.flights.pop(name)
        said = reports[flight.node]
        if said is not None and flight.node in state.learners:
            learnt = learning_of(state.learners[flight.node], force) is not None
            rows.append(_row(flight, said, seconds.get(flight.node) if learnt else None))
    new.learners |= learn(state.learners, rows, force, force.cycle_time_s)
    heard = {row.node: reports[row.node] for row in rows}
    return hear(new, settings, heard)


def _row(flight: Flight, said: Mapping[str, object], seconds: float | None) -> LearnerRecord:
    """Return what is known of a finished task."""
    return LearnerRecord(
        flight.learner,
        flight.node,
        Outcome.USED,
        epochs=flight.epochs,
        samples=flight.samples,
        time_s=flight.time_s,
        reported_time_s=measurement(said.get(wire.TRAIN_SECONDS)),
        reported_energy_j=measurement(said.get(wire.TRAIN_JOULES)),
        round_trip_s=None if wire.SIMULATED in said else measurement(seconds),
        span=flight.span,
    )


def land(state: State, record: CycleRecord, back: Returned) -> CycleRecord:
    """Put on record what became of tasks in progress; the state is changed.

    Parameters
    ----------
    state : State
        A copy.
    record : CycleRecord
        With what came back of this cycle's own tasks.
    back : Returned
        What came back.
    """
    record = replace(record, notes=list(record.notes))
    rows = []
    for planned in record.learners:
        row, own = planned, state.flights.get(planned.learner)
        if (old := state.arrived.pop(row.learner, None)) is not None:
            row = _landed(row, old, record, back)
        if own is not None and own.cycle == record.cycle:
            if row.node not in back.open:
                del state.flights[row.learner]
            elif row.outcome is not Outcome.LATE:
                row = replace(row, outcome=Outcome.BUSY, reason="")
        rows.append(row)
    return replace(record, learners=rows)


def _landed(row: LearnerRecord, old: Flight, record: CycleRecord, back: Returned) -> LearnerRecord:
    if row.node in back.moved:
        return replace(row, moved_from=old.cycle, moved_epochs=old.epochs, moved_weight=back.moved[row.node])
    outcome, reason = back.lost.get(row.node, (Outcome.FAILED, "its reply was not handed on"))
    record.notes.append(f"{row.learner}: its update of cycle {old.cycle} is not used: {reason}")
    return row if row.samples else replace(row, outcome=outcome, reason=reason)
