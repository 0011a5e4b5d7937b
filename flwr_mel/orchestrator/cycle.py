"""One cycle (the paper's Algorithm 1) as functions of explicit state.

`hearing.meet` and `hearing.hear` take in who is there and what learners say, `plan` gives the tasks, `settle`
takes what came back, `close` decides whether training goes on. None of them changes what it is given, looks
at a clock or knows Flower: the same state, settings and inputs give the same state, tasks and record.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from flwr_mel import wire
from flwr_mel._slots import changed
from flwr_mel.allocation.objectives import Objective
from flwr_mel.allocation.solution import Status
from flwr_mel.orchestrator.cycle_time import as_planned, deadline_s, in_force
from flwr_mel.orchestrator.doubts import Doubt, Why
from flwr_mel.orchestrator.echoes import count_again
from flwr_mel.orchestrator.flights import expected_s, give_up, land, others, take_off
from flwr_mel.orchestrator.hearing import hear
from flwr_mel.orchestrator.own_work import after_own_round, after_task, done, measurement
from flwr_mel.orchestrator.pacing import OwnPace
from flwr_mel.orchestrator.parts import Part, allocate_parts
from flwr_mel.orchestrator.planning import cut_shards, draw_seed, fill_costs, shuffled
from flwr_mel.orchestrator.problems import of_the_chosen
from flwr_mel.orchestrator.remarks import remarks
from flwr_mel.orchestrator.returned import Returned
from flwr_mel.orchestrator.settings import InForce, Mode, Settings
from flwr_mel.orchestrator.shares import held_of, shared, watch_shares
from flwr_mel.orchestrator.standing import expected_flower_s, stand
from flwr_mel.orchestrator.state import CyclePlan, LearnerState, State, Stopped, Task
from flwr_mel.orchestrator.stopping import stop_reason
from flwr_mel.orchestrator.trust import gets_own_round, learn, learning_of, measured, slowdown_of
from flwr_mel.records import CycleRecord, LearnerRecord, Outcome

_NOBODY = "nobody works in this cycle"
#: The status of a cycle in which everybody did its own round.
FREE = "free"


def plan(
    state: State, settings: Settings, cycle: int, nodes: Sequence[str]
) -> tuple[State, CyclePlan, CycleRecord]:
    """Allocate a cycle to the learners that are there; return the tasks and the record, open still.

    Parameters
    ----------
    state : State
        What is known of them.
    settings : Settings
        What the user asks for.
    cycle : int
        From 1.
    nodes : sequence of str
        Who may be given work.
    """
    new = state.copy()
    give_up(new, settings, cycle)
    present = [state.learners.get(node, LearnerState(node)) for node in nodes]
    present.sort(key=lambda learner: learner.order)
    record = CycleRecord(cycle, settings.cycle_time_s or state.cycle_time_s or 0.0)
    present = fill_costs(present, as_planned(settings, record.cycle_time_s))
    new.learners |= {x.node: x for x in present}
    force = in_force(settings, list(new.learners.values()), state.cycle_time_s, state.asked_s)
    force = replace(force, lasts_s=state.lasted_s)
    record.cycle_time_s, record.own_round_s = force.cycle_time_s, force.own_round_s
    record.staleness = force.staleness
    new.cycle_time_s = force.cycle_time_s if force.paced and force.cycle_time_s else None
    new.asked_s = force.asked_s
    record.notes, new.notes = new.notes, []
    again = _lost_on_the_way(new, settings, present)
    record.learners = [_open_row(x, new, force) for x in present] + others(new, present, settings)
    record.flower_s = None if state.virtual else expected_flower_s(present)
    chosen = of_the_chosen(force, len(nodes), len(state.connected or ()))
    tasks = _tasks(chosen, record, present, new.flights)
    if not tasks and not new.flights:
        for row in record.learners:
            row.reason = row.reason or _NOBODY
    new.flights |= take_off(new, settings, tasks, record.learners)
    working = {task.node for task in tasks} | {x.node for x in new.flights.values()}
    idle = tuple(x.node for x in present if x.node not in working)
    return new, CyclePlan(cycle, (*again, *tasks), idle), record


def _open_row(x: LearnerState, state: State, settings: InForce) -> LearnerRecord:
    row = LearnerRecord(x.name, x.node, reason=str(x.doubt or ""), slowdown=slowdown_of(x, settings))
    row.idle, row.held, row.problem = x.idle, held_of(x, settings), x.problem
    if x.name in state.flights:
        row.outcome, row.reason = Outcome.BUSY, f"works on the task of cycle {state.flights[x.name].cycle}"
    return row


def _lost_on_the_way(new: State, settings: Settings, present: Sequence[LearnerState]) -> tuple[Task, ...]:
    """Return earlier tasks that must be sent again: their learner, or this process, has been interrupted."""
    again = []
    for x in present:
        flight = new.flights.get(x.name)
        if flight is None or flight.node == x.node:
            continue
        new.flights[x.name] = flight = replace(flight, node=x.node)
        shard = shuffled(settings, flight.cycle)
        if shard is not None:
            shard = shard[flight.shard_at : flight.shard_at + flight.samples]
        seed = draw_seed(settings.seed, flight.cycle, x.name)
        again.append(
            Task(x.node, x.name, flight.cycle, flight.epochs, flight.samples, seed, shard, flight.span)
        )
    return tuple(again)


def _tasks(
    settings: InForce, record: CycleRecord, present: Sequence[LearnerState], busy: Collection[str]
) -> tuple[Task, ...]:
    rows = {row.node: row for row in record.learners}
    free = [x for x in present if gets_own_round(x, settings) and x.name not in busy]
    able = _able(present, free, settings, rows)
    if not able and not free:
        doubts = [learner.doubt for learner in present]
        # Everybody's, or else one learner could end the run while the others are silent.
        if present and all(doubt is not None and doubt.of_settings for doubt in doubts):
            raise ValueError(f"learner {present[0].name!r} {doubts[0]}")
        record.notes.append(f"{_NOBODY}: no learner says what it can do")
        return ()
    given: list[tuple[LearnerState, int, int, int]] = []
    parts = allocate_parts(able, settings, record, busy) if able else []
    for part in parts:
        _write_rows(settings, record, part)
        epochs, samples = part.epochs.tolist(), part.solution.samples.tolist()
        who, spans = part.share.who, part.share.spans
        given += [entry for entry in zip(who, spans, epochs, samples, strict=True) if entry[2]]
    record.total_samples = sum(samples for *_, samples in given)
    shards = cut_shards(settings, record.cycle, np.array([n for *_, n in given], dtype=np.int64))
    tasks = [
        Task(
            node=x.node,
            learner=x.name,
            cycle=record.cycle,
            epochs=epochs,
            samples=samples,
            seed=draw_seed(settings.seed, record.cycle, x.name),
            shard=None if shards is None else shards[k],
            span=span,
            modded=x.modded,
        )
        for k, (x, span, epochs, samples) in enumerate(given)
    ]
    _write(record, parts)
    for x in free:
        row, seed = rows[x.node], draw_seed(settings.seed, record.cycle, x.name)
        row.free, row.reason, row.outcome = True, "", Outcome.FAILED
        record.status = record.status if parts else FREE
        tasks.append(Task(x.node, x.name, record.cycle, 0, 0, seed, free=True))
    if free or _mixed(parts):
        order = {x.node: k for k, x in enumerate(present)}
        tasks.sort(key=lambda task: order[task.node])
    return tuple(tasks)


def _able(
    present: Sequence[LearnerState],
    free: Sequence[LearnerState],
    settings: InForce,
    rows: Mapping[str, LearnerRecord],
) -> list[LearnerState]:
    """Return who can be planned for."""
    apart = {x.node for x in free}
    able = [x for x in present if x.costs is not None and x.node not in apart]
    if settings.paced:
        for x in able:
            if x.own is None:  # it has no mod to measure it
                rows[x.node].reason = str(Doubt(Why.SILENT))
        able = [x for x in able if x.own is not None]
    return able


def _mixed(parts: Sequence[Part]) -> bool:
    """Whether some can be told less than others: several allocations, or own rounds for epochs."""
    apart = sum(isinstance(part.share.solver, OwnPace) for part in parts)
    return len(parts) - apart > 1 or any((part.epochs != part.solution.epochs).any() for part in parts)


def _write(record: CycleRecord, parts: Sequence[Part]) -> None:
    """Put on record what the allocations come to together."""
    if not parts:
        return
    first = parts[0].solution
    record.status, record.objective = str(first.status), str(first.objective)
    record.mean_epochs, record.value = first.mean_epochs, first.value
    record.bound, record.gap = first.bound, first.gap
    if _mixed(parts):
        epochs = np.concatenate([part.epochs for part in parts])
        record.status, record.objective = str(Status.FEASIBLE), str(Objective.EPOCHS)
        record.mean_epochs = record.value = float(epochs.mean())
        record.bound, record.gap = float("inf"), None


def _write_rows(settings: InForce, record: CycleRecord, part: Part) -> None:
    """Put everybody's task on record."""
    share, solution = part.share, part.solution
    problem, epochs = share.problem, part.epochs
    limited, c = part.limited, problem.coefficients
    # The model goes both ways; samples, where the server ships them, only to the learner.
    shipped = c.c1 * solution.samples if settings.mode is Mode.PARALLELIZED else 0.0 * c.c1
    link = c.c0 - [0.0 if x.estimate is None else x.estimate.fixed_s for x in share.who]
    receive_s, send_s = (link / 2 + shipped).tolist(), (link / 2).tolist()
    rows = {row.node: row for row in record.learners}
    for k, learner in enumerate(share.who):
        row = rows[learner.node]
        limit = problem.energy_limit_j[k]
        row.energy_limit_j = None if np.isinf(limit) else float(limit)
        if not solution.epochs[k]:
            row.reason = str(solution.excluded[k])
            continue
        row.epochs, row.samples = int(epochs[k]), int(solution.samples[k])
        row.time_s, row.energy_j = float(solution.time_s[k]), float(solution.energy_j[k])
        row.limited_by, row.reason, row.outcome = limited[k], "", Outcome.FAILED
        row.receive_s, row.send_s, row.span = receive_s[k], send_s[k], share.spans[k]
        row.slowdown = slowdown_of(learner, settings, row)


def settle(
    state: State, settings: Settings, record: CycleRecord, back: Returned
) -> tuple[State, CycleRecord]:
    """Put on record what came back, and learn from it.

    Parameters
    ----------
    state : State
        With which the cycle was planned.
    settings : Settings
        What the user asks for.
    record : CycleRecord
        From `plan`.
    back : Returned
        What came back.
    """
    force = as_planned(settings, record.cycle_time_s)
    new = state.copy()
    rows = [_row(row, state.learners.get(row.node), force, back) for row in record.learners]
    record = land(new, replace(record, learners=rows), back)
    record = count_again(new, settings, record, back)
    new.learners |= _watched(new, record.learners, force, back)
    if record.status == FREE:
        _add_up(record)
    record = shared(record, settings)
    new = watch_shares(new, settings, record)
    # Before the new words: what was planned rests on the old ones.
    late_after_s = deadline_s(settings, record) or record.cycle_time_s
    rows = [row for row in record.learners if row.node in new.learners]
    new.learners |= learn(new.learners, rows, force, late_after_s)
    new.learners |= _idle(new, rows)
    new = hear(new, settings, back.reports)
    told = remarks(new, settings, record, back)
    new.remarked |= set(told)
    record.notes, new.notes = [*record.notes, *told.values(), *new.notes], []
    asked = [row for row in record.learners if row.asked]
    missing = any(row.outcome in (Outcome.FAILED, Outcome.LATE) for row in asked if row.span == 1)
    record.makespan_s = record.cycle_time_s if missing else expected_s(record)
    if back.times is not None:
        new, record = stand(new, record, back.times)
    new.trained = new.trained or any(
        row.outcome is Outcome.USED or row.moved_weight for row in record.learners
    )
    record.energy_j = float(sum(row.energy_j for row in asked))
    new.clock_s, new.lasted_s = state.clock_s + record.makespan_s, record.makespan_s
    new.energy_j += record.energy_j
    return new, record


def _idle(state: State, rows: Sequence[LearnerRecord]) -> dict[str, LearnerState]:
    """Count the cycles without work."""
    counted = {}
    for row in rows:
        x = state.learners[row.node]
        idle = 0 if row.samples or row.outcome is Outcome.BUSY else x.idle + 1
        if idle != x.idle:
            counted[row.node] = changed(x, idle=idle)
    return counted


def _add_up(record: CycleRecord) -> None:
    """Put on record what the learners' own rounds came to."""
    epochs = [row.epochs for row in record.learners if row.epochs]
    record.cycle_time_s = max((row.time_s for row in record.learners), default=0.0)
    record.total_samples = record.asked_samples = sum(row.samples for row in record.learners)
    record.mean_epochs = record.value = sum(epochs) / max(len(epochs), 1)


def _row(row: LearnerRecord, x: LearnerState | None, settings: InForce, back: Returned) -> LearnerRecord:
    """Return a learner's row with what came back of it."""
    row = changed(row, bounded=back.bounded.get(row.node, ""))
    if row.node in back.used:
        row.outcome, row.weight = Outcome.USED, back.used[row.node]
    elif row.node in back.failed:
        row.outcome, row.reason = back.failed[row.node]
    if row.asked and row.node in back.reports:
        said: Mapping[str, object] = back.reports[row.node]
        row.reported_time_s = measurement(said.get(wire.TRAIN_SECONDS))
        row.reported_energy_j = measurement(said.get(wire.TRAIN_JOULES))
        row.epochs_done, row.samples_used = done(said)
        row.held = held_of(said.get(wire.SAMPLES_HELD), settings) or row.held
    clocked = row.free or (row.samples and x is not None and learning_of(x, settings) is not None)
    # In a simulation messages wait for workers, which is nobody's link.
    if clocked and row.node in back.round_trips and wire.SIMULATED not in back.reports.get(row.node, {}):
        row.round_trip_s = measurement(back.round_trips[row.node])
    return row


def _watched(
    state: State, rows: Sequence[LearnerRecord], settings: InForce, back: Returned
) -> dict[str, LearnerState]:
    """Return the learners of whom it was seen how they work; rows of own rounds are told what they were."""
    found = {}
    for row in rows:
        x = state.learners.get(row.node)
        if x is None or row.outcome is not Outcome.USED:
            continue
        said: Mapping[str, object] = back.reports.get(row.node, {})
        if row.free:
            found[row.node] = _after_own_round(x, row, settings, said)
        elif settings.mode is Mode.FEDERATED and (own := after_task(x.own, said, row)) != x.own:
            found[row.node] = replace(x, own=own)
    return found


def _after_own_round(
    x: LearnerState, row: LearnerRecord, settings: InForce, said: Mapping[str, object]
) -> LearnerState:
    found = after_own_round(said, row.weight, row.round_trip_s)
    if found is None:
        row.samples = row.weight
        return x
    own, costs = found
    row.epochs, row.time_s = own.epochs, own.seconds
    row.samples = round(row.samples_used or row.weight)
    row.held = min(own.samples, settings.max_samples or own.samples)
    if x.costs is None and x.capability is not None and not x.capability.able:
        x = measured(x, costs, settings)
    return replace(x, own=own)


def reject(state: State, record: CycleRecord, reason: str) -> tuple[State, CycleRecord]:
    """Put on record that the model made of this cycle's updates is not used; the old one stays.

    None of them counts again, or what was wrong would come again.

    Parameters
    ----------
    state : State
        After `settle`.
    record : CycleRecord
        From `settle`.
    reason : str
        What was wrong with the model.
    """
    who = [row.learner for row in record.learners if row.outcome is Outcome.USED or row.moved_weight]
    who += sorted({x.learner for x in record.echoes} - set(who))
    text = f"{reason}: the old one stays. It was made of the updates of {', '.join(who)}"
    rows = [
        replace(row, outcome=Outcome.REFUSED, weight=0, reason=reason) if row.outcome is Outcome.USED else row
        for row in record.learners
    ]
    rows = [changed(row, moved_weight=0, share=0.0) for row in rows]
    record = replace(record, learners=rows, echoes=[], notes=[*record.notes, text])
    return replace(state, echoes=()), record


def close(state: State, settings: Settings, record: CycleRecord) -> tuple[State, CycleRecord]:
    """Finish a cycle: add it up and decide whether training goes on.

    Parameters
    ----------
    state : State
        After `settle`.
    settings : Settings
        The stopping criteria.
    record : CycleRecord
        With the cycle's metrics.
    """
    new = state.copy()
    new.cycles_done = record.cycle
    record = replace(record, clock_s=state.clock_s, total_energy_j=state.energy_j)
    record.stopped = stop_reason(settings.stopping, record, new)
    if record.stopped:
        new.stopped = Stopped(record.cycle, record.stopped)
    return new, record
