"""How people hear of a cycle: Flower's log, and callbacks that take its record."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from flwr_mel.records import Callback, CycleRecord

# Below Flower's own logger, so that its console shows what we say.
log = logging.getLogger("flwr.mel")

#: Larger fleets are explained at level DEBUG.
_EXPLAINED = 50


def explain(record: CycleRecord) -> None:
    """Log what everybody was given and why; of a large fleet at level DEBUG.

    Parameters
    ----------
    record : CycleRecord
        From `plan`.
    """
    level = logging.INFO if len(record.learners) <= _EXPLAINED else logging.DEBUG
    for row in record.learners:
        log.log(level, "cycle %d, %s", record.cycle, row.task_words())


def deliver(record: CycleRecord, callbacks: Sequence[Callback]) -> list[str]:
    """Hand a record on; return what failed. Training goes on whatever a callback does.

    Parameters
    ----------
    record : CycleRecord
        Finished. Those who hear of it after a callback that fails find that in its notes.
    callbacks : sequence of callables
        Who is told, one after the other.
    """
    failed = []
    for callback in callbacks:
        try:
            callback(record)
        except Exception as error:
            name = getattr(callback, "__qualname__", type(callback).__qualname__)
            text = f"callback {name} failed in cycle {record.cycle}: {type(error).__name__}: {error}"
            record.notes.append(text)
            failed.append(text)
            log.exception("%s", text, exc_info=not isinstance(error, OSError))
    return failed
