"""One cycle on the record: what was planned, what came back, what it cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

from flwr_mel._text import printable
from flwr_mel.allocation.limiting import Limit
from flwr_mel.allocation.objectives import Objective


class Outcome(StrEnum):
    """What became of a learner in a cycle."""

    USED = "used"
    LEFT_OUT = "left out"
    REFUSED = "refused"
    FAILED = "failed"
    LATE = "late"
    BUSY = "busy"


class Standing(StrEnum):
    """What a real learner is doing when a cycle ends."""

    IDLE = "idle"
    WORKING = "working"
    LATE = "late"
    GONE = "gone"


def title(learner: str) -> str:
    """Say whom a line of the log is about: a number by itself would be taken for a count.

    Parameters
    ----------
    learner : str
        Its name; what could move a cursor is replaced.
    """
    return f"node {learner}" if learner.isdecimal() else printable(learner)


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
        Samples that count in the average, unless its share is `bounded`.
    time_s, energy_j : float
        Predicted by the cost model; with learning, the safe prediction that the plan was made with.
    energy_limit_j : float, optional
        E_k.
    limited_by : Limit
        What keeps it from more.
    reported_time_s, reported_energy_j : float, optional
        What the learner says it took.
    slowdown : float
        Planned time over declared time: more than 1 after it had been late, or by what was learnt of it.
    round_trip_s : float, optional
        From sending the task to the arrival of the reply, by the server's clock; only with learning.
    receive_s, send_s : float, optional
        The parts of `time_s` for the task's and the reply's way; what is left is computing.
    span : int
        Cycles that the task may take: its deadline is as many times T, and so is its energy limit.
    idle : int
        Cycles without work before this one.
    moved_from : int
        The earlier cycle with whose model this learner began an update that is in this cycle's average; 0:
        there is none. The update was moved onto the present model.
    moved_epochs, moved_weight : int
        Epochs and samples of such an update; it counts for its samples over the square root of the cycles
        that it took, or for what the learner holds over it, and then again in later cycles: see `Echo`.
    held : int, optional
        n_k, the samples it has, as far as is known; None where the server ships them.
    share : float
        What part of the model's loss its data are in this cycle: the share of tau_k d_k^2 in a plain average,
        of d_k or n_k in a normalised one; see `flwr_mel.orchestrator.averaging`.
    free : bool
        Its task was the project's own round, to be measured: then `epochs` and `samples` are what it did, and
        `time_s` is what it took.
    epochs_done, samples_used : float, optional
        What it did, by what its mod saw or its app says; None where that is not known.
    bounded : str
        What of it was bounded, because of the others', and by how much: its share of the weight, the size of
        its update.
    sent_at, received_at : float, optional
        When its task left and its reply came, by the server's clock in seconds since 1970; of a real learner
        only. Those of an earlier cycle's task where it got none in this one.
    standing : Standing, optional
        What it was doing when the cycle ended; of a real learner only.
    since : float, optional
        Since when, in seconds since 1970.
    problem : str
        What its device says is wrong with it: missing data, a capability function that raises.
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
    limited_by: Limit = Limit.NONE
    reported_time_s: float | None = None
    reported_energy_j: float | None = None
    slowdown: float = 1.0
    round_trip_s: float | None = None
    receive_s: float | None = None
    send_s: float | None = None
    span: int = 1
    idle: int = 0
    moved_from: int = 0
    moved_epochs: int = 0
    moved_weight: int = 0
    held: int | None = None
    share: float = 0.0
    free: bool = False
    epochs_done: float | None = None
    samples_used: float | None = None
    bounded: str = ""
    sent_at: float | None = None
    received_at: float | None = None
    standing: Standing | None = None
    since: float | None = None
    problem: str = ""

    @property
    def took_s(self) -> float | None:
        """Seconds from sending its task to its reply, by the server's clock; None where that is not known."""
        if self.round_trip_s is not None:
            return self.round_trip_s
        known = self.sent_at is not None and self.received_at is not None
        return self.received_at - self.sent_at if known else None  # type: ignore[operator]

    @property
    def asked(self) -> bool:
        """Whether it was given a task."""
        return self.free or self.samples > 0

    def task_words(self) -> str:
        """Say what a learner was given and what keeps it from more, or why it was given nothing.

        Names and reasons come from the learners: what could move a cursor is replaced.
        """
        name = title(self.learner)
        if self.free:
            return f"{name}: its own round, which is measured"
        if not self.epochs:
            reason = f", {printable(self.reason)}" if self.reason else ""
            word = Outcome.BUSY if self.outcome is Outcome.BUSY else Outcome.LEFT_OUT
            return f"{name}: {word}{reason}"
        epochs = f"{self.epochs:,} epoch" + "s" * (self.epochs != 1)
        samples = f"{self.samples:,} sample" + "s" * (self.samples != 1)
        limit = f", limited by {self.limited_by}" if self.limited_by else ""
        cycles = f" in {self.span} cycles" if self.span > 1 else ""
        return f"{name}: {epochs}, {samples}{cycles}{limit}"


@dataclass(frozen=True, slots=True)
class Echo:
    """An update of an earlier cycle's task that counts again, in a cycle after the one in which it came.

    Parameters
    ----------
    learner : str
        Whose it is; it need not be there any more.
    cycle : int
        With whose model it began.
    cycles : int
        How many it took, m: from that one to the one in which it came, both included. In as many it counts,
        each time moved onto the present model.
    left : int
        In how many later ones it counts still.
    epochs, weight : int
        Epochs and samples of it, as of `moved_epochs` and `moved_weight`.
    held : int, optional
        n_k when it came. It counts for n_k over the square root of m; d_k stands in where n_k is not known.
    share : float
        What part of the model's loss it is in this cycle. The share in its learner's row, if there is one,
        includes it.
    """

    learner: str
    cycle: int
    cycles: int
    left: int
    epochs: int
    weight: int
    held: int | None = None
    share: float = 0.0

    @property
    def name(self) -> str:
        """What adapters call it: a learner may have several."""
        return f"{self.learner} (cycle {self.cycle})"


@dataclass(slots=True)
class CycleRecord:
    """One global cycle.

    Parameters
    ----------
    cycle : int
        From 1.
    cycle_time_s : float
        T. Of a cycle in which everybody did its own round: what the slowest took.
    makespan_s : float
        When the last learner reported, by the cost model; T when somebody failed to.
    total_samples, asked_samples : int
        Samples handed out, and how many the user wanted.
    staleness : int
        Cap c.
    status : str
        Of the allocation, as `Status` names it; "skipped" when nobody worked, "free" when everybody did what
        the project does by itself.
    mean_epochs : float
        The mean of tau_k, whatever the allocation was made for.
    bound : float
        Certificate of `value`.
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
    objective : str
        What the allocation was made for, as `Objective` or another `Goal` names it.
    value : float
        Of that objective.
    gap : float, optional
        How far the optimum can be from `value`, as a share; None where that is not known.
    pace : int
        Epochs with which at least half of the learners keep up; 0: everybody waits for the slowest.
    own_round_s : float, optional
        What the project's own round takes the slowest of these learners, where T was not given but follows
        from what was measured; T is never longer.
    began_at, ended_at : float, optional
        When the cycle began and ended, by the server's clock in seconds since 1970; None in simulations,
        whose records do not depend on a real clock.
    duration_s : float, optional
        From its beginning to its end, evaluation included.
    waited_s : float, optional
        From sending the tasks to the last report, or to the end of waiting: what `makespan_s` came to.
    flower_s : float, optional
        What part of it is Flower's (looking for messages, starting processes, the way): the median over the
        learners of what a task takes beside the work; before any task, of what a question takes.
    gone : dict of name to float
        Learners that were there before and are not connected any more, and since when.
    echoes : list of Echo
        Updates that came in earlier cycles and count again in this one, in the order of the average: after
        this cycle's own and those that came in it.
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
    objective: str = str(Objective.EPOCHS)
    value: float = 0.0
    gap: float | None = None
    pace: int = 0
    own_round_s: float | None = None
    began_at: float | None = None
    ended_at: float | None = None
    duration_s: float | None = None
    waited_s: float | None = None
    flower_s: float | None = None
    gone: dict[str, float | None] = field(default_factory=dict)
    echoes: list[Echo] = field(default_factory=list)

    @property
    def real(self) -> bool:
        """Whether a real clock ran."""
        return self.began_at is not None

    def as_dict(self) -> dict[str, Any]:
        """Plain types for JSON; numbers that JSON cannot carry become null.

        What only a real clock or a real device tells is there where it is known, and so are updates that
        count again where there are some.
        """
        data = {name: _plain(getattr(self, name)) for name in _CYCLE_FIELDS}
        data |= _real(self, _REAL_CYCLE)
        data["metrics"] = {str(key): _plain(value) for key, value in self.metrics.items()}
        data["notes"] = list(self.notes)
        data |= {"echoes": [asdict(x) for x in self.echoes]} if self.echoes else {}
        # By hand: dataclasses.asdict copies deeply, which takes a second for 10,000 learners.
        data["learners"] = [
            {name: _plain(getattr(row, name)) for name in _LEARNER_FIELDS} | _real(row, _REAL_LEARNER)
            for row in self.learners
        ]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CycleRecord:
        """Read a record back from `as_dict`'s form, or from that of version 0.1."""
        values = dict(data)
        if "objective" not in values:
            # The bound was one on the mean epochs then, whatever had been maximised.
            values |= _of_epochs(values.get("mean_epochs"), values.get("bound"))
        learners = [_learner(row) for row in values.pop("learners")]
        values["echoes"] = [Echo(**x) for x in values.get("echoes", ())]
        metrics = {key: math.nan if x is None else x for key, x in values.pop("metrics").items()}
        return cls(learners=learners, metrics=metrics, **values)

    @property
    def counted(self) -> int:
        """How many of the learners have an update in this cycle's average, however old."""
        again = {x.learner for x in self.echoes}
        return sum(
            row.outcome is Outcome.USED or row.moved_weight > 0 or row.learner in again
            for row in self.learners
        )

    @property
    def failures(self) -> list[LearnerRecord]:
        """Learners whose work was asked for and not used."""
        return [r for r in self.learners if r.outcome in (Outcome.REFUSED, Outcome.FAILED, Outcome.LATE)]


_REAL_CYCLE = ("began_at", "ended_at", "duration_s", "waited_s", "flower_s", "gone")
_REAL_LEARNER = ("sent_at", "received_at", "standing", "since", "problem")
_CYCLE_FIELDS = tuple(f.name for f in fields(CycleRecord) if f.name not in (*_REAL_CYCLE, "echoes"))
_LEARNER_FIELDS = tuple(f.name for f in fields(LearnerRecord) if f.name not in _REAL_LEARNER)


def _real(record: CycleRecord | LearnerRecord, names: tuple[str, ...]) -> dict[str, Any]:
    found = {name: getattr(record, name) for name in names}
    return {name: _plain(value) for name, value in found.items() if value not in (None, "", {})}


def _of_epochs(mean_epochs: float | None, bound: float | None) -> dict[str, Any]:
    gap = bound / mean_epochs - 1 if mean_epochs and bound is not None else None
    return {"objective": str(Objective.EPOCHS), "value": mean_epochs or 0.0, "gap": gap}


def _learner(row: Mapping[str, Any]) -> LearnerRecord:
    limit = Limit(row.get("limited_by") or "")
    standing = row.get("standing")
    return LearnerRecord(
        **{
            **row,
            "outcome": Outcome(row["outcome"]),
            "limited_by": limit,
            "standing": None if standing is None else Standing(standing),
        }
    )


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, StrEnum) else value
