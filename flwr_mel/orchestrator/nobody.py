"""The error of a run in which nobody works from the beginning: each cause with its remedy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flwr_mel._text import printable
from flwr_mel.orchestrator.doubts import Why
from flwr_mel.orchestrator.state import LearnerState
from flwr_mel.records import LearnerRecord

_NAMED = 3
_REMEDIES = {
    Why.UNHEARD: "It has not answered yet: give it longer by MelStrategy(..., probe_timeout_s=...).",
    Why.UNANSWERED: "It is not there any more, or slow to start: look at its log, or give it longer by "
    "MelStrategy(..., probe_timeout_s=...).",
    Why.SILENT: "Write ClientApp(mods=[mel_mod]), with `from flwr_mel.clientapp import mel_mod`, the mod "
    "first in the list, so that the question does not reach other mods or the app. Devices that are slow "
    "to start get more time by MelStrategy(..., probe_timeout_s=...).",
    Why.UNTOLD: "Leave out learning=False, so that it is measured, or give MelMod(...) or the node config "
    "what the device can do.",
    Why.PROBLEM: "Mend what MelMod(...) is given, or leave it out: then the learner is measured.",
    Why.REFUSED: "Mend these values, or leave them out: then the learner is measured.",
}
#: In every cycle but the first: with the classic API nobody tells when the last one is over.
STILL_UNTRAINED = "nobody's update was used so far: the model is as it began"


class NobodyWorks(RuntimeError):
    """In the first cycle nobody works, so that the model would stay untrained."""


def no_one_can(learners: Sequence[LearnerState]) -> str:
    """Say why nobody can be given work.

    Parameters
    ----------
    learners : sequence of LearnerState
        Each with a doubt.
    """
    kinds: dict[str, tuple[list[str], str]] = {}
    for x in learners:
        if x.doubt is not None:
            remedy = _REMEDIES.get(x.doubt.why, "")
            kinds.setdefault(str(x.doubt), ([], remedy))[0].append(x.name)
    return _text("in the first cycle nobody can be given work", kinds.items())


def all_failed(rows: Sequence[LearnerRecord]) -> str:
    """Say why nobody's work can be used.

    Parameters
    ----------
    rows : sequence of LearnerRecord
        Each with what went wrong.
    """
    kinds: dict[str, tuple[list[str], str]] = {}
    for row in rows:
        remedy = "Does the same client train without MelStrategy? Its own log has the whole error."
        kinds.setdefault(f"{row.outcome}: {row.reason}", ([], remedy))[0].append(row.learner)
    return _text("in the first cycle everybody failed", kinds.items())


def never_used(rows: Sequence[LearnerRecord]) -> str:
    """Say why the model is still untrained at the end.

    Parameters
    ----------
    rows : sequence of LearnerRecord
        Of the last cycle.
    """
    kinds: dict[str, tuple[list[str], str]] = {}
    for row in rows:
        kinds.setdefault(f"{row.outcome}: {row.reason}", ([], ""))[0].append(row.learner)
    return _text("in no cycle was anybody's update used. In the last one", kinds.items())


def _text(what: str, kinds: Iterable[tuple[str, tuple[list[str], str]]]) -> str:
    lines = [f"the model stays untrained: {what}:"]
    remedies = []
    for why, (names, remedy) in kinds:
        named = ", ".join(printable(name) for name in names[:_NAMED])
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        lines.append(f"  {named}{more}: {why}")
        if remedy not in remedies:
            remedies.append(remedy)
    return "\n".join(lines + [f"  {remedy}" for remedy in remedies if remedy])
