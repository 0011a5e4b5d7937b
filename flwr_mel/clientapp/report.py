"""What the mod says of a training when it is done."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from flwr_mel import wire
from flwr_mel.clientapp.drawn import samples_meant
from flwr_mel.clientapp.watch import Watch

LONGEST = 300
_EXAMPLES = ("num-examples", "num_examples")


def report_of(watch: Watch, seconds: float, examples: float | None) -> dict[str, Any]:
    """Put what was seen into the words of the wire; what is not known is left out.

    Parameters
    ----------
    watch : Watch
        What was seen of the call.
    seconds : float
        In the app.
    examples : float, optional
        The app's own num-examples.
    """
    words: dict[str, Any] = {wire.TRAIN_SECONDS: seconds, wire.EPOCHS_READ: watch.read}
    found = watch.own
    used: float | None
    used, source = watch.used, wire.TASK
    if used is None:
        used, source = samples_meant(watch.loaders, examples), wire.LOADER
    if used is None:
        used, source = examples, wire.REPLY
    optional = {
        wire.EPOCHS_KEY: found[0] if found else None,
        wire.OWN_EPOCHS: watch.own_epochs,
        wire.EPOCHS_DONE: watch.done,
        wire.SAMPLES_HELD: watch.held,
        wire.SAMPLES_USED: used,
    }
    words |= {key: value for key, value in optional.items() if value is not None}
    if wire.SAMPLES_USED in words:
        words[wire.SAMPLES_FROM] = source
    return words


def examples_in(records: Iterable[Mapping[str, Any]]) -> float | None:
    """Return the number of examples that the app reports, as it reports it.

    Parameters
    ----------
    records : iterable of mappings
        The MetricRecords of the reply.
    """
    values = (record[key] for record in records for key in _EXAMPLES if key in record)
    return next((value for value in values if isinstance(value, int | float)), None)


def simulated() -> bool:
    """Whether this runs in Flower's simulation engine: inside an actor of Ray."""
    ray = sys.modules.get("ray")
    try:
        return ray is not None and bool(ray.is_initialized() and ray.get_runtime_context().get_actor_id())
    except Exception:
        return False
