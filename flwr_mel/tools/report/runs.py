"""A run's records and settings, and the same as arrays of clients by rounds."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from flwr_mel._validate import FloatArray, complain
from flwr_mel.records import CycleRecord, LearnerRecord, Outcome, read_jsonl
from flwr_mel.tools.report.markup import plural

RECORDS = "records.jsonl"


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What a run left behind: at least one record, by round; the rest is empty where it is not known."""

    path: Path
    records: tuple[CycleRecord, ...]
    config: Mapping[str, Any] = field(default_factory=dict)
    notices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the directory or file."""
        return self.path.resolve().name

    @property
    def real(self) -> bool:
        """Whether the server's clock is on record: not in simulations with declared costs."""
        return bool(np.isfinite(self.column("waited_s")).any())

    @property
    def energy_known(self) -> bool:
        """Whether energy is on record: not if no client has declared its own."""
        return self.records[-1].total_energy_j > 0

    @property
    def joules(self) -> FloatArray:
        """The energy used so far, one value per round, NaN where it is unknown."""
        return self.column("total_energy_j") if self.energy_known else np.full(len(self.records), math.nan)

    @property
    def ending(self) -> str:
        """Why the run ended, in one phrase."""
        last, wanted = self.records[-1], self.config.get("cycles", 0)
        done = f"{plural(last.cycle, 'round')} done"
        return last.stopped or (f"interrupted: {done} of {wanted:,}" if wanted > last.cycle else done)

    @property
    def metric(self) -> str:
        """The metric that is shown: the first that sounds like accuracy, else the first of all."""
        names = dict.fromkeys(name for record in self.records for name in record.metrics)
        ranked = sorted(names, key=lambda name: (name != "accuracy", "acc" not in name.lower()))
        return ranked[0] if ranked else "accuracy"

    @property
    def is_share(self) -> bool:
        """Whether the metric is an accuracy, to be written as a percentage."""
        return "acc" in self.metric.lower()

    @property
    def learned(self) -> FloatArray:
        """The metric, one value per round, NaN where it is absent."""
        return np.array([record.metrics.get(self.metric, math.nan) for record in self.records])

    def column(self, name: str) -> FloatArray:
        """Return one number of every record, NaN for None."""
        return np.array([getattr(record, name) for record in self.records], dtype=np.float64)

    def first(self, level: float) -> int | None:
        """Return the index of the first record whose accuracy is at least `level`; None: never."""
        return next((n for n, x in enumerate(self.learned) if self.is_share and x >= level), None)


def clients(record: CycleRecord) -> Iterator[tuple[str, LearnerRecord]]:
    """Return a round's clients, told apart by their node when two have the same name."""
    names = Counter(row.learner for row in record.learners)
    for row in record.learners:
        yield (f"{row.learner} ({row.node})" if names[row.learner] > 1 else row.learner), row


def load_run(path: str | Path) -> Run:
    """Read a run: a directory, of which only ``records.jsonl`` is needed, or a file of records.

    Raises
    ------
    ValueError
        Names the path and what is missing or broken.
    """
    file = Path(path) / RECORDS if Path(path).is_dir() else Path(path)
    beside = file.with_name("config.json")
    try:
        records: dict[int, CycleRecord] = {}
        for record in read_jsonl(file):
            if record.cycle in records:  # a run done again, of which later rounds may be missing
                records = {cycle: x for cycle, x in records.items() if cycle < record.cycle}
            records[record.cycle] = record
        # Beside a file with a name of its own, it need not belong to it.
        known = file.name == RECORDS and beside.exists()
        facts = json.loads(beside.read_text("utf-8")) if known else {}
        path = file.parent if known or Path(path).is_dir() else file
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        rule = f"a directory with {RECORDS} and perhaps config.json, or a file of records"
        raise complain("a run", rule, str(file), f"{getattr(error, 'strerror', None) or error}.") from error
    if not records:
        raise complain("a run", "one with a finished round", str(file))
    notices = tuple(filter(None, [facts.get("notice")]))
    return Run(path, tuple(records[cycle] for cycle in sorted(records)), facts.get("config", {}), notices)


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """Clients by rounds; NaN where a client had no task.

    Parameters
    ----------
    names : tuple of str
        The clients, kind by kind.
    kinds : dict of str to list of int
        Rows of the clients of one kind, which share a colour.
    values : dict of str to float array, shape (clients, rounds)
        epochs, samples, time_s, energy_j, energy_limit_j; time_share and energy_share of T and E_k; idle_s,
        T minus the busy time; lost, 1 where work was asked for and not used.
    limited_by : list of str
        What kept each client from more, most of the time.
    """

    names: tuple[str, ...]
    kinds: Mapping[str, list[int]]
    values: Mapping[str, FloatArray]
    limited_by: list[str]


def work_of(run: Run) -> Work:
    """Sort a run's records by client."""
    every = dict.fromkeys(name for record in run.records for name, _ in clients(record))
    first: dict[str, int] = {}
    for name in every:
        first.setdefault(_kind(name), len(first))
    order = {name: k for k, name in enumerate(sorted(every, key=lambda name: first[_kind(name)]))}
    kinds = {kind: [k for name, k in order.items() if _kind(name) == kind] for kind in first}
    task = ("epochs", "samples", "time_s", "energy_j", "energy_limit_j")
    values = {key: np.full((len(order), len(run.records)), math.nan) for key in (*task, "lost")}
    limits: list[Counter[str]] = [Counter() for _ in order]
    for n, record in enumerate(run.records):
        for name, row in clients(record):
            values["lost"][order[name], n] = row.outcome not in (Outcome.USED, Outcome.SKIPPED)
            limits[order[name]][row.limited_by] += row.samples > 0
            for key in task if row.asked else ():  # in a baseline round there are no epochs and samples
                values[key][order[name], n] = getattr(row, key) or math.nan
    limit = run.column("cycle_time_s")
    with np.errstate(divide="ignore", invalid="ignore"):
        values["time_share"] = values["time_s"] / limit
        values["energy_share"] = values["energy_j"] / values["energy_limit_j"]
    values["idle_s"] = np.maximum(limit - np.nan_to_num(values["time_s"]), 0.0)
    most = [(+count).most_common(1)[0][0] if +count else "" for count in limits]
    return Work(tuple(order), kinds, values, most)


def _kind(client: str) -> str:
    """Return a client's name without its number."""
    return re.sub(r"[\s._-]*\d+(\s*\(.*\))?$", "", client).strip() or "client"
