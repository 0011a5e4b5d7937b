"""A run's records and settings, and the same as arrays of clients by rounds."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import Any

import numpy as np

from flwr_mel._validate import FloatArray, complain
from flwr_mel.records import CycleRecord, LearnerRecord, Outcome, read_jsonl
from flwr_mel.tools.report.markup import duration, plural

RECORDS = "records.jsonl"
#: The status of a round of the project's own work.
BASELINE = "baseline"
#: A run is taken for ended if no round came for this many of its longest, and for this many seconds.
_SILENT_ROUNDS, _SILENT_S = 3, 300.0


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
    def title(self) -> str:
        """What the run is about: its app or data set, its scheme, and its size."""
        keys = ("app", "dataset", "fleet", "run", "scheme")
        known = [str(self.config[key]) for key in keys if key in self.config]
        names = {name for record in self.records for name, _ in clients(record)}
        return ", ".join([*known, plural(len(names), "client"), plural(self.records[-1].cycle, "round")])

    @property
    def observed(self) -> bool:
        """Whether every round was the project's own."""
        return all(record.status == BASELINE for record in self.records)

    @property
    def round_s(self) -> FloatArray:
        """How long each round took: on the server's clock where it ran, else planned."""
        return np.diff(self.column("clock_s"), prepend=0.0)

    def period(self) -> str:
        """When a run with a clock began, and how long it took."""
        began = self.column("began_at")
        if not np.isfinite(began).any():
            return ""
        first, last = np.nanmin(began), np.nanmax(began + np.nan_to_num(self.column("waited_s")))
        date = datetime.fromtimestamp(first, UTC)
        return f"{date:%d %B %Y, %H:%M} UTC, {duration(last - first)}"

    def state(self, now: float | None = None) -> tuple[bool, str]:
        """Return whether the run is at its end or under way, and the state in one phrase.

        A run whose records say neither is under way until it is silent for several rounds.
        """
        last, wanted = self.records[-1], self.config.get("cycles", 0)
        done = f"{plural(last.cycle, 'round')} done"
        if last.stopped or last.cycle >= wanted > 0:
            return True, last.stopped or done
        if last.began_at:
            ended = last.began_at + (last.waited_s or 0.0)
            patience = max(_SILENT_ROUNDS * float(np.max(self.round_s)), _SILENT_S)
            if (now or time()) - ended < patience:
                return True, f"running: {done} when this page was made"
            done += f", the last on {datetime.fromtimestamp(ended, UTC):%d %B %Y at %H:%M} UTC"
        return not wanted, f"interrupted: {done} of {wanted:,}" if wanted else done

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

    @property
    def loss(self) -> FloatArray:
        """The loss, one value per round, NaN where it is absent: of the evaluation, else of training."""
        names = dict.fromkeys(name for record in self.records for name in record.metrics)
        losses = sorted((name for name in names if "loss" in name.lower()), key=lambda name: "train" in name)
        return np.array([r.metrics.get(losses[0], math.nan) if losses else math.nan for r in self.records])

    def first(self, level: float) -> int | None:
        """Return the index of the first record whose accuracy is at least `level`; None: never."""
        return next((n for n, x in enumerate(self.learned) if self.is_share and x >= level), None)


def common_level(runs: Sequence[Run]) -> float:
    """Return the best accuracy that all runs reach; NaN if one has none."""
    best = [np.nanmax(run.learned, initial=-math.inf) if run.is_share else math.nan for run in runs]
    return float(min(best))


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
        epochs, samples, energy_j, energy_limit_j; plan_s, and spent_s as measured, else planned;
        time_share and energy_share of T and E_k; idle_s, the rest of the round; lost, 1 where work was
        asked for and not used.
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
    task = ("epochs", "samples", "energy_j", "energy_limit_j")
    keys = (*task, "plan_s", "spent_s", "lost")
    values = {key: np.full((len(order), len(run.records)), math.nan) for key in keys}
    limits: list[Counter[str]] = [Counter() for _ in order]
    for n, record in enumerate(run.records):
        for name, row in clients(record):
            values["lost"][order[name], n] = row.outcome not in (Outcome.USED, Outcome.SKIPPED)
            limits[order[name]][row.limited_by] += row.samples > 0
            if row.asked:
                for key in task:  # in a baseline round there are no epochs and samples
                    values[key][order[name], n] = getattr(row, key) or math.nan
                values["plan_s"][order[name], n] = row.time_s or math.nan
                measured = (row.round_trip_s or row.train_s) if record.waited_s is not None else None
                spent = row.time_s if measured is None else measured
                values["spent_s"][order[name], n] = spent or math.nan
    limit = run.column("cycle_time_s")
    with np.errstate(divide="ignore", invalid="ignore"):
        values["time_share"] = values["spent_s"] / limit
        values["energy_share"] = values["energy_j"] / values["energy_limit_j"]
    until = run.round_s if run.real else limit
    values["idle_s"] = np.maximum(until - np.nan_to_num(values["spent_s"]), 0.0)
    most = [(+count).most_common(1)[0][0] if +count else "" for count in limits]
    return Work(tuple(order), kinds, values, most)


def _kind(client: str) -> str:
    """Return a client's name without its number."""
    return re.sub(r"[\s._-]*\d+(\s*\(.*\))?$", "", client).strip() or "client"
