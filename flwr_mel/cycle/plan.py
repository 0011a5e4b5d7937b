"""Plan a cycle: from what is known about the learners to one task each.

A learner whose costs are not known yet does the project's own work once, which is measured: its baseline.
With T = "best" or shards a small task is measured instead. All others get epochs and samples from one
verified allocation (`flwr_mel.allocation.allocate`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from flwr_mel._validate import MAX_COUNT, IntArray
from flwr_mel.allocation import AllocationProblem, Infeasible, Solution, allocate
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.limiting import limiting
from flwr_mel.cycle.errors import NoWork, unable_text
from flwr_mel.cycle.fleet import Fleet, Follows, held, unable, unmeasured
from flwr_mel.cycle.messages import PLAN, SHORT_ROUNDS
from flwr_mel.cycle.options import OnInfeasible, Options
from flwr_mel.cycle.round_time import best_in_pace, round_time
from flwr_mel.cycle.state import Learner, State, Task
from flwr_mel.records import CycleRecord, LearnerRecord, Outcome
from flwr_mel.solvers.rate import LEAST

Rows = Mapping[str, LearnerRecord]


def plan(
    state: State, options: Options, cycle: int, nodes: Sequence[str], connected: int = 0
) -> tuple[State, tuple[Task, ...], CycleRecord]:
    """Return the tasks of a cycle, and its record, which `settle` completes.

    Parameters
    ----------
    state : State
        What is known.
    options : Options
        What the user asks for.
    cycle : int
        From 1.
    nodes : sequence of str
        Clients that may be given work.
    connected : int
        How many clients there are in all: if these are more, the cycle gets its share of `total_samples`.
    """
    learners = state.present(nodes)
    record = CycleRecord(cycle, staleness=options.staleness)
    record.learners = [LearnerRecord(x.label, x.node, held=held(x, options)) for x in learners]
    rows = {x.key: row for x, row in zip(learners, record.learners, strict=True)}
    reasons = {x.key: unable(x, options) for x in learners}
    for key, reason in reasons.items():
        rows[key].reason = reason
    ready = [x for x in learners if not reasons[x.key]]
    _check_shards(ready, options)
    first = [x for x in ready if unmeasured(x, options)]
    known = [x for x in ready if not unmeasured(x, options)]
    if learners and not ready and not state.trained:
        raise NoWork(unable_text([(x.label, reasons[x.key]) for x in learners]))
    follows = Follows.of(state.learners.values(), options)
    fixed = known if follows is Follows.NOTHING else [x for x in known if x.fixed]
    led = [] if follows is Follows.NOTHING else [x for x in known if not x.fixed]
    fleet = Fleet.of(led, options, follows) if led else None
    best = options.best and fleet is not None and follows in (Follows.BOTH, Follows.SAMPLES)
    tasks: list[Task] = []
    if fleet is not None and best:
        state, tasks = _best(state, options, record, fleet, rows)
    else:
        state = _set_time(state, options, record, fleet, fixed)
        if fleet is not None:
            part = len(nodes) / max(connected, len(nodes))
            tasks = _allocated(options, record, fleet, rows, part)
    small = [x for x in first if _starts_small(x, options)]
    tasks += [_first_task(options, x, k, rows[x.key], cycle) for k, x in enumerate(small)]
    first = [x for x in first if not _starts_small(x, options)]
    for x in [*first, *(x for x in fixed if _fits(x, options, rows[x.key]))]:
        rows[x.key].baseline = True
        rows[x.key].time_s, rows[x.key].energy_j = _own_work(x)
        tasks.append(Task(x.node, x.key, cycle, 0, 0, draw_seed(options.seed, cycle, x.name), baseline=True))
    if not tasks:
        _check_workable(state, options, follows)
    if tasks and not any(task.samples for task in tasks):
        record.status = "baseline" if first else "own work"
    for task in tasks:
        rows[task.key].outcome = Outcome.FAILED
    order = {x.key: k for k, x in enumerate(learners)}
    tasks.sort(key=lambda task: order[task.key])
    planned = state.planned or any(task.samples for task in tasks)
    return replace(state, planned=planned), tuple(tasks), record


def draw_seed(seed: int, cycle: int, name: str) -> int:
    """Return the seed of one learner's work in one cycle; it does not depend on the other learners."""
    digest = hashlib.blake2b(f"{seed}/{cycle}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1  # 63 bits: the wire carries signed integers


def _check_shards(learners: Sequence[Learner], options: Options) -> None:
    """Raise if data would be sent to clients outside a simulation without the operator's statement."""
    outside = [x.label for x in learners if not x.simulated]
    if options.shards is not None and not options.shards.over_tls and outside:
        raise PermissionError(
            f"shards would be sent to {', '.join(outside[:3])}, outside a simulation. If all clients connect "
            "over TLS with registered keys, declare this with Shards(..., over_tls=True)"
        )


def _starts_small(x: Learner, options: Options) -> bool:
    """Whether a learner is measured with a small task instead of the project's own work."""
    return options.shards is not None or (options.best and x.chooses is not False)


def _first_task(options: Options, x: Learner, place: int, row: LearnerRecord, cycle: int) -> Task:
    """Return a small task with which a learner without costs is measured."""
    samples, shard = options.min_samples or LEAST, None
    if options.shards is not None:
        samples = min(samples, len(options.shards))
        rows = np.random.default_rng([options.seed, cycle, place]).permutation(len(options.shards))
        shard = rows[:samples]
    row.epochs, row.samples = 1, samples
    return Task(x.node, x.key, cycle, 1, samples, draw_seed(options.seed, cycle, x.name), shard=shard)


def _own_work(x: Learner) -> tuple[float, float]:
    """Return seconds and joules of the project's own work, as far as they are known."""
    if x.estimate is None or x.data is None:
        return x.baseline_s or 0.0, 0.0
    c2, c1, c0, g2, g1, g0 = x.estimate.costs()
    work = (x.own_epochs or 1) * x.data
    return x.baseline_s or c2 * work + c1 * x.data + c0, g2 * work + g1 * x.data + g0


def _fits(x: Learner, options: Options, row: LearnerRecord) -> bool:
    """Whether a learner that always does its own work keeps T, which is otherwise derived, and E_k."""
    seconds, joules = _own_work(x)
    row.energy_limit_j = None if x.capability is None else x.capability.energy_limit_j
    used = ""
    if options.time_s is not None and seconds > options.time_s:
        used = f"takes {seconds:.3g} s of T = {options.time_s:g} s"
    elif row.energy_limit_j is not None and joules > row.energy_limit_j:
        used = f"uses {joules:.3g} J of {row.energy_limit_j:g} J"
    if used:
        row.reason = f"it does not follow its task, and its own work {used}. Use Assignment in the client"
    return not used


def _set_time(
    state: State, options: Options, record: CycleRecord, fleet: Fleet | None, fixed: Sequence[Learner]
) -> State:
    """Write T into the record: the given one, or the one that follows from the estimates."""
    if options.time_s is not None:
        record.cycle_time_s = options.time_s
        return state
    known = [*([] if fleet is None else fleet.learners), *fixed]
    measured = [x.baseline_s for x in known if x.baseline_s is not None]
    if not measured:
        return state
    now_s = own_s = max((x.baseline_s or 0.0 for x in fixed), default=0.0)
    if fleet is not None:
        costs = fleet.expected()
        own = fleet.own_epochs if fleet.epochs_followed else np.ones_like(fleet.own_epochs)
        derived = round_time(
            costs,
            own,
            fleet.data,
            min_samples=fleet.min_samples,
            max_epochs=fleet.max_epochs or MAX_COUNT,
            epochs_only=fleet.follows is Follows.EPOCHS,
        )
        now_s = max(now_s, derived)
        own_s = max(own_s, float(costs.time_s(own, fleet.data).max()))
    record.baseline_s = max(x.own_s for x in known)
    record.cycle_time_s, pace = state.pace.next(now_s, own_s)
    return replace(state, pace=pace)


def _best(
    state: State, options: Options, record: CycleRecord, fleet: Fleet, rows: Rows
) -> tuple[State, list[Task]]:
    """Choose T, participants and samples together."""
    shared = MAX_COUNT if options.shards is None else len(options.shards) // len(fleet.learners)
    most = np.minimum(fleet.data, max(shared, 1))
    found, pace = best_in_pace(
        state.pace,
        fleet.costs,
        fleet.expected(),
        fleet.energy_limit_j,
        most,
        fleet.min_samples,
        options.rate,
        state.pause_s,
    )
    record.cycle_time_s = found.cycle_time_s
    tasks = _tasks(options, record, fleet, rows, found.problem, found.solution)
    record.asked_samples = record.total_samples
    if PLAN not in state.warned:
        record.notes.append(SHORT_ROUNDS)
    return replace(state, pace=pace), tasks


def _allocated(options: Options, record: CycleRecord, fleet: Fleet, rows: Rows, part: float) -> list[Task]:
    """Allocate epochs and samples within T."""
    fleet, problem = _problem(options, record, fleet, rows, part)
    solution = None if problem is None else _solved(problem, options, record)
    if problem is None or solution is None:
        return []
    return _tasks(options, record, fleet, rows, problem, solution)


def _problem(
    options: Options, record: CycleRecord, fleet: Fleet, rows: Rows, part: float
) -> tuple[Fleet, AllocationProblem | None]:
    """Return the learners that can take part and their problem; None: no learner can."""
    time_s, least = record.cycle_time_s, fleet.min_samples
    total = _asked(options, fleet, part)
    room = Capacities.of(fleet.problem(options, time_s, max(total, least * len(fleet.learners)))).at(1)
    if fleet.follows is Follows.EPOCHS:
        # Clients use all their samples, so one that cannot do so in time is skipped.
        for k in np.flatnonzero(room < fleet.data).tolist():
            took = float(fleet.costs.time_s(1, fleet.data)[k])
            rows[fleet.learners[k].key].reason = (
                f"it uses all its {fleet.data[k]:,} samples, which takes {took:.3g} s. Use "
                "Assignment.choose or loader in the client"
            )
        fleet = fleet.take(np.flatnonzero(room >= fleet.data))
        total = int(fleet.data.sum())
    elif options.total_samples is None and options.shards is None:
        total = min(total, int(room.sum()))
    elif total < least * int((room >= least).sum()):
        if options.rounds.on_infeasible is OnInfeasible.RELAX:
            fleet = _strongest(fleet, room, total // least, record, rows)
        elif options.rounds.on_infeasible is OnInfeasible.SKIP:
            record.notes.append("no client has a task in this round: too few samples for the smallest tasks")
            total = 0
    record.asked_samples = total
    return fleet, fleet.problem(options, time_s, total) if fleet.learners and total else None


def _asked(options: Options, fleet: Fleet, part: float) -> int:
    """Return how many samples are asked for: the given number or its part, or all data of these learners."""
    total = options.total_samples
    if total is None and options.shards is not None:
        total = len(options.shards)
    if total is not None:
        return max(int(total * part), min(fleet.min_samples, total))
    return min(int(fleet.data.sum()), MAX_COUNT)


def _strongest(fleet: Fleet, room: IntArray, places: int, record: CycleRecord, rows: Rows) -> Fleet:
    """Return the strongest learners: there are too few samples for the smallest batches of all."""
    strongest = np.sort(np.argsort(-room, kind="stable")[:places])
    for k in set(range(len(fleet.learners))) - set(strongest.tolist()):
        rows[fleet.learners[k].key].reason = "there are too few samples for the smallest task of every client"
    record.notes.append(f"too few samples for all clients: the {len(strongest)} strongest take part")
    return fleet.take(strongest)


def _solved(problem: AllocationProblem, options: Options, record: CycleRecord) -> Solution | None:
    """Solve, or follow `on_infeasible`; None: no client has a task in this cycle."""
    try:
        return allocate(problem, options.allocator)
    except Infeasible as infeasible:
        policy, fits = options.rounds.on_infeasible, infeasible.diagnosis.carried
        if policy is OnInfeasible.ERROR:
            raise
        if policy is OnInfeasible.RELAX and fits:
            record.notes.append(
                f"{problem.total_samples:,} samples do not fit, so {fits:,} are used: {infeasible.diagnosis}"
            )
            return allocate(problem.replace(total_samples=fits), options.allocator)
        record.notes.append(f"no client has a task in this round: {infeasible}")
        return None


def _check_workable(state: State, options: Options, follows: Follows) -> None:
    """Raise if the given T is too short for every connected client and no task was ever planned."""
    able = [x for x in map(state.of, state.keys) if not unable(x, options)]
    known = [x for x in able if not unmeasured(x, options) and not x.fixed]
    if options.time_s is None or state.planned or not known or len(known) < len(able):
        return
    shortest = float(Fleet.of(known, options, follows).least_s().min())
    if shortest > options.time_s:
        raise NoWork(
            f"cycle_time_s={options.time_s:g} is too short for every client: the smallest cycle time in "
            f"which any client can finish a task is {1.005 * shortest:.3g} s. Give at least that, or leave "
            "cycle_time_s out"
        )


def _tasks(
    options: Options,
    record: CycleRecord,
    fleet: Fleet,
    rows: Rows,
    problem: AllocationProblem,
    solution: Solution,
) -> list[Task]:
    """Write an allocation into the record and return its tasks."""
    epochs = solution.epochs if fleet.epochs_followed else solution.epochs * fleet.own_epochs
    limits = limiting(problem, solution.epochs, solution.samples)
    for k, x in enumerate(fleet.learners):
        row = rows[x.key]
        row.energy_limit_j = fleet.energy_limit_j[k]
        if not epochs[k]:
            row.reason = str(solution.excluded[k])
            continue
        row.epochs, row.samples = int(epochs[k]), int(solution.samples[k])
        row.time_s, row.energy_j = float(solution.time_s[k]), float(solution.energy_j[k])
        row.limited_by, row.reason = str(limits[k]), ""
    record.status, record.objective = str(solution.status), str(solution.objective)
    record.value, record.bound = solution.value, solution.bound
    record.total_samples = int(solution.samples.sum())
    given = [x for x in fleet.learners if rows[x.key].samples]
    shards = _cut(options, record.cycle, [rows[x.key].samples for x in given])
    return [
        Task(
            x.node,
            x.key,
            record.cycle,
            rows[x.key].epochs,
            rows[x.key].samples,
            draw_seed(options.seed, record.cycle, x.name),
            shard=None if shards is None else shards[k],
        )
        for k, x in enumerate(given)
    ]


def _cut(options: Options, cycle: int, samples: Sequence[int]) -> list[IntArray] | None:
    """Cut a fresh shuffle of the server's data into shards; it depends on the seed and the cycle alone."""
    if options.shards is None:
        return None
    order = np.random.default_rng([options.seed, cycle]).permutation(len(options.shards))
    ends = np.cumsum(np.array(samples, dtype=np.int64))
    return [order[end - n : end] for end, n in zip(ends, samples, strict=True)]
