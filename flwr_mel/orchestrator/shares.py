"""What share each learner's data have in the model, and a word when it is far below that in all data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flwr_mel._slots import changed
from flwr_mel._validate import MAX_COUNT, number
from flwr_mel.orchestrator.averaging import FEWEST, Average, Blend, Work, blend, bounded_share
from flwr_mel.orchestrator.problems import held_by
from flwr_mel.orchestrator.settings import Mode, Settings, Stragglers
from flwr_mel.orchestrator.state import LearnerState, State
from flwr_mel.records import CycleRecord, Echo, LearnerRecord, Outcome

#: Data are told to be neglected when their share in the model is less than this part of their share in all
#: data, in the mean of this many cycles at least: one cycle without a task is nothing to speak of.
NEGLECTED, CYCLES = 0.1, 3
_NAMED = 5
# A share that is bounded by less is not spoken of.
_WORTH_A_WORD = 1e-3
#: Learners may come under ever new names.
_MOST_TOLD = 1000


def held_of(source: LearnerState | object, settings: Settings) -> int | None:
    """Return n_k, as far as is known and allowed to count; None in parallelized mode.

    Parameters
    ----------
    source : LearnerState or object
        A learner, or what it says it holds.
    settings : Settings
        `max_samples` bounds the word of a learner that boasts.
    """
    if isinstance(source, LearnerState):
        source = held_by(source)
    if source is None or settings.mode is Mode.PARALLELIZED:
        return None
    try:
        n = int(number("samples", source, least=0))
    except ValueError:
        return None
    return min(n, settings.max_samples or MAX_COUNT)


def blended(
    cycle: int,
    used: Sequence[LearnerRecord],
    moved: Sequence[LearnerRecord],
    settings: Settings,
    fleet: int = 0,
    echoes: Sequence[Echo] = (),
) -> Blend:
    """Return how the updates of these learners are blended.

    Parameters
    ----------
    cycle : int
        In which.
    used, moved : sequences of LearnerRecord
        Whose updates of this cycle's tasks are used, and then whose of earlier ones.
    settings : Settings
        The rule.
    fleet : int
        How many learners there are: that few of them have reported is no reason to believe these more.
    echoes : sequence of Echo
        Which updates count again, after the others.
    """
    # What was done counts, as far as it is known: an app may have done other epochs than it was told.
    works = [Work(row.epochs_done or row.epochs, row.weight, row.held, 1, row.learner) for row in used]
    works += [
        Work(row.moved_epochs, row.moved_weight, row.held, cycle - row.moved_from + 1, row.learner)
        for row in moved
    ]
    works += [Work(x.epochs, x.weight, x.held, x.cycles, x.learner) for x in echoes]
    learners = max(len({x.learner for x in works}), min(fleet, FEWEST))
    return blend(settings.average, works, bounded_share(settings.max_share, learners))


def shared(record: CycleRecord, settings: Settings) -> CycleRecord:
    """Return a cycle's record with the shares of those whose updates are used.

    Parameters
    ----------
    record : CycleRecord
        After the replies.
    settings : Settings
        The rule.
    """
    used = [row for row in record.learners if row.outcome is Outcome.USED]
    moved = [row for row in record.learners if row.moved_weight]
    found = blended(record.cycle, used, moved, settings, len(record.learners), record.echoes)
    # By name: of a learner that left there is no node, and its updates may count still.
    names = [row.learner for row in (*used, *moved)] + [x.learner for x in record.echoes]
    shares: dict[str, float] = {}
    for name, share in zip(names, found.shares, strict=True):
        shares[name] = shares.get(name, 0.0) + share
    rows = [changed(row, share=shares.get(row.learner, 0.0)) for row in record.learners]
    first = len(used) + len(moved)
    echoes = [changed(x, share=s) for x, s in zip(record.echoes, found.shares[first:], strict=True)]
    rows = _bounded(rows, names, found) if any(found.bounded) else rows
    return replace(record, learners=rows, echoes=echoes)


def _bounded(rows: Sequence[LearnerRecord], names: Sequence[str], found: Blend) -> list[LearnerRecord]:
    """Put on record whose weight is bounded, and what its share would have been."""
    total, asked = sum(found.weights), sum(found.asked)
    mine: dict[str, list[float]] = {}
    for name, weight, more, cut in zip(names, found.weights, found.asked, found.bounded, strict=True):
        sums = mine.setdefault(name, [0.0, 0.0, False])
        mine[name] = [sums[0] + weight / total, sums[1] + more / asked, sums[2] or cut]
    words = {
        name: f"counts for {share:.1%} of the weight instead of {more:.1%}"
        for name, (share, more, cut) in mine.items()
        if cut and more - share > _WORTH_A_WORD
    }
    return [
        replace(row, bounded="; ".join(filter(None, (row.bounded, words[row.learner]))))
        if row.learner in words
        else row
        for row in rows
    ]


def watch_shares(state: State, settings: Settings, record: CycleRecord) -> State:
    """Return the state with this cycle's shares; once, when somebody's data are neglected, with a note of it.

    Parameters
    ----------
    state : State
        With which the cycle was planned.
    settings : Settings
        The rule.
    record : CycleRecord
        With shares.
    """
    new = state.copy()
    unknown = [row.learner for row in record.learners if row.share and row.held is None]
    if unknown and settings.average is Average.NOVA_HELD and "held" not in new.told:
        new.told.add("held")
        new.notes.append(
            f"what {_names(unknown)} hold is not known, so what they used counts: let them say it "
            "(mel-max-samples), or choose samples with task.choose or task.loader"
        )
    for row in record.learners:
        if row.bounded and (key := f"bounded {row.learner}") not in new.told and len(new.told) < _MOST_TOLD:
            new.told.add(key)
            new.notes.append(f"{row.learner} {row.bounded} (max_share and max_norm_ratio bound that)")
    known = [row for row in record.learners if row.held and row.node in state.learners]
    data, model = sum(row.held or 0 for row in known), sum(row.share for row in known)
    if not model:
        return new
    for row in known:
        share, due, cycles = state.learners[row.node].part
        part = (share + row.share / model, due + (row.held or 0) / data, cycles + 1)
        new.learners[row.node] = changed(state.learners[row.node], part=part)
    _complain(new, settings, [row.node for row in known])
    return new


def _complain(new: State, settings: Settings, nodes: Sequence[str]) -> None:
    some = [new.learners[node] for node in nodes]
    low = [x for x in some if x.part[2] >= CYCLES and x.part[0] < NEGLECTED * x.part[1]]
    if not low or "share" in new.told:
        return
    new.told.add("share")
    share, due = (sum(x.part[i] / x.part[2] for x in low) for i in (0, 1))
    remedies = ["give them more time (cycle_time_s) or a least batch (min_samples)"]
    if settings.stragglers is not Stragglers.SPAN:
        remedies.insert(0, "let them work across cycles (stragglers='span')")
    if settings.average is not Average.NOVA_HELD and settings.mode is Mode.FEDERATED:
        remedies.insert(0, "average by what learners hold (average='nova-held')")
    new.notes.append(
        f"the data of {_names([x.name for x in low])} are {due:.1%} of all and count for {share:.1%} in the "
        f"model, so what only they have may stay unlearnt: {', or '.join(remedies)}"
    )


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
