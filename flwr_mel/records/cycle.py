"""One cycle on the record: what was planned, what came back, what it cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """What became of a learner in a cycle."""

    USED = "used"
    LEFT_OUT = "left out"
    REFUSED = "refused"
    FAILED = "failed"
    LATE = "late"


@dataclass(slots=True)
class LearnerRecord:
    """One learner in one cycle.

    Parameters
    ----------
    learner, node : str
        The learner's own name and Flower's node id.
    outcome : Outcome
        What became of it.
    reason : str
        Why it was left out, refused or failed.
    epochs, samples : int
        The task.
    weight : int
        Samples that count in the average.
    time_s, energy_j : float
        Predicted by the cost model; with learning, the safe prediction that the plan was made with.
    energy_limit_j : float, optional
        E_k.
    limited_by : str
        What keeps it from more: "time", "energy", "data" or "" (nothing yet).
    reported_time_s, reported_energy_j : float, optional
        What the learner says it took.
    slowdown : float
        Planned time over declared time: more than 1 after it had been late, or by what was learnt of it.
    round_trip_s : float, optional
        From sending the task to the arrival of the reply, by the server's clock; only with learning.
    """

    learner: str
    node: str
    outcome: Outcome = Outcome.LEFT_OUT
    reason: str = ""
    epochs: int = 0
    samples: int = 0
    weight: int = 0
    time_s: float = 0.0
    energy_j: float = 0.0
    energy_limit_j: float | None = None
    limited_by: str = ""
    reported_time_s: float | None = None
    reported_energy_j: float | None = None
    slowdown: float = 1.0
    round_trip_s: float | None = None

    def task_words(self) -> str:
        """Say what a learner was given and what keeps it from more, or why it was given nothing.

        Names and reasons come from the learners: what could move a cursor is replaced.
        """
        name = f"node {self.learner}" if self.learner.isdecimal() else printable(self.learner)
        if not self.epochs:
            reason = f", {printable(self.reason)}" if self.reason else ""
            return f"{name}: {Outcome.LEFT_OUT}{reason}"
        epochs = f"{self.epochs:,} epoch" + "s" * (self.epochs != 1)
        samples = f"{self.samples:,} sample" + "s" * (self.samples != 1)
        limit = f", limited by {printable(self.limited_by)}" if self.limited_by else ""
        return f"{name}: {epochs}, {samples}{limit}"


def printable(text: str) -> str:
    """Return text that cannot move a cursor."""
    return "".join(c if c.isprintable() else "?" for c in text)


@dataclass(slots=True)
class CycleRecord:
    """One global cycle.

    Parameters
    ----------
    cycle : int
        From 1.
    cycle_time_s : float
        T.
    makespan_s : float
        When the last learner reported, by the cost model; T when somebody failed to.
    total_samples, asked_samples : int
        Samples handed out, and how many the user wanted.
    staleness : int
        Cap c.
    status : str
        Of the allocation, as `Status` names it; "skipped" when nobody worked.
    mean_epochs, bound : float
        Objective and its certificate.
    energy_j : float
        Of all learners, this cycle.
    clock_s, total_energy_j : float
        Virtual time and energy since the start, this cycle included.
    learners : list of LearnerRecord
        Everybody known in this cycle.
    metrics : dict
        What training and evaluation told.
    notes : list of str
        What people should know, e.g. that the number of samples was lowered.
    stopped : str
        The reason, if training stopped after this cycle.
    """

    cycle: int
    cycle_time_s: float
    makespan_s: float = 0.0
    total_samples: int = 0
    asked_samples: int = 0
    staleness: int = 0
    status: str = "skipped"
    mean_epochs: float = 0.0
    bound: float = 0.0
    energy_j: float = 0.0
    clock_s: float = 0.0
    total_energy_j: float = 0.0
    learners: list[LearnerRecord] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    stopped: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain types for JSON; numbers that JSON cannot carry become null."""
        data = {name: _plain(getattr(self, name)) for name in _CYCLE_FIELDS}
        data["metrics"] = {str(key): _plain(value) for key, value in self.metrics.items()}
        data["notes"] = list(self.notes)
        # By hand: dataclasses.asdict copies deeply, which takes a second for 10,000 learners.
        data["learners"] = [
            {name: _plain(getattr(row, name)) for name in _LEARNER_FIELDS} for row in self.learners
        ]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CycleRecord:
        """Read a record back from `as_dict`'s form."""
        values = dict(data)
        learners = [
            LearnerRecord(**{**row, "outcome": Outcome(row["outcome"])}) for row in values.pop("learners")
        ]
        metrics = {key: math.nan if x is None else x for key, x in values.pop("metrics").items()}
        return cls(learners=learners, metrics=metrics, **values)

    @property
    def failures(self) -> list[LearnerRecord]:
        """Learners whose work was asked for and not used."""
        return [r for r in self.learners if r.outcome in (Outcome.REFUSED, Outcome.FAILED, Outcome.LATE)]


_CYCLE_FIELDS = tuple(f.name for f in fields(CycleRecord))
_LEARNER_FIELDS = tuple(f.name for f in fields(LearnerRecord))


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, StrEnum) else value
