"""Settle a cycle: check the replies, weight them, learn from them, complete the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from flwr_mel._text import printable
from flwr_mel.cycle.average import Work, blend
from flwr_mel.cycle.errors import NoWork, failed_text
from flwr_mel.cycle.estimate import Estimate
from flwr_mel.cycle.measure import Report, Words, measurement, whole
from flwr_mel.cycle.messages import advised
from flwr_mel.cycle.options import Options
from flwr_mel.cycle.state import Learner, State, with_answers
from flwr_mel.cycle.updates import Arrays, Form, Rejected, agree, conform, limited, norms, same, scaled
from flwr_mel.records import CycleRecord, LearnerRecord, Outcome

# A learner does the same work whatever its task is if over so many tasks the task varied by this factor, and
# the measured time or the counted samples by less than this power of it. Counts are exact, so less is enough.
_TASKS, _VARIED, _HARDLY_VARIED = 3, 3.0, 0.15
_COUNTS, _COUNTS_VARIED = 2, 1.3
# The first time of a client does not count if its second task is faster by this factor than it suggests.
_COLD_START = 2.0
# Counted epochs that differ more than this from the task's are not the task's. One more may be an evaluation.
_OTHER_EPOCHS = 1.5
# A client waited for the worker of another if it began later than the first by more than this share of the
# longest task, and within this share of the longest task after the other ended. Shorter tasks say nothing.
_LATE, _HANDOVER, _SHORTEST_S = 0.5, 0.2, 0.5


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
    """

    arrays: Arrays | None = None
    examples: object = None
    words: Words = field(default_factory=dict)
    round_trip_s: float | None = None
    error: str = ""


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
    replies = {row.node: replies[row.node] for row in record.asked if row.node in replies}
    came = [x.arrays for x in replies.values() if x.arrays is not None]
    agreed = agree(model, came, len(record.asked), state.agreed)
    good = _checked(record, replies, agreed.update, model, options)
    times = _times(replies)
    # In the first round the processes of the clients are only starting.
    overhead_s = _overhead_s(times) if record.cycle > 1 else 0.0
    learned = [
        _learned(state.of(row.node), row, replies.get(row.node), options, overhead_s) for row in record.asked
    ]
    rested = [_rested(state.of(row.node), options) for row in record.learners if not row.asked]
    state = state.with_learners([*learned, *rested])
    if record.baseline_s and learned:
        record.baseline_s = max(x.own_s for x in learned)
        record.work = _work(learned, record.asked)
    updates, state = _weighted(state, record, good, replies, model, options)
    virtual = bool(learned) and all(x.simulated and x.costs is not None for x in learned)
    record.waited_s = None if virtual else waited_s
    _add_up(record, options)
    # After `_learned`: the plan rests on what was reported before.
    state = with_answers(state, options, {node: reply.words for node, reply in replies.items()})
    state = advised(
        state,
        options,
        record,
        unchanged=[node for node, arrays in good.items() if same(arrays, model)],
        waiting=[] if virtual else [node for node in _in_turns(times) if state.of(node).simulated],
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
    failed = [row for row in record.asked if row.outcome in (Outcome.FAILED, Outcome.REJECTED)]
    if failed and len(failed) == len(record.asked) and not state.trained:
        raise NoWork(failed_text(failed))
    return state, record, updates


def _checked(
    record: CycleRecord, replies: Mapping[str, Reply], expected: Form, model: Arrays, options: Options
) -> dict[str, Arrays]:
    """Write outcome and weight of each reply into its row; return the arrays that can be averaged."""
    good: dict[str, Arrays] = {}
    for row in record.asked:
        reply = replies.get(row.node)
        if reply is None:
            row.outcome, row.reason = Outcome.LATE, "no reply in time"
        elif reply.error or reply.arrays is None:
            row.outcome, row.reason = Outcome.FAILED, printable(reply.error or "its reply has no arrays", 300)
        else:
            try:
                arrays = conform(reply.arrays, expected, model)
                row.weight = _weight(row, reply, options)
            except Rejected as rejected:
                row.outcome, row.reason = Outcome.REJECTED, str(rejected)
            else:
                row.outcome, good[row.node] = Outcome.USED, arrays
    return good


def _weight(row: LearnerRecord, reply: Reply, options: Options) -> int:
    """Return the samples that an update counts for: d_k, or fewer if fewer were used.

    In a baseline round it is what the app reports, as without us.
    """
    claimed = measurement(reply.examples)
    if reply.examples is not None and not claimed:
        raise Rejected(f"its number of examples cannot be {reply.examples!r}")
    if row.baseline:
        weight = max(round(claimed or 0), 1)
    else:
        used = Report.parse(reply.words).used if options.shards is None else None
        weight = row.samples if used is None else min(used, row.samples)
    return weight if options.robust.max_samples is None else min(weight, options.robust.max_samples)


def _times(replies: Mapping[str, Reply]) -> dict[str, tuple[float, float]]:
    """Return by node when the app began and ended, in seconds after the tasks were sent."""
    pairs = {node: (x.round_trip_s, Report.parse(x.words).train_s) for node, x in replies.items()}
    return {node: (end - took, end) for node, (end, took) in pairs.items() if end and took and took <= end}


def _overhead_s(times: Mapping[str, tuple[float, float]]) -> float:
    """Return what Flower's simulation adds to the time in the app of a client that waits for no other."""
    return min((begin for begin, _ in times.values()), default=0.0)


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


def _learned(
    x: Learner, row: LearnerRecord, reply: Reply | None, options: Options, overhead_s: float
) -> Learner:
    """Return what is known about a learner after its task; complete its row."""
    learning = options.learning(declared=x.costs is not None)
    if reply is None:
        return replace(x, estimate=None if x.estimate is None else x.estimate.missed(learning))
    report = Report.parse(reply.words)
    row.train_s, row.round_trip_s = report.train_s, None if x.simulated else reply.round_trip_s
    row.samples_used, row.epochs_done = report.used, report.epochs_done
    if row.outcome is not Outcome.USED:
        return x
    seconds = reply.round_trip_s or report.train_s
    if x.simulated and report.train_s is not None:
        seconds = report.train_s + overhead_s  # without the time for which the message waited for a worker
    if options.shards is None:
        x = _followed(x, row, report, reply.examples)
    if seconds is None:
        return x
    all_data = x.held if x.chooses is False else None
    used = report.used or all_data or (row.weight if row.baseline else row.samples)
    epochs = x.own_epochs or 1 if row.baseline or x.reads is False else row.epochs
    if not options.best or report.drawn is not None:  # short tasks mostly take what all tasks take
        x = _watched(x, epochs * used, report.drawn, report.train_s or seconds)
    if row.baseline:
        row.time_s = row.time_s or seconds
        x = replace(x, baseline_s=seconds if x.baseline_s is None else (x.baseline_s + seconds) / 2)
    if x.estimate is None or _cold_start(x, epochs, used, seconds):
        learning = options.learning(declared=False)
        first = Estimate.measured(epochs, used, seconds, learning, train_s=report.train_s)  # type: ignore[arg-type]
        own_s = first.expected(x.own_epochs or 1, x.data or used)
        return replace(x, estimate=first, baseline_s=x.baseline_s and min(x.baseline_s, own_s))
    return replace(x, estimate=x.estimate.observe(epochs, used, seconds, learning, joules=report.joules))


def _cold_start(x: Learner, epochs: float, samples: float, seconds: float) -> bool:
    """Whether the second task shows that the first one mostly loaded libraries and data."""
    e = x.estimate
    if e is None or e.seen or x.costs is not None:
        return False
    return _COLD_START * seconds < e.expected(epochs, samples)


def _rested(x: Learner, options: Options) -> Learner:
    """Return a learner after a cycle without a task: what counts against it fades."""
    learning = options.learning(declared=x.costs is not None)
    return x if x.estimate is None else replace(x, estimate=x.estimate.rested(learning))


def _followed(x: Learner, row: LearnerRecord, report: Report, examples: object) -> Learner:
    """Return a learner with what its app follows (epochs, samples), as reported by its mod."""
    if report.train_s is None:  # there was no mod
        return x
    reads = x.reads if report.read is None or x.reads is False else report.read
    own, fixed, done = report.own_epochs or x.own_epochs, x.fixed, report.epochs_done
    if done is not None and not row.baseline and reads is not False:
        most = max(row.epochs * _OTHER_EPOCHS, row.epochs + 1)
        if not row.epochs / _OTHER_EPOCHS <= done <= most:
            does_own = own is not None and abs(done - own) <= 0.1 * own
            reads, fixed = (False, fixed) if does_own else (reads, True)
    if done is not None and (reads is False or (row.baseline and own is None)):
        own = max(round(done), 1)
    return replace(
        x,
        held=report.held or x.held or report.used or whole(examples),
        own_epochs=own,
        chooses=report.used is not None,
        reads=reads,
        fixed=fixed,
    )


def _watched(x: Learner, work: float, drawn: float | None, seconds: float) -> Learner:
    """Return a learner with its first and latest tasks; if these differ and results do not, it is fixed."""
    counted = drawn is not None
    latest = (*x.seen[1:], (float(work), drawn or seconds))[1 - _TASKS :]
    seen = (*x.seen[:1], *latest)
    small, large = min(seen), max(seen)
    task, result = large[0] / small[0], large[1] / small[1]
    enough = len(seen) >= (_COUNTS if counted else _TASKS)
    varied = task >= (_COUNTS_VARIED if counted else _VARIED)
    same = enough and varied and result <= task**_HARDLY_VARIED and (counted or x.costs is None)
    return replace(x, seen=seen, fixed=x.fixed or same)


def _work(learners: Sequence[Learner], rows: Sequence[LearnerRecord]) -> float | None:
    """Return the work of the used updates, relative to the project's own work; None: not known."""
    own = sum((x.own_epochs or 1) * (x.data or 0) for x in learners)
    done = 0.0
    for x, row in zip(learners, rows, strict=True):
        if row.outcome is Outcome.USED:
            free = row.baseline or x.fixed
            epochs = x.own_epochs or 1 if free or x.reads is False else row.epochs
            samples = x.data or 0 if free or x.chooses is False else row.samples
            done += (row.epochs_done or epochs) * min(row.samples_used or samples, samples)
    return done / own if own else None


def _weighted(
    state: State,
    record: CycleRecord,
    good: Mapping[str, Arrays],
    replies: Mapping[str, Reply],
    model: Arrays,
    options: Options,
) -> tuple[list[Update], State]:
    """Return the updates with their weights; changes are scaled for FedNova's average and for `Robust`."""
    rows = [row for row in record.asked if row.node in good]
    works = []
    for row in rows:
        done: float = row.epochs_done or row.epochs or state.of(row.node).own_epochs or 1
        # A false count gains nothing: at most the task counts.
        done = done if row.baseline else min(done, row.epochs)
        works.append(Work(done, row.weight, row.held, claimed=row.baseline))
    found = blend(options.average, works, options.robust.max_share)
    shrink = [(1.0, 1.0, 1.0)] * len(rows)
    if options.robust.max_norm_ratio is not None and rows:
        changes = [norms(good[row.node], model) for row in rows]
        # Only work that the server planned, and that counts, is a reason for a large update.
        effort = [row.epochs * w for row, w in zip(rows, found.weights, strict=True)]
        ratio = options.robust.max_norm_ratio
        shrink, usual = limited(changes, found.factors, effort, ratio, state.sizes)
        state = replace(state, sizes=(*state.sizes, usual)[-2:])
        for row, bounds in zip(rows, shrink, strict=True):
            row.bounded = f"update scaled to {min(bounds):.1%} of its size" if min(bounds) < 1 else ""
    total, asked = sum(found.weights), sum(found.asked)
    for row, weight, wanted, share in zip(rows, found.weights, found.asked, found.shares, strict=True):
        row.share = share
        if weight < wanted:
            bounded = f"counts for {weight / total:.1%} of the weight instead of {wanted / asked:.1%}"
            row.bounded = "; ".join(filter(None, (row.bounded, bounded)))
    updates = []
    for row, weight, factor, bounds in zip(rows, found.weights, found.factors, shrink, strict=True):
        arrays = scaled(good[row.node], model, factor, bounds)
        updates.append(Update(row.node, weight, arrays, changed=arrays is not replies[row.node].arrays))
    return updates, state


def _add_up(record: CycleRecord, options: Options) -> None:
    """Write the cycle's time and energy into the record."""
    asked = record.asked
    if record.status in ("baseline", "own work"):
        record.total_samples = record.asked_samples = sum(row.weight for row in asked)
    if record.status == "baseline":
        times = [row.round_trip_s or row.train_s or 0.0 for row in asked]
        record.cycle_time_s = options.time_s or max(times, default=0.0)
        record.baseline_s = max(times, default=0.0)
    missing = any(row.outcome in (Outcome.FAILED, Outcome.LATE) for row in asked)
    planned = max((row.time_s for row in asked), default=0.0)
    record.makespan_s = max(record.cycle_time_s, planned) if missing else planned
    record.energy_j = float(sum(row.energy_j for row in asked))
