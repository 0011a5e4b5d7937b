"""The log lines of a training: one line per round, a summary, and advice, each kind once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from statistics import mean

from flwr_mel._text import printable
from flwr_mel.cycle.learner import Learner
from flwr_mel.cycle.options import Options
from flwr_mel.cycle.state import State
from flwr_mel.records import CycleRecord, LearnerRecord, Outcome

#: Kinds of advice: what planning notes, and clients that cannot train at the same time.
PLAN, TURNS = "plan", "turns"
#: Noted once with cycle_time_s="best".
SHORT_ROUNDS = (
    "rounds are short from now on, so num_rounds rounds do less work in total. Set a large num_rounds, and "
    "stop by time, energy or accuracy: callbacks=[Stopping(time_s=...)]"
)
#: Logged once with cycle_time_s="best" where it applies.
STATISTICS = (
    "the strategy also updates the running statistics of BatchNorm as if they were weights, which can ruin "
    'the model over many rounds. Average them instead: see "Choosing the round time" in docs/GUIDE.md'
)
# Rounds before this one are not typical: processes start and costs are being measured.
_FROM_CYCLE = 3
# Clients are equally fast if their times per sample differ by less than this factor.
_EQUAL = 1.5
# Rounds are shorter if they take less than this part of the baseline round.
_SHORTER = 0.95
# Shorter baseline rounds mostly take Flower's own time, so that comparisons say nothing.
_COMPARABLE_S = 0.5
# The summary is about this many rounds at the end: the plans of the first rounds are still changing.
_LAST = 3

_READ = (
    "Let the client read its epochs from the run config or the message under a common name such as "
    "local-epochs, name the key with Rounds(epochs_key=...), or use Assignment.from_message(message).epochs"
)
_CHOOSE = (
    "With one more line in the client, slow devices use fewer samples: loader = "
    "Assignment.from_message(message).loader(loader), or rows = "
    "Assignment.from_message(message).choose(len(data)); classic API: Assignment.from_config(config)"
)
_REPORT = (
    "the reply has no report, so the work cannot be measured and is not planned. Put mel_mod first in "
    "ClientApp(mods=[...])"
)
_EPOCHS = f"the app does not follow its epochs, so the project's own number of epochs is planned. {_READ}"
_SAMPLES = "the app uses all its samples in every round, so samples are not planned"
_NOT_BEST = ", and cycle_time_s='best' works like the default"
_OWN_WORK = (
    "the samples that were counted are not those of the task (max_steps, or a fixed number of epochs?), so "
    f"the plan assumes the project's own work. {_READ}"
)
_NO_JOULES = (
    "the energy limit has no effect, because no energy costs are known. Declare mel-g2, mel-g1 and mel-g0 "
    "with mel-c2, mel-c1 and mel-c0, or report mel-train-joules"
)
_UNCHANGED = (
    "the app returned exactly the arrays that it received, so nothing was trained. Return the weights of the "
    "trained model"
)
_TURNS = (
    "Flower's simulation has too few CPUs to train all clients at the same time, so rounds take longer than "
    'planned. Start it with --federation-config "num-supernodes={} client-resources-num-cpus=1 '
    'init-args-num-cpus={}"'
)


def round_line(record: CycleRecord, *, in_turns: bool = False) -> str:
    """Return the log line of a round.

    Parameters
    ----------
    record : CycleRecord
        Settled.
    in_turns : bool
        Whether clients wait for one another, so that the baseline's time is not that of its round.
    """
    unplanned = record.status in ("baseline", "first tasks", "skipped")
    times = record.status if unplanned else f"{record.makespan_s:.3g} s planned"
    if record.waited_s is not None:
        times += f", {record.waited_s:.3g} s actual"
    used, skipped, late = (record.count(x) for x in (Outcome.USED, Outcome.SKIPPED, Outcome.LATE))
    clients = f"{used} of {len(record.learners)} clients used"
    clients += f", {skipped} skipped" if skipped else ""
    clients += f", {late} late" if late else ""
    work = "" if in_turns or not _comparable(record) else f"; {_compared(record)}"
    return f"round {record.cycle}: {times}; {clients}{work}"


def _comparable(record: CycleRecord) -> bool:
    """Whether a round can be compared with the baseline round."""
    long = (record.baseline_s or 0.0) >= _COMPARABLE_S
    return long and record.status != "baseline" and record.waited_s is not None


def _compared(record: CycleRecord) -> str:
    """Return time and work of a round, relative to the baseline round."""
    baseline_s = record.baseline_s or 0.0
    time = f"{(record.waited_s or 0.0) / baseline_s:.0%} of the baseline's {baseline_s:.3g} s"
    work = "work not known" if record.work is None else f"{record.work:.0%} of its work"
    return f"{time}, {work}"


def final_line(records: Sequence[CycleRecord], *, in_turns: bool = False) -> str:
    """Return what planning gained in the last rounds over the baseline round; "" without a baseline round.

    Parameters
    ----------
    records : sequence of CycleRecord
        Of the rounds of this run.
    in_turns : bool
        As for `round_line`.
    """
    planned = [record for record in records if _comparable(record)][-_LAST:]
    if not planned:
        return ""
    actual = mean(r.waited_s or 0.0 for r in planned)
    before = mean(r.baseline_s or 0.0 for r in planned)
    if in_turns:
        times = f"{actual:.3g} s, {mean(r.makespan_s for r in planned):.3g} s planned"
        return f"rounds took {times}: clients trained in turns, see the warning about CPUs"
    if actual < _SHORTER * before and any(r.differs for r in planned):
        known = [r.work for r in planned if r.work is not None]
        work = f", with {mean(known):.0%} of the work" if known else ""
        return f"rounds took {actual:.3g} s instead of {before:.3g} s{work}"
    return f"no gain: {_no_gain(records)}. Rounds took {actual:.3g} s, the baseline round {before:.3g} s"


def _no_gain(records: Sequence[CycleRecord]) -> str:
    """Return why rounds are as long as without planning."""
    rows = [row for record in records for row in record.asked if row.outcome is Outcome.USED]
    if all(row.baseline for row in records[-1].asked) and records[-1].status == "own work":
        return "clients do not follow their tasks (see the warnings above)"
    work = [(row.samples_used or row.weight) * (row.epochs_done or row.epochs or 1) for row in rows]
    paces = [row.time_s / w for row, w in zip(rows, work, strict=True) if row.time_s and w]
    if paces and max(paces) < _EQUAL * min(paces):
        return "all clients are equally fast"
    return "the same work does not fit into less time"


def advised(
    state: State,
    options: Options,
    record: CycleRecord,
    *,
    unchanged: Collection[str] = (),
    waiting: Collection[str] = (),
) -> State:
    """Add advice to the notes of a settled record; return the state that remembers which advice was given.

    Parameters
    ----------
    state : State
        After the round.
    options : Options
        What the user asks for.
    record : CycleRecord
        Gets the notes.
    unchanged : collection of str
        Nodes that returned the model unchanged.
    waiting : collection of str
        Nodes that began only after others had finished.
    """
    rows = [row for row in record.asked if row.outcome is Outcome.USED]
    clients = {row.node: state.of(row.node) for row in rows}

    def those(applies: Callable[[Learner], object]) -> list[LearnerRecord]:
        return [row for row in rows if applies(clients[row.node])]

    problems = those(lambda x: x.identity.problem)
    late_enough = record.cycle >= _FROM_CYCLE
    found = {
        "report": ([row for row in rows if row.baseline and row.train_s is None], _REPORT),
        "unchanged": ([row for row in rows if row.node in unchanged], _UNCHANGED),
        "own work": (those(lambda x: x.behaviour.own_tasks), _OWN_WORK),
        "bounded": (
            [row for row in rows if row.bounded],
            "the update was limited by Robust(...); see the records",
        ),
        "problem": (problems, clients[problems[0].node].identity.problem if problems else ""),
        "joules": (those(_no_joules), _NO_JOULES),
        TURNS: (
            [row for row in rows if late_enough and row.node in waiting],
            _TURNS.format(len(record.learners), len(record.asked)),
        ),
    }
    if options.shards is None:
        found["epochs"] = those(lambda x: x.behaviour.reads is False), _EPOCHS
        found["samples"] = (
            those(lambda x: x.behaviour.chooses is False),
            f"{_SAMPLES}{_NOT_BEST if options.best else ''}. {_CHOOSE}",
        )
    new = {kind: x for kind, x in found.items() if x[0] and kind not in state.warned}
    record.notes += [f"{_names(some, rows)}: {text}" for some, text in new.values()]
    return replace(state, warned=state.warned | set(new)) if new else state


def _no_joules(x: Learner) -> bool:
    """Whether a client declares an energy limit that cannot be applied."""
    e = x.estimate
    return x.profile.energy_limit_j is not None and e is not None and not any(e.costs()[3:])


def _names(some: Sequence[LearnerRecord], rows: Sequence[LearnerRecord]) -> str:
    """Name a few clients and count the others."""
    if len(some) == len(rows) > 1:
        return "all clients"
    named = ", ".join(printable(row.learner) for row in some[:3])
    word = "client" if len(some) == 1 else "clients"
    return f"{word} {named}" + (f" and {len(some) - 3} more" if len(some) > 3 else "")
