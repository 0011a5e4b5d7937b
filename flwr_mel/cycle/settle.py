"""Settle a cycle: check the replies, weight them, learn from them, complete the record."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from statistics import median_high

from flwr_mel._text import printable
from flwr_mel.cycle.advice import advised
from flwr_mel.cycle.average import Work, blend
from flwr_mel.cycle.errors import NoWork, failed_text
from flwr_mel.cycle.estimate import Estimate
from flwr_mel.cycle.learner import Learner, Patience
from flwr_mel.cycle.options import Estimation, Options
from flwr_mel.cycle.reports import Report, Words, measurement
from flwr_mel.cycle.state import State, with_answers
from flwr_mel.cycle.updates import Arrays, Form, Rejected, agree, conform, limited, norms, same, scaled
from flwr_mel.records import CycleRecord, LearnerRecord, Outcome

# A client waited for the worker of another if it began later than the first by more than this share of the
# longest task, and within this share of the longest task after the other ended. Shorter tasks say nothing.
_LATE, _HANDOVER, _SHORTEST_S = 0.5, 0.2, 0.5


class Kind(Enum):
    """What became of a task."""

    TRAINED = "it was done"
    FAILED = "its app or its mod failed"
    OFFLINE = "its node went offline"
    LATE = "no reply in time"


#: Flower's error codes: what an error instead of a reply means.
ERRORS = {
    0: Kind.FAILED,  # unknown
    1: Kind.FAILED,  # the ClientApp could not be loaded
    2: Kind.FAILED,  # the ClientApp raised an exception
    3: Kind.LATE,  # the message expired before the node took it
    4: Kind.LATE,  # the reply expired
    5: Kind.OFFLINE,  # the node is unavailable
    6: Kind.FAILED,  # a mod's precondition failed
    7: Kind.FAILED,  # the app is invalid
    8: Kind.FAILED,  # the ClientApp crashed
}


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """What came back from one client, in neutral terms.

    Parameters
    ----------
    arrays : mapping of name to array, optional
        Views of its update; None if there is none.
    examples : float, optional
        The number of examples that the app reports.
    words : mapping
        What its mod reports: keys of `flwr_mel.wire`.
    round_trip_s : float, optional
        By the server's clock.
    error : str
        Why there is no update.
    kind : Kind
        What became of the task; with an error it is not done.
    """

    arrays: Arrays | None = None
    examples: object = None
    words: Words = field(default_factory=dict)
    round_trip_s: float | None = None
    error: str = ""
    kind: Kind = Kind.TRAINED

    def __post_init__(self) -> None:
        if self.kind is Kind.TRAINED and (self.error or self.arrays is None):
            object.__setattr__(self, "kind", Kind.FAILED)
            object.__setattr__(self, "error", self.error or "its reply has no arrays")


_NONE_CAME = Reply(kind=Kind.LATE, error=Kind.LATE.value)


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """An update to aggregate.

    Parameters
    ----------
    node : str
        Of the client.
    weight : int
        What it counts for.
    arrays : mapping of name to array
        As it came, or scaled.
    changed : bool
        Whether it was scaled, cast or put in another order.
    """

    node: str
    weight: int
    arrays: Arrays
    changed: bool


def settle(
    state: State,
    options: Options,
    record: CycleRecord,
    replies: Mapping[str, Reply],
    model: Arrays,
    waited_s: float | None = None,
) -> tuple[State, CycleRecord, list[Update]]:
    """Return the new state, the completed record and the updates to aggregate, in the order of the tasks.

    Parameters
    ----------
    state : State
        With which the cycle was planned.
    options : Options
        What the user asks for.
    record : CycleRecord
        From `plan`.
    replies : mapping of node id to Reply
        Absent: no reply came in time.
    model : mapping of name to array
        Sent to the clients.
    waited_s : float, optional
        From sending the tasks to the last reply, by the server's clock.
    """
    record = replace(record, learners=[replace(row) for row in record.learners], notes=list(record.notes))
    asked = record.asked
    came = {row.node: replies.get(row.node, _NONE_CAME) for row in asked}
    reports = {node: Report.parse(x.words).with_examples(x.examples) for node, x in came.items()}
    agreed = agree(model, [x.arrays for x in came.values() if x.arrays is not None], len(asked), state.agreed)
    # Work that only the client reports.
    claimed = {row.node for row in asked if row.baseline or not row.samples}
    good = _checked(record, came, reports, agreed.update, model, options)
    times = _times(came, reports)
    # In the first round the processes of the clients are only starting.
    overhead_s = min((begin for begin, _ in times.values()), default=0.0) if record.cycle > 1 else 0.0
    learned = [
        _learned(state.of(row.node), record, row, came[row.node], reports[row.node], options, overhead_s)
        for row in asked
    ]
    state = state.with_learners(learned) if learned else state
    _compare(record, learned, reports, options)
    updates, state = _weighted(state, record, good, came, reports, claimed, model, options)
    _add_up(record, learned, reports, options, waited_s)
    # After `_learned`: the plan rests on what was reported before.
    told = {node: reply.words for node, reply in came.items() if reply.words}
    state = with_answers(state, options, told)
    state = advised(
        state,
        options,
        record,
        unchanged=[node for node, arrays in good.items() if same(arrays, model)],
        waiting=[node for node in _in_turns(times) if _by_the_clock(state.of(node))],
    )
    state = replace(
        state,
        cycle=record.cycle,
        clock_s=state.clock_s + (record.makespan_s if record.waited_s is None else record.waited_s),
        energy_j=state.energy_j + record.energy_j,
        trained=state.trained or bool(updates),
        agreed=agreed if updates else state.agreed,
    )
    record.clock_s, record.total_energy_j = state.clock_s, state.energy_j
    failed = [row for row in asked if row.outcome in (Outcome.FAILED, Outcome.REJECTED)]
    if failed and len(failed) == len(asked) and not state.trained:
        raise NoWork(failed_text(failed))
    return state, record, updates


def _checked(
    record: CycleRecord,
    came: Mapping[str, Reply],
    reports: Mapping[str, Report],
    expected: Form,
    model: Arrays,
    options: Options,
) -> dict[str, Arrays]:
    """Write outcome and weight of each reply into its row; return the arrays that can be averaged."""
    good: dict[str, Arrays] = {}
    for row in record.asked:
        reply = came[row.node]
        if reply.kind is not Kind.TRAINED or reply.arrays is None:
            row.outcome = Outcome.FAILED if reply.kind is Kind.FAILED else Outcome.LATE
            row.reason = printable(reply.error or reply.kind.value, 300)
            continue
        try:
            arrays = conform(reply.arrays, expected, model)
            row.weight = _weight(row, reply, reports[row.node], options)
        except Rejected as rejected:
            row.outcome, row.reason = Outcome.REJECTED, str(rejected)
        else:
            row.outcome, good[row.node] = Outcome.USED, arrays
    return good


def _weight(row: LearnerRecord, reply: Reply, report: Report, options: Options) -> int:
    """Return the samples that an update counts for: d_k, or fewer if fewer were used.

    Where the server does not know how many samples the client holds, it is what the app reports.
    """
    claimed = measurement(reply.examples)
    if reply.examples is not None and not claimed:
        raise Rejected(f"its number of examples cannot be {reply.examples!r}")
    used = report.used if options.shards is None else None
    if row.baseline:
        weight = max(round(claimed or 0), 1)
    elif not row.samples:
        weight = row.samples = used or max(round(claimed or 0), 1)
    else:
        weight = row.samples if used is None else min(used, row.samples)
    return weight if options.robust.max_samples is None else min(weight, options.robust.max_samples)


def _times(came: Mapping[str, Reply], reports: Mapping[str, Report]) -> dict[str, tuple[float, float]]:
    """Return by node when the app began and ended, in seconds after the tasks were sent."""
    pairs = {node: (x.round_trip_s, reports[node].train_s) for node, x in came.items()}
    return {node: (end - took, end) for node, (end, took) in pairs.items() if end and took and took <= end}


def _in_turns(times: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the nodes that began late and just when another ended: they waited for its worker."""
    longest = max((end - begin for begin, end in times.values()), default=0.0)
    if longest < _SHORTEST_S:
        return []
    # Until then messages are only under way.
    first = min(begin for begin, _ in times.values())
    ends = [end for _, end in times.values()]
    return [
        node
        for node, (begin, _) in times.items()
        if begin - 2 * first > _LATE * longest and any(abs(begin - end) < _HANDOVER * longest for end in ends)
    ]


def _by_the_clock(x: Learner) -> bool:
    """Whether a client of Flower's engine trains in real time."""
    return x.identity.simulated and not x.on_model_time and not x.identity.virtual


def _learned(
    x: Learner,
    record: CycleRecord,
    row: LearnerRecord,
    reply: Reply,
    report: Report,
    options: Options,
    overhead_s: float,
) -> Learner:
    """Return what is known about a learner after its task; complete its row."""
    if reply.kind is Kind.LATE:
        estimate = None if x.estimate is None else x.estimate.missed()
        return replace(x, estimate=estimate, patience=x.patience.after(record.cycle, slow=False))
    row.train_s, row.round_trip_s = report.train_s, None if x.identity.simulated else reply.round_trip_s
    row.stopped = report.stopped
    uncounted = report.stopped and report.drawn is None
    row.samples_used, row.epochs_done = None if uncounted else report.used, report.epochs_done
    if row.outcome is not Outcome.USED:
        return x
    seconds = reply.round_trip_s or report.train_s
    if (x.identity.simulated or report.virtual) and report.train_s is not None:
        # Without the time for which the message waited for a worker.
        seconds = report.train_s + (0.0 if report.virtual else overhead_s)
    if report.virtual and report.joules is not None:
        row.energy_j = report.joules
    if x.data is None and report.held and not row.baseline:
        row.samples = min(row.samples, report.held)  # it was planned without knowing its data
    epochs = 0 if row.baseline else row.epochs
    behaviour = x.behaviour if options.shards else x.behaviour.after(report, epochs, reply.examples)
    x = replace(x, behaviour=behaviour)
    if seconds is None:
        return x
    if row.baseline or not row.time_s:
        row.time_s = seconds
    if record.cycle_time_s and seconds > record.cycle_time_s:
        patience = x.patience.after(record.cycle, slow=True) if x.patience.slow else x.patience
    else:
        patience = Patience()
    return replace(x, estimate=_estimated(x, row, report, seconds, options), patience=patience)


def _estimated(x: Learner, row: LearnerRecord, report: Report, seconds: float, options: Options) -> Estimate:
    """Return the estimate after a task that took these seconds."""
    epochs, samples = _done(x, row, report)
    # Of a task that was cut without counting, one epoch is sure.
    work = report.drawn or (1 if report.stopped else epochs) * samples
    if not report.stopped and not x.behaviour.own_tasks:  # what was counted beyond the task is an evaluation
        work = min(work, _asked(x, row) * samples)
    learning = options.learning(declared=x.profile.costs is not None, stops=bool(x.behaviour.stops))
    if x.estimate is not None and learning is None and x.on_model_time:
        seconds = x.estimate.expected(work, samples)
    if x.estimate is None:
        first = options.learning(declared=False) or Estimation()
        estimate = Estimate.measured(work, seconds, first, report.train_s, report.joules)
    else:
        estimate = x.estimate.observe(work, samples, seconds, learning, joules=report.joules)
    if x.on_model_time:  # nothing of it may depend on a clock
        return estimate
    if report.stopped and row.stop_after_s is not None:
        return estimate.exchanged(max(seconds - row.stop_after_s, 0.0), stopped=True)
    return estimate.exchanged(max(seconds - (report.train_s or seconds), 0.0), stopped=False)


def _done(x: Learner, row: LearnerRecord, report: Report) -> tuple[float, float]:
    """Return the epochs and samples that a client did; where they were not counted, those of its task."""
    all_data = x.data if x.behaviour.chooses is False else None
    samples = report.used or all_data or (row.weight if row.baseline else row.samples)
    return report.epochs_done or _asked(x, row), samples


def _asked(x: Learner, row: LearnerRecord) -> int:
    """Return the epochs of a task, or the project's own where these are not followed."""
    own = row.baseline or x.behaviour.reads is False
    return x.behaviour.own_epochs or 1 if own else row.epochs


def _compare(
    record: CycleRecord, learned: Sequence[Learner], reports: Mapping[str, Report], options: Options
) -> None:
    """Compare the cycle with the project's own round with these learners, from which T was derived."""
    times = [x.own_s for x in learned]
    tasks = zip(learned, record.asked, strict=True)
    record.differs = any(not row.baseline and row.epochs * row.samples != x.own_work for x, row in tasks)
    if options.cycle_time_s is None and times and all(times):
        record.baseline_s = max(s for s in times if s is not None)
        record.work = _work(record, learned, reports)


def _work(record: CycleRecord, learned: Sequence[Learner], reports: Mapping[str, Report]) -> float | None:
    """Return the work of the used updates, relative to the project's own work; None: not known."""
    own = done = 0.0
    hidden = used = 0  # clients whose number of epochs is neither read nor counted can only be compared alike
    # One app runs on all clients, so one that never replied has the others' number of epochs.
    usual = median_high([x.behaviour.own_epochs or 0 for x in learned if x.behaviour.own_epochs] or [1])
    for x, row in zip(learned, record.asked, strict=True):
        b, report = x.behaviour, reports[row.node]
        if x.own_work is None or x.data is None:
            return None
        own += x.own_work if b.own_epochs else usual * x.data
        if row.outcome is not Outcome.USED:
            continue
        if report.drawn is None and (b.reads is None or b.chooses is None or report.stopped):
            return None
        if report.drawn is not None and b.reads is False and b.own_drawn is None:
            return None  # its own work was never counted
        hidden, used = hidden + (b.reads is False and b.own_epochs is None), used + 1
        epochs, samples = _done(x, row, report)
        done += epochs * samples
    return done / own if own and hidden in (0, used) else None


def _weighted(
    state: State,
    record: CycleRecord,
    good: Mapping[str, Arrays],
    came: Mapping[str, Reply],
    reports: Mapping[str, Report],
    claimed: Collection[str],
    model: Arrays,
    options: Options,
) -> tuple[list[Update], State]:
    """Return the updates with their weights; changes are scaled for FedNova's average and for `Robust`."""
    rows = [row for row in record.asked if row.node in good]
    works = []
    for row in rows:
        done = _done(state.of(row.node), row, reports[row.node])[0]
        # A false count gains nothing: at most the task counts.
        done = done if row.baseline else min(done, row.epochs)
        works.append(Work(done, row.weight, row.held, claimed=row.node in claimed))
    found = blend(options.average, works, options.robust.max_share)
    shrink = [(1.0, 1.0, 1.0)] * len(rows)
    if options.robust.max_norm_ratio is not None and rows:
        changes = [norms(good[row.node], model) for row in rows]
        # Only work that the server planned, and that counts, is a reason for a large update.
        planned = [0 if row.node in claimed else row.epochs for row in rows]
        effort = [epochs * w for epochs, w in zip(planned, found.weights, strict=True)]
        ratio = options.robust.max_norm_ratio
        shrink, usual = limited(changes, found.factors, effort, ratio, state.sizes)
        state = replace(state, sizes=(*state.sizes, usual)[-2:])
        for row, bounds in zip(rows, shrink, strict=True):
            row.bounded = f"update scaled to {min(bounds):.1%} of its size" if min(bounds) < 1 else ""
    record.local_steps = found.steps
    total, asked = sum(found.weights), sum(found.asked)
    for row, weight, wanted, share in zip(rows, found.weights, found.asked, found.shares, strict=True):
        row.share = share
        if weight < wanted:
            bounded = f"counts for {weight / total:.1%} of the weight instead of {wanted / asked:.1%}"
            row.bounded = "; ".join(filter(None, (row.bounded, bounded)))
    updates = []
    for row, weight, factor, bounds in zip(rows, found.weights, found.factors, shrink, strict=True):
        arrays = scaled(good[row.node], model, factor, bounds)
        updates.append(Update(row.node, weight, arrays, changed=arrays is not came[row.node].arrays))
    return updates, state


def _add_up(
    record: CycleRecord,
    learned: Sequence[Learner],
    reports: Mapping[str, Report],
    options: Options,
    waited_s: float | None,
) -> None:
    """Write the cycle's time and energy into the record."""
    asked, times = record.asked, [row.time_s for row in record.asked]
    record.total_samples = sum(row.weight if row.baseline else row.samples for row in asked)
    if record.status in ("baseline", "own work", "first tasks"):
        record.asked_samples = record.total_samples
        used = [row.time_s for row in asked if row.outcome is Outcome.USED]
        record.cycle_time_s = options.time_s or record.cycle_time_s or max(used, default=0.0)
    if record.status == "baseline":
        record.baseline_s = max((row.round_trip_s or row.train_s or 0.0 for row in asked), default=0.0)
    missing = any(row.outcome in (Outcome.FAILED, Outcome.LATE) for row in asked)
    record.makespan_s = max(record.cycle_time_s if missing else 0.0, *times) if times else 0.0
    record.energy_j = float(sum(row.energy_j for row in asked))
    virtual = [report.train_s or 0.0 for report in reports.values() if report.virtual]
    if learned and all(x.on_model_time for x in learned):
        waited_s = None
    elif virtual:
        waited_s = max(record.cycle_time_s if missing else 0.0, *virtual)
    record.waited_s = waited_s if learned else 0.0
