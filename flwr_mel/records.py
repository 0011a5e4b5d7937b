"""The record of a cycle, and callbacks that keep records: `JsonlWriter` and `Stopping`.

A cycle of the paper is a round of Flower, and a learner is a client.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any, BinaryIO

from flwr_mel._text import error_line, printable
from flwr_mel._validate import complain, count, number

log = logging.getLogger("flwr.mel")
#: How every line of `JsonlWriter` begins.
_BEGIN = b'{"cycle": '


class Outcome(StrEnum):
    """The outcome of a cycle for one learner."""

    USED = "used"
    SKIPPED = "skipped"
    REJECTED = "rejected"
    FAILED = "failed"
    LATE = "late"


@dataclass(slots=True)
class LearnerRecord:
    """One learner in one cycle.

    Parameters
    ----------
    learner, node : str
        The learner's label and Flower's node id.
    outcome : Outcome
        Whether its update was used, and otherwise why not.
    reason : str
        Why the learner was skipped or its update was not used.
    epochs, samples : int
        The task; 0 in a baseline round, in which the project does its own work.
    baseline : bool
        Whether its task was the project's own work.
    weight : int
        Samples that count in the average.
    time_s, energy_j : float
        Planned time and energy.
    energy_limit_j : float, optional
        E_k; None: no limit.
    limited_by : str
        What keeps the learner from more work: see `flwr_mel.allocation.Limit`.
    stop_after_s : float, optional
        After which the client stops, whatever is left of its task; None: it does all of it.
    round_trip_s : float, optional
        From sending the task to the reply, by the server's clock; None in simulations.
    train_s : float, optional
        Reported by the client: seconds inside its app.
    epochs_done, samples_used : float, optional
        Completed work, as far as it was counted; None if unknown.
    stopped : bool
        Whether its task was cut short because `stop_after_s` was over.
    held : int, optional
        n_k, the samples that the learner holds; None if unknown or if the server ships them.
    share : float
        The share of the learner's data in the model of this cycle.
    bounded : str
        What `Robust` limited, and by how much.
    """

    learner: str
    node: str
    outcome: Outcome = Outcome.SKIPPED
    reason: str = ""
    epochs: int = 0
    samples: int = 0
    baseline: bool = False
    weight: int = 0
    time_s: float = 0.0
    energy_j: float = 0.0
    energy_limit_j: float | None = None
    limited_by: str = ""
    stop_after_s: float | None = None
    round_trip_s: float | None = None
    train_s: float | None = None
    epochs_done: float | None = None
    stopped: bool = False
    samples_used: float | None = None
    held: int | None = None
    share: float = 0.0
    bounded: str = ""

    @property
    def asked(self) -> bool:
        """Whether the learner was given a task."""
        return self.outcome is not Outcome.SKIPPED

    def describe(self) -> str:
        """Return the task, or the reason why there is none, in one line."""
        name = title(self.learner)
        if self.baseline:
            return f"{name}: the project's own work"
        if not self.epochs:
            return f"{name}: {Outcome.SKIPPED}, {printable(self.reason)}"
        if not self.samples:
            return f"{name}: as much of {self.epochs:,} epochs on all its samples as fits {self.time_s:.3g} s"
        limit = f", limited by {self.limited_by}" if self.limited_by else ""
        return f"{name}: {self.epochs:,} x {self.samples:,} samples in {self.time_s:.3g} s{limit}"


@dataclass(slots=True)
class CycleRecord:
    """One global cycle.

    Parameters
    ----------
    cycle : int
        From 1.
    cycle_time_s : float
        T; in a baseline round the time of its slowest learner.
    makespan_s : float
        Planned time until the last learner reports; T if one did not.
    waited_s : float, optional
        Actual time, by the server's clock; None in simulations with declared costs.
    total_samples, asked_samples : int
        Samples handed out, and samples requested.
    staleness : int, optional
        Cap c; None: no cap.
    status : str
        The allocation's status (`flwr_mel.allocation.Status`); "baseline" in a baseline round, "own work" if
        no learner follows a task, "first tasks" if learners are measured with tasks, "skipped" if no learner
        had a task.
    objective : str
        What the allocation maximises.
    value, bound : float
        The value of the objective, and the bound that certifies it.
    energy_j : float
        Planned energy of all learners in this cycle.
    clock_s, total_energy_j : float
        Time and energy since the start, including this cycle. Time is actual if the server's clock ran, and
        planned in a simulation with declared costs.
    baseline_s : float, optional
        Time of the project's own round with these learners, if T was derived from it.
    work : float, optional
        Epochs times samples of the updates that are used, relative to the project's own round; None: not
        known, because the apps could not be observed.
    local_steps : float
        tau_eff, the local steps (in samples) that the average of the updates stands for.
    differs : bool
        Whether any task differed from the project's own work.
    began_at : float, optional
        Seconds since 1970; None in simulations, whose records do not depend on a real clock.
    stopped : str
        The reason, if training stopped after this cycle.
    metrics : dict
        Metrics of training and evaluation.
    notes : list of str
        Remarks for the user, e.g. that the number of samples was reduced.
    learners : list of LearnerRecord
        All learners that could be given a task.
    """

    cycle: int
    cycle_time_s: float = 0.0
    makespan_s: float = 0.0
    waited_s: float | None = None
    total_samples: int = 0
    asked_samples: int = 0
    staleness: int | None = None
    status: str = "skipped"
    objective: str = "epochs"
    value: float = 0.0
    bound: float = 0.0
    energy_j: float = 0.0
    clock_s: float = 0.0
    total_energy_j: float = 0.0
    baseline_s: float | None = None
    work: float | None = None
    local_steps: float = 0.0
    differs: bool = False
    began_at: float | None = None
    stopped: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    learners: list[LearnerRecord] = field(default_factory=list)

    @property
    def asked(self) -> list[LearnerRecord]:
        """Learners with a task."""
        return [row for row in self.learners if row.asked]

    @property
    def failures(self) -> list[LearnerRecord]:
        """Learners that had a task and whose update is not used."""
        return [row for row in self.asked if row.outcome is not Outcome.USED]

    @property
    def mean_epochs(self) -> float:
        """The paper's objective: the mean of tau_k over all learners."""
        return sum(row.epochs for row in self.learners) / max(len(self.learners), 1)

    def count(self, outcome: Outcome) -> int:
        """Return how many learners ended so."""
        return sum(row.outcome is outcome for row in self.learners)

    def as_dict(self) -> dict[str, Any]:
        """Return plain types for JSON; numbers that JSON cannot carry become null."""
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
        """Read a record back from the form of `as_dict`."""
        values = dict(data)
        rows = [
            LearnerRecord(**{**row, "outcome": Outcome(row["outcome"])}) for row in values.pop("learners")
        ]
        metrics = {key: math.nan if x is None else x for key, x in values.pop("metrics").items()}
        if values.get("bound") is None:
            values["bound"] = math.inf
        return cls(learners=rows, metrics=metrics, **values)


_CYCLE_FIELDS = tuple(f.name for f in fields(CycleRecord) if f.name not in ("metrics", "notes", "learners"))
_LEARNER_FIELDS = tuple(f.name for f in fields(LearnerRecord))

#: Receives every finished cycle; may return a reason to stop the training.
Callback = Callable[[CycleRecord], "str | None"]


def title(learner: str) -> str:
    """Return a label for a log line: a number by itself would read as a count."""
    return f"client {learner}" if learner.isdecimal() else printable(learner)


def _plain(value: Any) -> Any:
    """Return a value that JSON can carry."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.value if isinstance(value, Enum) else value


class JsonlWriter:
    """Append one line of JSON per round; each line is on disk before the next round starts.

    Parameters
    ----------
    path : path
        The file; its directory is created. New lines are added to an existing file. A line that a crash cut
        off is dropped, and a resumed training drops the lines of the rounds that it repeats. Damaged lines
        stay where they are.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.open("ab").close()
        except OSError as error:
            raise complain(
                "JsonlWriter's path", "a file that can be written", str(self.path), f"{error}."
            ) from error
        lines = self._lines()
        if lines and not any(cycle for cycle, _, _ in lines):
            rule = "a new file, or one of cycle records"
            raise complain("JsonlWriter's path", rule, str(self.path), "Give another.")
        for number_, (cycle, _, _) in enumerate(lines, start=1):
            if not cycle:
                log.warning("%s, line %d is damaged: it stays as it is", self.path, number_)

    def __repr__(self) -> str:
        """Return what to write in Python, for the messages about a callback."""
        return f"JsonlWriter({str(self.path)!r})"

    def __call__(self, record: CycleRecord) -> None:
        """Write one record."""
        line = (json.dumps(record.as_dict(), allow_nan=False) + "\n").encode()
        try:
            with self.path.open("a+b", buffering=0) as file:
                end = file.seek(0, os.SEEK_END)
                if end and not _closed(file, end):
                    end = max((last for _, _, last in self._lines()), default=0)
                    file.truncate(end)
                    line = line if not end or _closed(file, end) else b"\n" + line
                rest = memoryview(line)
                try:
                    while rest:
                        rest = rest[file.write(rest) :]
                    os.fsync(file.fileno())
                except OSError:
                    file.truncate(end)  # half a line would spoil the next one
                    raise
        except OSError as error:
            error.filename = error.filename or str(self.path)
            raise

    def resume(self, cycle: int) -> None:
        """Drop the last lines of later cycles, which a resumed training repeats."""
        end = self.path.stat().st_size
        for found, start, _ in reversed(self._lines()):
            if found > cycle:
                end = start
            elif found:
                break
        os.truncate(self.path, end)

    def _lines(self) -> list[tuple[int, int, int]]:
        """Return cycle, start and end of each line; cycle 0: it is damaged. A line cut off is none."""
        found, end = [], 0
        with self.path.open("rb") as file:
            for line in file:
                start, end = end, end + len(line)
                try:
                    cycle = max(int(json.loads(line)["cycle"]), 0)
                except (ValueError, LookupError, TypeError):
                    cycle = 0
                if cycle or line.endswith(b"\n") or not line.startswith(_BEGIN[: len(line)]):
                    found.append((cycle, start, end))
        return found


def _closed(file: BinaryIO, end: int) -> bool:
    """Whether the line that ends here is whole."""
    file.seek(end - 1)
    return file.read(1) == b"\n"


def read_jsonl(path: str | os.PathLike[str]) -> Iterator[CycleRecord]:
    """Read records back. A last line cut off by a crash is left out, a damaged one with a warning.

    Parameters
    ----------
    path : path
        Written by `JsonlWriter`.
    """
    lines, found = Path(path).read_bytes().split(b"\n"), False
    problem: tuple[int, Exception] | None = None
    for number_, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = CycleRecord.from_dict(json.loads(line))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            if number_ < len(lines):
                problem = problem or (number_, error)
                log.warning(
                    "%s, line %d is left out, as it is damaged: %s", path, number_, error_line(error, 200)
                )
        else:
            found = True
            yield record
    if problem is not None and not found:
        where = f"{path}, line {problem[0]}"
        line = lines[problem[0] - 1]
        raise complain("the line", "a cycle record", line, f"{problem[1]}.", where=where) from None


class Stopping:
    """A callback that stops the training; without arguments it never stops it.

    Parameters
    ----------
    target : float, optional
        Stop when `metric` reaches it.
    metric : str
        Name of a metric in the records, such as "accuracy" or "loss".
    mode : str
        "max" if larger values are better, "min" if smaller ones are.
    cycles : int, optional
        Stop after this many rounds.
    time_s : float, optional
        Stop when all rounds together have taken this many seconds (planned time in a simulation).
    energy_j : float, optional
        Stop when the planned energy of all rounds together reaches this.
    patience : int, optional
        Stop when `metric` has not improved for this many rounds.
    """

    def __init__(
        self,
        *,
        target: float | None = None,
        metric: str = "accuracy",
        mode: str = "max",
        cycles: int | None = None,
        time_s: float | None = None,
        energy_j: float | None = None,
        patience: int | None = None,
    ) -> None:
        if mode not in ("max", "min"):
            raise complain("mode", "'max' or 'min'", mode)
        self.metric, self.mode = metric, mode
        self.target = None if target is None else number("target", target)
        self.cycles = None if cycles is None else count("cycles", cycles, least=1)
        self.time_s = None if time_s is None else number("time_s", time_s, above=0)
        self.energy_j = None if energy_j is None else number("energy_j", energy_j, above=0)
        self.patience = None if patience is None else count("patience", patience, least=1)
        self._best: tuple[float, int] | None = None

    def __call__(self, record: CycleRecord) -> str | None:
        """Return the reason to stop after this cycle, or None."""
        value = record.metrics.get(self.metric)
        sign = 1 if self.mode == "max" else -1
        if value is not None and math.isfinite(value):
            if self._best is None or sign * value > sign * self._best[0]:
                self._best = (value, record.cycle)
            if self.target is not None and sign * value >= sign * self.target:
                return f"{self.metric} reached {value:g} (target {self.target:g})"
        if self.cycles is not None and record.cycle >= self.cycles:
            return f"{record.cycle} rounds done"
        if self.time_s is not None and record.clock_s >= self.time_s:
            return f"{record.clock_s:g} s used (limit {self.time_s:g} s)"
        if self.energy_j is not None and record.total_energy_j >= self.energy_j:
            return f"{record.total_energy_j:g} J used (limit {self.energy_j:g} J)"
        since = 0 if self._best is None else record.cycle - self._best[1]
        if self.patience is not None and since >= self.patience:
            return f"no better {self.metric} for {since} rounds"
        return None

    def snapshot(self) -> dict[str, Any]:
        """Return what a resumed training needs to know."""
        return {"best": self._best}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue from a snapshot."""
        best = snapshot.get("best")
        self._best = None if best is None else (float(best[0]), int(best[1]))
