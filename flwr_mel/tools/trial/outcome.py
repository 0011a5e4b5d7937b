"""What the runs of an app brought: a column per run, beside the app as it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from flwr_mel.tools.report.markup import DASH, percent, short
from flwr_mel.tools.report.runs import Run, common_level


def outcomes(runs: Mapping[str, Run], target: float | None) -> tuple[float | None, dict[str, dict[str, Any]]]:
    """Return the accuracy that times are compared at, and the figures of each run; None where unknown.

    Parameters
    ----------
    runs : mapping
        By name; the first is the app as it is.
    target : float, optional
        The accuracy. None: the best that all runs reach.
    """
    best = common_level(list(runs.values()))
    level = target if target is not None else best if math.isfinite(best) else None
    return level, {name: _outcome(run, level) for name, run in runs.items()}


def _outcome(run: Run, level: float | None) -> dict[str, Any]:
    n, at = len(run.records), None if level is None else run.first(level)
    work, rows = run.column("work"), [row for record in run.records for row in record.asked]
    busy = sum(row.train_s or 0.0 for row in rows)
    there = sum(took * len(record.asked) for took, record in zip(run.round_s, run.records, strict=True))
    spent = run.joules
    return {
        "rounds": n,
        "best_accuracy": float(np.nanmax(run.learned, initial=-math.inf)) if run.is_share else None,
        "seconds_per_round": float(run.column("clock_s")[-1]) / n,
        "joules_per_round": float(spent[-1]) / n if run.energy_known else None,
        "rounds_to_accuracy": None if at is None else at + 1,
        "seconds_to_accuracy": None if at is None else float(run.column("clock_s")[at]),
        "joules_to_accuracy": None if at is None or not run.energy_known else float(spent[at]),
        "work": float(np.nanmean(work)) if np.isfinite(work).any() else None,
        "idle": 1 - busy / there if there else None,
    }


def rows_of(level: float | None, found: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Return the rows of the table: a name, then a cell per run, times with their gain."""
    to = "" if level is None else f" to {percent(level, 1)}"
    first = next(iter(found.values()))

    def cells(key: str, unit: str) -> list[str]:
        return [short(x[key], unit) for x in found.values()]

    def gains(key: str, unit: str) -> list[str]:
        compared = [
            f" ({short(first[key] / x[key])} x)" if x is not first and first[key] and x[key] else ""
            for x in found.values()
        ]
        return [f"{cell}{gain}" for cell, gain in zip(cells(key, unit), compared, strict=True)]

    rows = [
        ["time per round", *cells("seconds_per_round", "s")],
        ["energy per round", *cells("joules_per_round", "J")],
        [f"time{to}", *gains("seconds_to_accuracy", "s")],
        [f"energy{to}", *gains("joules_to_accuracy", "J")],
        [f"rounds{to}", *cells("rounds_to_accuracy", "")],
        ["work per round, relative", *(_share(x["work"]) for x in found.values())],
        ["idle time", *(_share(x["idle"]) for x in found.values())],
    ]
    if level is None:
        rows = [row for row in rows if not row[0].startswith(("time to", "energy to", "rounds"))][:]
        rows = [row for row in rows if row[0] not in ("time", "energy", "rounds")]
    return [row for row in rows if any(cell != DASH for cell in row[1:])]


def _share(x: float | None) -> str:
    return DASH if x is None else percent(x, 0)
