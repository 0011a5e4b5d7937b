"""What people should know of how their project follows its tasks: each kind is said once, with the remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flwr_mel import wire
from flwr_mel._text import printable
from flwr_mel.allocation.limiting import Limit
from flwr_mel.learning import Learning
from flwr_mel.orchestrator.cycle_time import MOST_EPOCHS
from flwr_mel.orchestrator.returned import Returned
from flwr_mel.orchestrator.settings import Settings
from flwr_mel.orchestrator.standing import flower_words
from flwr_mel.orchestrator.state import State
from flwr_mel.records import CycleRecord, LearnerRecord, Outcome

_NAMED = 3
_LONGEST = 300
#: Share of T.
_MUCH = 0.1
_READ = (
    "Let the client read them from the run config or the message's config under a usual name, such as "
    "local-epochs, name the key by MelStrategy(..., epochs_key=...), or use "
    "Assignment.from_message(message).epochs"
)
_OTHER_KEY = (
    "epochs_key={!r} names where they are laid: give the key that the client reads, or leave it out, and the "
    "usual names, such as local-epochs, are found"
)
_CHOOSE = (
    "One more line in the client lets slow devices use fewer: loader = "
    "Assignment.from_message(message).loader(loader), or rows = Assignment.from_message(message)"
    ".choose(len(data)); classic: Assignment.from_config(config)"
)


def remarks(state: State, settings: Settings, record: CycleRecord, back: Returned) -> dict[str, str]:
    """Return what is to be said after a cycle and was not said before, by its kind.

    Parameters
    ----------
    state : State
        With what was seen of the learners, and what was said already.
    settings : Settings
        What the user asks for.
    record : CycleRecord
        The cycle's.
    back : Returned
        What came back.
    """
    rows = [row for row in record.learners if row.outcome is Outcome.USED]
    own = {row.node: state.learners[row.node].own for row in rows}
    said = {row.node: back.reports.get(row.node, {}) for row in rows}
    where = _READ if settings.epochs_key is None else _OTHER_KEY.format(settings.epochs_key)
    found: Mapping[str, tuple[Sequence[LearnerRecord], str]] = {
        "no report": (
            [row for row in rows if row.free and own[row.node] is None],
            "no report came with the reply, so nothing can be measured and all goes on as before. Put "
            "mel_mod first in ClientApp(mods=[...]), and use the same version of flwr_mel on both sides",
        ),
        "epochs": (
            [
                row
                for row in rows
                if (x := own[row.node]) is not None and not x.steers_epochs and x.steers_samples
            ],
            "the app did not read the epochs of the task; what it does by itself is planned instead. "
            f"{where}",
        ),
        "unseen": (
            [
                row
                for row in rows
                if said[row.node].get(wire.EPOCHS_READ) == wire.UNKNOWN
                and ((x := own[row.node]) is None or x.steers_epochs)
            ],
            "the app copied its whole config, so that it cannot be seen whether it read its epochs; it is "
            "taken for granted that it did",
        ),
        "samples": (
            [
                row
                for row in rows
                if (x := own[row.node]) is not None and x.steers_epochs and not x.steers_samples
            ],
            "the app uses all its samples in every cycle, so that only epochs can be planned. " + _CHOOSE,
        ),
        "nothing": (
            [
                row
                for row in rows
                if (x := own[row.node]) is not None and not x.steers_epochs and not x.steers_samples
            ],
            "the app did not read the epochs of the task and uses all its samples, so that nothing can be "
            f"planned and its rounds are what they were. {where}. {_CHOOSE}",
        ),
        "batches": _batches(rows, said, back.claims),
        "max_epochs": (
            [row for row in rows if row.limited_by is Limit.MAX_EPOCHS and settings.max_epochs is None],
            f"more epochs would fit into the time, but nobody does more than {MOST_EPOCHS} times the "
            "project's own. MelStrategy(..., max_epochs=...) sets another limit",
        ),
        "flower": (
            rows if _left_out_of_plans(record, settings) else [],
            f"{flower_words(record)}, and plans here follow what learners declare. "
            "MelStrategy(..., learning=True) plans with what is measured",
        ),
        "problem": (
            [row for row in rows if said[row.node].get(wire.PROBLEM)],
            next(
                (printable(str(w[wire.PROBLEM]), _LONGEST) for w in said.values() if w.get(wire.PROBLEM)), ""
            ),
        ),
    }
    return {
        kind: f"{_names(who)}: {text}"
        for kind, (who, text) in found.items()
        if who and kind not in state.remarked
    }


def _batches(
    rows: Sequence[LearnerRecord], said: Mapping[str, Mapping[str, object]], claims: Mapping[str, float]
) -> tuple[Sequence[LearnerRecord], str]:
    """Find who reports batches as examples: where it was seen, else where it looks like it."""
    remedy = "Report len(loader.dataset), not len(loader)"
    seen = [row for row in rows if said[row.node].get(wire.SAMPLES_FROM) == wire.LOADER]
    if seen:
        (claim, used) = claims.get(seen[0].node, 0), seen[0].samples_used or 0
        return seen, (
            f"the app reports the batches of its loader as examples ({claim:g} of {used:g} samples). "
            f"What counts is the samples. {remedy}"
        )
    return (
        [row for row in rows if not row.free and claims.get(row.node, row.weight) < row.weight],
        "the app reports fewer examples than samples were used, perhaps batches. What counts is the "
        f"server's own number of samples. {remedy}",
    )


def _left_out_of_plans(record: CycleRecord, settings: Settings) -> bool:
    """Whether Flower takes much of a given T and no plan has it."""
    if settings.cycle_time_s is None or isinstance(settings.learning, Learning):
        return False
    return (record.flower_s or 0.0) > _MUCH * settings.cycle_time_s


def _names(rows: Sequence[LearnerRecord]) -> str:
    """Name a few learners and count the others."""
    named = ", ".join(printable(row.learner) for row in rows[:_NAMED])
    word = "learner" if len(rows) == 1 else "learners"
    return f"{word} {named}" + (f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else "")
