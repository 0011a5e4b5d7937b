"""How a learner works by itself, and what of its tasks its app follows: read off what the mod reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from flwr_mel import wire
from flwr_mel._validate import MAX_COUNT, complain, count, number
from flwr_mel.devices import Costs
from flwr_mel.records import LearnerRecord

Said = Mapping[str, object]
#: Seconds or joules; more than that in one cycle is no measurement.
_LARGEST_MEASUREMENT = 1e12
# Costs above zero, whatever a clock says.
_LEAST_COST = 1e-12


@dataclass(frozen=True, slots=True)
class OwnWork:
    """What a learner does by itself, and what it lets itself be told.

    Parameters
    ----------
    epochs, samples : int
        Of the project's own round: the epochs it does, the samples it holds.
    seconds : float
        What that round took.
    steers_epochs, steers_samples : bool
        Whether the app follows the epochs and the samples of a task. If not it does its own epochs, or uses
        all its samples.
    """

    epochs: int
    samples: int
    seconds: float
    steers_epochs: bool = True
    steers_samples: bool = True

    def as_dict(self) -> dict[str, Any]:
        """Return plain types for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: object) -> OwnWork:
        """Read back what `as_dict` gave; refuse anything else.

        Parameters
        ----------
        data : mapping
            From `as_dict`.
        """
        if not isinstance(data, Mapping) or set(data) != set(cls.__dataclass_fields__):
            raise complain("own work", f"a mapping with {', '.join(cls.__dataclass_fields__)}", data)
        for name in ("steers_epochs", "steers_samples"):
            if not isinstance(data[name], bool):
                raise complain(f"own work.{name}", "true or false", data[name])
        return cls(
            count("own work.epochs", data["epochs"], least=1),
            count("own work.samples", data["samples"], least=1),
            number("own work.seconds", data["seconds"], least=0),
            data["steers_epochs"],
            data["steers_samples"],
        )


def after_own_round(said: Said, weight: int, round_trip_s: float | None) -> tuple[OwnWork, Costs] | None:
    """Return how a learner works and what that costs it, from the report on its own round; None: no report.

    In a simulation the way to the learner is no link and waiting for a worker is none either: only the
    seconds in the app count.

    Parameters
    ----------
    said : mapping
        What came with its reply.
    weight : int
        Samples by its app's own account.
    round_trip_s : float, optional
        By the server's clock.
    """
    train_s = measurement(said.get(wire.TRAIN_SECONDS))
    if train_s is None:
        return None
    used = _whole(said.get(wire.SAMPLES_USED)) or max(weight, 1)
    epochs = _whole(said.get(wire.EPOCHS_DONE)) or _whole(said.get(wire.OWN_EPOCHS)) or 1
    link_s = 0.0
    if wire.SIMULATED not in said and round_trip_s is not None:
        train_s = min(train_s, round_trip_s)
        link_s = round_trip_s - train_s
    read, keyed = said.get(wire.EPOCHS_READ), wire.EPOCHS_KEY in said
    own = OwnWork(
        epochs=epochs,
        samples=max(_whole(said.get(wire.SAMPLES_HELD)) or used, used),
        seconds=train_s + link_s,
        steers_epochs=read == wire.YES or (read == wire.UNKNOWN and keyed),
        steers_samples=said.get(wire.SAMPLES_FROM) == wire.TASK,
    )
    return own, (max(train_s / (epochs * used), _LEAST_COST), 0.0, link_s, 0.0, 0.0, 0.0)


def after_task(own: OwnWork | None, said: Said, row: LearnerRecord) -> OwnWork | None:
    """Return how a learner works, after a task.

    What it once did not follow it must be seen to follow before it is told again. None: nothing is known
    but that it follows.

    Parameters
    ----------
    own : OwnWork, optional
        Before.
    said : mapping
        What came with its reply.
    row : LearnerRecord
        Its task.
    """
    read, used = said.get(wire.EPOCHS_READ), _whole(said.get(wire.SAMPLES_USED))
    chosen = said.get(wire.SAMPLES_FROM) == wire.TASK
    before = (True, True) if own is None else (own.steers_epochs, own.steers_samples)
    epochs = read == wire.YES or (read != wire.NO and before[0])
    samples = chosen or (before[1] and (used is None or used <= row.samples))
    if own is None and epochs and samples:
        return None
    held = max(_whole(said.get(wire.SAMPLES_HELD)) or 0, 0 if used is None or samples else used)
    did = _whole(said.get(wire.EPOCHS_DONE))
    if own is None:
        return OwnWork(did or 1, held or row.samples, row.time_s, epochs, samples)
    return OwnWork(
        own.epochs if epochs else did or own.epochs, held or own.samples, own.seconds, epochs, samples
    )


def done(said: Said) -> tuple[float | None, float | None]:
    """Return the epochs that a learner did and the samples that it used, as far as it says so.

    Parameters
    ----------
    said : mapping
        What came with its reply.
    """
    return measurement(said.get(wire.EPOCHS_DONE)), measurement(said.get(wire.SAMPLES_USED))


def measurement(value: object) -> float | None:
    """Return a time or an energy that a learner reports; None if it cannot be one."""
    if value is None:
        return None
    try:
        measured = number("measurement", value, least=0)
    except ValueError:
        return None
    return measured if measured <= _LARGEST_MEASUREMENT else None


def _whole(value: object) -> int | None:
    """Return a count of at least 1 that a learner reports, rounded; None if it cannot be one."""
    said = measurement(value)
    return None if said is None or not 0.5 <= said <= MAX_COUNT else round(said)
