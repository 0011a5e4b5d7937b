"""Plan a cycle: from what is known about the learners to one task each.

A learner whose costs are not known yet does the project's own work once, which is measured: its baseline. All
others get epochs and samples from one verified allocation (`flwr_mel.allocation.allocate`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from statistics import median_high

import numpy as np

from flwr_mel._validate import MAX_COUNT, FloatArray, IntArray
from flwr_mel.allocation import AllocationProblem, Infeasible, Solution, allocate
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.allocation.limiting import limiting
from flwr_mel.costs import Coefficients
from flwr_mel.cycle.errors import NoWork, unable_text
from flwr_mel.cycle.options import OnInfeasible, Options
from flwr_mel.cycle.round_time import round_time
from flwr_mel.cycle.state import Learner, State, Task
from flwr_mel.records import CycleRecord, LearnerRecord, Outcome

#: Most epochs, as a multiple of the project's own.
_MOST_EPOCHS = 5
#: Least samples where T is derived: a mini-batch, and more than batch normalisation needs.
_LEAST_SAMPLES = 32


class Follows(Enum):
    """What the project's clients let themselves be told."""

    BOTH = "epochs and samples"
    EPOCHS = "epochs"
    SAMPLES = "samples"
    NOTHING = "nothing"

    @classmethod
    def of(cls, learners: Collection[Learner], options: Options) -> Follows:
        """Read it off most reports: one app runs on all clients. Without any, clients follow everything."""
        samples = options.shards is not None or _most(x.chooses for x in learners)
        if _most(x.reads for x in learners):
            return cls.BOTH if samples else cls.EPOCHS
        return cls.SAMPLES if samples else cls.NOTHING


def _most(reports: Iterable[bool | None]) -> bool:
    """Whether most of those that are known are true, or none is known."""
    known = [x for x in reports if x is not None]
    return 2 * sum(known) > len(known) or not known


@dataclass(frozen=True, slots=True, eq=False)
class Fleet:
    """Learners to plan for, as arrays.

    Parameters
    ----------
    learners : list of Learner
        In their order.
    costs : Coefficients
        To plan with; an epoch is the project's own number of epochs where epochs are not followed.
    energy_limit_j : list of float or None
        E_k.
    data : int array
        The most samples per learner: what it holds, within the bounds of `Robust`.
    own_epochs : int array
        Of the project's own work.
    """

    learners: list[Learner]
    costs: Coefficients
    energy_limit_j: list[float | None]
    data: IntArray
    own_epochs: IntArray

    @classmethod
    def of(cls, learners: Sequence[Learner], options: Options, follows: Follows) -> Fleet:
        """Collect what is known about learners with an estimate."""
        most = options.robust.max_samples or MAX_COUNT
        data = [most if x.data is None else min(x.data, most) for x in learners]
        rows = [x.estimate.costs() for x in learners if x.estimate is not None]
        c2, c1, c0, g2, g1, g0 = np.array(rows, dtype=np.float64).T
        own = np.array([x.own_epochs or 1 for x in learners], dtype=np.int64)
        unit = own if follows is Follows.SAMPLES else np.ones_like(own)
        limits = [None if x.capability is None else x.capability.energy_limit_j for x in learners]
        costs = Coefficients(c2 * unit, c1, c0, g2 * unit, g1, g0)
        return cls(list(learners), costs, limits, np.array(data, dtype=np.int64), own)

    def take(self, index: Sequence[int] | IntArray) -> Fleet:
        """Return some of the learners."""
        at = np.asarray(index, dtype=np.int64)
        return Fleet(
            [self.learners[k] for k in at],
            self.costs.take(at),
            [self.energy_limit_j[k] for k in at],
            self.data[at],
            self.own_epochs[at],
        )


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
    _check_shards(learners, options)
    record = CycleRecord(cycle, staleness=options.staleness)
    record.learners = [LearnerRecord(x.label, x.node, held=_held(x, options)) for x in learners]
    rows = {x.key: row for x, row in zip(learners, record.learners, strict=True)}
    reasons = {x.key: _unable(x, options) for x in learners}
    for key, reason in reasons.items():
        rows[key].reason = reason
    ready = [x for x in learners if not reasons[x.key]]
    first = [x for x in ready if _unmeasured(x, options)]
    known = [x for x in ready if not _unmeasured(x, options)]
    if learners and not ready and not state.trained:
        raise NoWork(unable_text([(x.label, reasons[x.key]) for x in learners]))
    follows = Follows.of(state.learners.values(), options)
    fixed = [x for x in known if x.fixed or follows is Follows.NOTHING]
    told = [x for x in known if x not in fixed]
    fleet = Fleet.of(told, options, follows) if told else None
    state, time_s = _cycle_time(state, options, fleet, fixed, follows, record)
    tasks: list[Task] = []
    if fleet is not None:
        tasks = _allocated(options, record, fleet, follows, time_s, len(nodes) / max(connected, len(nodes)))
    for x in [*first, *(x for x in fixed if _fits(x, options, rows[x.key]))]:
        rows[x.key].baseline = True
        rows[x.key].time_s, rows[x.key].energy_j = _own_work(x)
        tasks.append(Task(x.node, x.key, cycle, 0, 0, draw_seed(options.seed, cycle, x.key), baseline=True))
    if not tasks:
        _check_workable(state, options, follows)
    if tasks and not any(task.samples for task in tasks):
        record.status = "baseline"
    for task in tasks:
        rows[task.key].outcome = Outcome.FAILED
    order = {x.key: k for k, x in enumerate(learners)}
    tasks.sort(key=lambda task: order[task.key])
    planned = state.planned or any(task.samples for task in tasks)
    return replace(state, planned=planned), tuple(tasks), record


def draw_seed(seed: int, cycle: int, key: str) -> int:
    """Return the seed of one learner's work in one cycle; it does not depend on the other learners."""
    digest = hashlib.blake2b(f"{seed}/{cycle}/{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1  # 63 bits: the wire carries signed integers


def _check_shards(learners: Sequence[Learner], options: Options) -> None:
    """Raise if data would be sent to clients outside a simulation without the operator's statement."""
    outside = [x.label for x in learners if x.answered and not x.simulated]
    if options.shards is not None and not options.shards.over_tls and outside:
        raise PermissionError(
            f"shards would be sent to {', '.join(outside[:3])}, outside a simulation. If all clients are "
            "reached over TLS with registered keys, say so: Shards(..., over_tls=True)"
        )


def _held(x: Learner, options: Options) -> int | None:
    """Return n_k as far as it is known and allowed to count."""
    if options.shards is not None or x.data is None:
        return None
    return min(x.data, options.robust.max_samples or MAX_COUNT)


def _unable(x: Learner, options: Options) -> str:
    """Return why a learner cannot be given work; "" if it can."""
    if x.data == 0:
        return "it declares that it has no samples"
    if x.estimate is not None:
        return ""
    if x.capability is not None and x.capability.device is not None and options.workload is None:
        return (
            "it reports physical values (clock, link, power), so MelStrategy needs workload=, e.g. "
            "Workload.mlp((784, 300, 10)), to turn them into time and energy"
        )
    if not x.modded:
        return x.problem or ("it has no mel_mod" if x.answered else "it has not answered yet")
    if options.shards is not None:
        return (
            "it reports no costs, and without local data they cannot be measured. Use "
            "MelMod(device), a profile, or MelStrategy(..., default_device=...)"
        )
    return x.problem if x.problem.startswith("its capability was rejected") else ""


def _unmeasured(x: Learner, options: Options) -> bool:
    """Whether a learner has to do the project's own work before it can be planned for."""
    if options.shards is not None:
        return False
    unknown_data = options.total_samples is None and x.data is None
    return x.estimate is None or unknown_data or (options.cycle_time_s is None and x.baseline_s is None)


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
    if options.cycle_time_s is not None and seconds > options.cycle_time_s:
        used = f"takes {seconds:.3g} s of T = {options.cycle_time_s:g} s"
    elif row.energy_limit_j is not None and joules > row.energy_limit_j:
        used = f"uses {joules:.3g} J of {row.energy_limit_j:g} J"
    if used:
        row.reason = f"it does not follow its task, and its own work {used}. Use Assignment in the client"
    return not used


def _cycle_time(
    state: State,
    options: Options,
    fleet: Fleet | None,
    fixed: Sequence[Learner],
    follows: Follows,
    record: CycleRecord,
) -> tuple[State, float]:
    """Return T: the given one, or the one that follows from the estimates of these learners."""
    if options.cycle_time_s is not None:
        record.cycle_time_s = options.cycle_time_s
        return state, options.cycle_time_s
    known = [*([] if fleet is None else fleet.learners), *fixed]
    measured = [x.baseline_s for x in known if x.baseline_s is not None]
    if not measured:
        return state, 0.0
    baseline_s = max(measured)
    least_s = max((x.baseline_s or 0.0 for x in fixed), default=0.0)
    now_s = least_s
    if fleet is not None:
        now_s = max(
            least_s,
            round_time(
                fleet.costs,
                np.ones_like(fleet.own_epochs) if follows is Follows.SAMPLES else fleet.own_epochs,
                fleet.data,
                min_samples=_min_samples(options, fleet, follows),
                max_epochs=_max_epochs(options, fleet, follows) or MAX_COUNT,
                epochs_only=follows is Follows.EPOCHS,
            ),
        )
    time_s, pace = state.pace.next(now_s, baseline_s)
    record.cycle_time_s, record.baseline_s = time_s, baseline_s
    return replace(state, pace=pace), time_s


def _min_samples(options: Options, fleet: Fleet, follows: Follows) -> int:
    """Return d_l."""
    if follows is Follows.EPOCHS:
        return 1
    if options.min_samples is not None:
        return options.min_samples
    return 1 if options.cycle_time_s is not None else min(_LEAST_SAMPLES, int(fleet.data.min()))


def _max_epochs(options: Options, fleet: Fleet, follows: Follows) -> int | None:
    """Return the most epochs: as given, or five times the project's own if it has such a number."""
    if follows is Follows.SAMPLES:
        return 1
    if options.max_epochs is not None:
        return options.max_epochs
    own = [x.own_epochs for x in fleet.learners if x.own_epochs is not None]
    return min(_MOST_EPOCHS * median_high(own), MAX_COUNT) if own else None


def _allocated(
    options: Options,
    record: CycleRecord,
    fleet: Fleet,
    follows: Follows,
    time_s: float,
    part: float,
) -> list[Task]:
    """Allocate epochs and samples, and write them into the record."""
    rows = {row.node: row for row in record.learners}
    fleet, problem = _problem(options, record, fleet, follows, time_s, part, rows)
    solution = None if problem is None else _solved(problem, options, record)
    if problem is None or solution is None:
        return []
    unit = fleet.own_epochs if follows is Follows.SAMPLES else np.ones_like(fleet.own_epochs)
    limits = limiting(problem, solution.epochs, solution.samples)
    for k, x in enumerate(fleet.learners):
        row = rows[x.node]
        row.energy_limit_j = fleet.energy_limit_j[k]
        if not solution.epochs[k]:
            row.reason = str(solution.excluded[k])
            continue
        row.epochs, row.samples = int(solution.epochs[k] * unit[k]), int(solution.samples[k])
        row.time_s, row.energy_j = float(solution.time_s[k]), float(solution.energy_j[k])
        row.limited_by, row.reason = str(limits[k]), ""
    record.status, record.objective = str(solution.status), str(solution.objective)
    record.value, record.bound = solution.value, solution.bound
    record.total_samples = int(solution.samples.sum())
    given = [x for x in fleet.learners if rows[x.node].samples]
    shards = _cut(options, record.cycle, [rows[x.node].samples for x in given])
    return [
        Task(
            x.node,
            x.key,
            record.cycle,
            rows[x.node].epochs,
            rows[x.node].samples,
            draw_seed(options.seed, record.cycle, x.key),
            shard=None if shards is None else shards[k],
        )
        for k, x in enumerate(given)
    ]


def _problem(
    options: Options,
    record: CycleRecord,
    fleet: Fleet,
    follows: Follows,
    time_s: float,
    part: float,
    rows: dict[str, LearnerRecord],
) -> tuple[Fleet, AllocationProblem | None]:
    """Return the learners that can take part and their problem; None: no learner can."""
    least, most_epochs = _min_samples(options, fleet, follows), _max_epochs(options, fleet, follows)

    def build(some: Fleet, total: int) -> AllocationProblem:
        return AllocationProblem(
            some.costs,
            _deadlines(some, options, time_s, _smallest(options, some, follows)),
            some.energy_limit_j,
            total_samples=max(total, 1),
            staleness=MAX_COUNT if options.staleness is None else options.staleness,
            min_samples=least,
            max_samples=some.data,
            max_epochs=most_epochs,
        )

    total = _asked(options, fleet, part, least)
    capacities = Capacities.of(build(fleet, max(total, least * len(fleet.learners))))
    room = capacities.at(1)
    if follows is Follows.EPOCHS:
        # Clients use all their samples, so one that cannot do so in time is skipped.
        able = np.flatnonzero(room >= fleet.data)
        for k in np.flatnonzero(room < fleet.data).tolist():
            took = float(fleet.costs.time_s(1, fleet.data)[k])
            rows[fleet.learners[k].node].reason = (
                f"it uses all its {fleet.data[k]:,} samples, which takes {took:.3g} s. Use "
                "Assignment.choose or loader in the client"
            )
        fleet = fleet.take(able)
        total = int(fleet.data.sum())
    elif options.total_samples is None and options.shards is None:
        total = min(total, int(room.sum()))
    elif total < least * int((room >= least).sum()) and options.rounds.on_infeasible is OnInfeasible.RELAX:
        fleet = _strongest(fleet, room, total // least, record, rows)
    elif total < least * int((room >= least).sum()) and options.rounds.on_infeasible is OnInfeasible.SKIP:
        record.notes.append("no client has a task in this round: too few samples for their least batches")
        total = 0
    record.asked_samples = total
    return fleet, build(fleet, total) if fleet.learners and total else None


def _asked(options: Options, fleet: Fleet, part: float, least: int) -> int:
    """Return how many samples are asked for: the given number or its part, or all data of these learners."""
    total = options.total_samples
    if total is None and options.shards is not None:
        total = len(options.shards)
    if total is not None:
        return max(int(total * part), min(least, total))
    return min(int(fleet.data.sum()), MAX_COUNT)


def _smallest(options: Options, fleet: Fleet, follows: Follows) -> IntArray:
    """Return the samples of each learner's smallest task: all its data, if it does not choose among them."""
    if follows is Follows.EPOCHS:
        return fleet.data
    return np.minimum(_min_samples(options, fleet, follows), fleet.data)


def _deadlines(fleet: Fleet, options: Options, time_s: float, smallest: IntArray) -> float | FloatArray:
    """Return T, longer for a learner whose smallest task would otherwise not fit.

    A T that was derived skips no learner. A T that was given skips one only if its smallest task does not fit
    by the costs that it declared or started with: what was learned since, such as a missed reply, makes its
    task smaller but never removes it.
    """
    needed: FloatArray = fleet.costs.time_s(1, smallest)
    if (needed <= time_s).all():
        return time_s
    if options.cycle_time_s is None:
        return np.maximum(needed, time_s)
    c2, c1, c0 = np.array([x.estimate.base[:3] for x in fleet.learners if x.estimate is not None]).T
    fits = (c2 + c1) * smallest + c0 <= time_s
    return np.where(fits, np.maximum(needed, time_s), time_s)


def _strongest(
    fleet: Fleet,
    room: IntArray,
    places: int,
    record: CycleRecord,
    rows: dict[str, LearnerRecord],
) -> Fleet:
    """Return the strongest learners: there are too few samples for the least batches of all."""
    strongest = np.sort(np.argsort(-room, kind="stable")[:places])
    for k in set(range(len(fleet.learners))) - set(strongest.tolist()):
        rows[fleet.learners[k].node].reason = "there are too few samples for the least batch of every client"
    record.notes.append(f"too few samples for all clients: the {places} strongest take part")
    return fleet.take(strongest)


def _solved(problem: AllocationProblem, options: Options, record: CycleRecord) -> Solution | None:
    """Solve, or do what `on_infeasible` says; None: no client has a task in this cycle."""
    try:
        return allocate(problem, options.solver)
    except Infeasible as infeasible:
        policy, fits = options.rounds.on_infeasible, infeasible.diagnosis.carried
        if policy is OnInfeasible.ERROR:
            raise
        if policy is OnInfeasible.RELAX and fits:
            record.notes.append(
                f"{problem.total_samples:,} samples do not fit, {fits:,} do: {infeasible.diagnosis}"
            )
            return allocate(problem.replace(total_samples=fits), options.solver)
        record.notes.append(f"no client has a task in this round: {infeasible}")
        return None


def _check_workable(state: State, options: Options, follows: Follows) -> None:
    """Raise if the given T is too short for every connected client and no task was ever planned."""
    able = [x for x in map(state.of, state.keys) if not _unable(x, options)]
    known = [x for x in able if not _unmeasured(x, options) and not x.fixed]
    if options.cycle_time_s is None or state.planned or not known or len(known) < len(able):
        return
    fleet = Fleet.of(known, options, follows)
    shortest = float(fleet.costs.time_s(1, _smallest(options, fleet, follows)).min())
    if shortest > options.cycle_time_s:
        raise NoWork(
            f"cycle_time_s={options.cycle_time_s:g} is too short for every client: the smallest cycle time "
            f"in which one of them can do anything is {1.005 * shortest:.3g} s. Give at least that, or leave "
            "it out"
        )


def _cut(options: Options, cycle: int, samples: Sequence[int]) -> list[IntArray] | None:
    """Cut a fresh shuffle of the server's data into shards; it depends on the seed and the cycle alone."""
    if options.shards is None:
        return None
    order = np.random.default_rng([options.seed, cycle]).permutation(len(options.shards))
    ends = np.cumsum(np.array(samples, dtype=np.int64))
    return [order[end - n : end] for end, n in zip(ends, samples, strict=True)]
