"""The error of a run in which no client does any work: each cause with its remedy."""

from __future__ import annotations

from collections.abc import Sequence

from flwr_mel._text import printable
from flwr_mel.records import LearnerRecord

_NAMED = 3
_MOD = (
    "Add the mod: ClientApp(mods=[mel_mod]), with `from flwr_mel.clientapp import mel_mod`, first in the "
    "list, so that probes do not reach other mods or the app. Give clients that are slow to start more time: "
    "MelStrategy(..., rounds=Rounds(probe_timeout_s=...))."
)
_CLIENT = "Check whether the client trains without MelStrategy. The client's log has the complete error."


class NoWork(RuntimeError):
    """No client does any work, so the model would stay untrained."""


def unable_text(reasons: Sequence[tuple[str, str]], remedy: str = _MOD) -> str:
    """Return the error text for a round in which no client can be given work.

    Parameters
    ----------
    reasons : sequence of pairs
        Label and reason.
    remedy : str
        What to do, if the reasons do not state it.
    """
    return _text("no client can be given work", reasons, remedy)


def failed_text(rows: Sequence[LearnerRecord]) -> str:
    """Return the error text for a round in which no update can be used.

    Parameters
    ----------
    rows : sequence of LearnerRecord
        The clients that had a task.
    """
    reasons = [(row.learner, f"{row.outcome}: {row.reason}") for row in rows]
    return _text("no update of any client could be used", reasons, _CLIENT)


def _text(what: str, reasons: Sequence[tuple[str, str]], remedy: str) -> str:
    """Group the clients by their reason."""
    groups: dict[str, list[str]] = {}
    for label, reason in reasons:
        groups.setdefault(printable(reason), []).append(printable(label))
    lines = [f"the model stays untrained: {what}:"]
    for reason, labels in groups.items():
        more = f" and {len(labels) - _NAMED} more" if len(labels) > _NAMED else ""
        lines.append(f"  {', '.join(labels[:_NAMED])}{more}: {reason}")
    return "\n".join([*lines, *([f"  {remedy}"] if remedy else [])])
