"""Who did what in which cycle: the records as arrays of learners by cycles."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from flwr_mel._validate import FloatArray
from flwr_mel.records import CycleRecord, LearnerRecord, Outcome
from flwr_mel.report.numerals import finite
from flwr_mel.report.run import Run

#: More classes than colours help nobody: the smallest are put together.
MOST_CLASSES = 7
OTHER = "other"

BoolArray: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceClass:
    """Learners of one kind: their rows in the ledger and their colour."""

    name: str
    rows: tuple[int, ...]
    colour: int


@dataclass(frozen=True, slots=True, eq=False)
class Ledger:
    """Learners by cycles; NaN where a learner was not there or did nothing.

    Parameters
    ----------
    learners : tuple of str
        Names, grouped by class.
    classes : tuple of DeviceClass
        In the order of the rows.
    epochs, samples, time_s, energy_j : float arrays, shape (learners, cycles)
        The task and what it costs by the cost model; NaN where there was none.
    receive_s, send_s : float arrays of the same shape
        The parts of time_s for the task's and the reply's way; NaN where they are not on record.
    energy_limit_j, idle_s : float arrays of the same shape
        E_k (NaN: no limit) and T minus the busy time (NaN: not there).
    time_share, energy_share : float arrays of the same shape
        Of T and E_k.
    share : float array of the same shape
        What part of the model its data are; NaN: not there.
    failed : bool array of the same shape
        Where work was asked for and not used.
    limited_by : tuple of str
        What kept each learner from more, most of the time.
    """

    learners: tuple[str, ...]
    classes: tuple[DeviceClass, ...]
    epochs: FloatArray
    samples: FloatArray
    time_s: FloatArray
    energy_j: FloatArray
    receive_s: FloatArray
    send_s: FloatArray
    energy_limit_j: FloatArray
    idle_s: FloatArray
    time_share: FloatArray
    energy_share: FloatArray
    share: FloatArray
    failed: BoolArray
    limited_by: tuple[str, ...]

    @property
    def class_of(self) -> list[DeviceClass]:
        """The class of each learner."""
        found = {k: c for c in self.classes for k in c.rows}
        return [found[k] for k in range(len(self.learners))]


def named(record: CycleRecord) -> Iterator[tuple[str, LearnerRecord]]:
    """Return a cycle's learners, told apart by their node when two have the same name."""
    names = Counter(row.learner for row in record.learners)
    for row in record.learners:
        twice = names[row.learner] > 1 and row.node != row.learner
        yield (f"{row.learner} ({row.node})" if twice else str(row.learner)), row


def ledger(run: Run) -> Ledger:
    """Sort a run's records by learner.

    Parameters
    ----------
    run : Run
        At least one record.
    """
    seen = dict.fromkeys(name for record in run.records for name, _ in named(record))
    classes = _classes(list(seen), run.fleet)
    order = [name for _, members in classes for name in members]
    where = {name: k for k, name in enumerate(order)}
    shape = (len(order), len(run.records))
    fields = ("epochs", "samples", "time_s", "energy_j", "receive_s", "send_s")
    values = {field: np.full(shape, math.nan) for field in (*fields, "energy_limit_j", "idle_s", "share")}
    failed, spans = np.zeros(shape, dtype=np.bool_), np.ones(shape)
    limits: list[Counter[str]] = [Counter() for _ in order]
    for n, record in enumerate(run.records):
        cycle_time = finite(record.cycle_time_s)
        for name, row in named(record):
            k = where[name]
            values["energy_limit_j"][k, n] = finite(row.energy_limit_j)
            values["share"][k, n] = finite(row.share)
            busy = finite(row.time_s) if finite(row.samples) > 0 else 0.0
            busy = cycle_time if row.outcome is Outcome.BUSY else busy
            values["idle_s"][k, n] = max(0.0, cycle_time - busy)
            if finite(row.samples) > 0:
                for field in fields:
                    values[field][k, n] = finite(getattr(row, field))
                limits[k][str(row.limited_by or "")] += 1
                spans[k, n] = row.span
            failed[k, n] = row.outcome not in (Outcome.USED, Outcome.LEFT_OUT, Outcome.BUSY)
        # Of learners that are not there any more updates may count still.
        here = {name for name, _ in named(record)}
        for x in record.echoes:
            if x.learner in where and x.learner not in here:
                k = where[x.learner]
                values["share"][k, n] = np.nansum([values["share"][k, n], finite(x.share)])
    cycle_times = np.array([finite(record.cycle_time_s) for record in run.records])
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = values["time_s"] / (cycle_times * spans), values["energy_j"] / values["energy_limit_j"]
    return Ledger(
        learners=tuple(order),
        classes=tuple(_ranked(classes)),
        time_share=_known(shares[0]),
        energy_share=_known(shares[1]),
        failed=failed,
        limited_by=tuple(count.most_common(1)[0][0] if count else "" for count in limits),
        **values,
    )


def _known(values: FloatArray) -> FloatArray:
    return np.where(np.isfinite(values), values, math.nan)


def _ranked(classes: Sequence[tuple[str, Sequence[str]]]) -> Iterator[DeviceClass]:
    start = 0
    for i, (name, members) in enumerate(classes):
        yield DeviceClass(name, tuple(range(start, start + len(members))), i)
        start += len(members)


def class_name(learner: str) -> str:
    """Return a learner's class: its name without the trailing number."""
    return re.sub(r"[\s._-]*\d+(\s*\(.*\))?$", "", learner).strip() or "learner"


def _classes(names: Sequence[str], fleet: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """Group the names; the fastest class first where clocks are known, as first seen otherwise."""
    sheets = {str(sheet.get("name")): sheet for sheet in fleet}
    groups: dict[str, list[str]] = {}
    for name in names:
        told = sheets.get(name, {}).get("class")
        groups.setdefault(told if isinstance(told, str) and told else class_name(name), []).append(name)
    if len(groups) > MOST_CLASSES:
        large = sorted(groups, key=lambda g: -len(groups[g]))[: MOST_CLASSES - 1]
        rest = [name for group, members in groups.items() if group not in large for name in members]
        groups = {group: members for group, members in groups.items() if group in large} | {OTHER: rest}

    def speed(item: tuple[str, list[str]]) -> float:
        clocks = [finite(sheets.get(name, {}).get("cpu_hz")) for name in item[1]]
        known = [c for c in clocks if not math.isnan(c)]
        return -sum(known) / len(known) if known and item[0] != OTHER else math.inf

    return sorted(groups.items(), key=speed)


def metric(run: Run, key: str) -> FloatArray:
    """Return one metric per cycle; NaN where it is absent."""
    return np.array([finite((record.metrics or {}).get(key)) for record in run.records])


def column(run: Run, field: str) -> FloatArray:
    """Return one number of every record."""
    return np.array([finite(getattr(record, field)) for record in run.records])


def rising(run: Run, field: str) -> FloatArray:
    """Return a counter of the records, which never falls: a cycle without work may say 0."""
    return np.maximum.accumulate(np.nan_to_num(column(run, field), nan=0.0))


def time_spent(run: Run) -> tuple[str, FloatArray]:
    """Return what to call the time of a run, and how much had passed after each cycle.

    By the server's clock where it is on record, from the first cycle's beginning and without what lies
    between an interruption and its end; else by the cost model.
    """
    if run.real:
        return "time", np.cumsum(np.nan_to_num(column(run, "duration_s"), nan=0.0))
    return "virtual time", rising(run, "clock_s")


def first_reached(run: Run, level: float) -> int | None:
    """Return the index of the first record whose accuracy is at least `level`; None: never."""
    hits = np.flatnonzero(metric(run, "accuracy") >= level)
    return int(hits[0]) if len(hits) else None
