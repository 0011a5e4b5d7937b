"""Rows of a sweep: which cells belong together, and their numbers over seeds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from math import inf
from typing import Any, TypeVar

import numpy as np

from flwr_mel.solvers.schemes import SchemeName
from mel_simulation.scenario.config import RATE, RunConfig
from mel_simulation.sweep.results import Row

Key = TypeVar("Key")

_USUAL = RunConfig().as_dict()
#: What the paper leaves open, and the values that we take; `variations` has others.
USUAL = {key: _USUAL[key] for key in ("energy-spread", "min-samples", "batch-size", "learning-rate")}
#: The paper's own cells.
PLAIN = {
    "mode": "pl",
    "handout": "proportional",
    "average": "data",
    "baseline": "",
    "solver": "exact",
    **USUAL,
}


def trained(rows: Iterable[Row]) -> list[Row]:
    """Return the cells that have a curve."""
    return [row for row in rows if not row["trouble"] and row["accuracy"]]


def plain(rows: Iterable[Row]) -> list[Row]:
    """Return the paper's cells: its schemes, data, limits, hand-out and averaging, no baseline."""
    return [
        row
        for row in rows
        if row["config"]["scheme"] in tuple(SchemeName)
        and row["config"]["energy"]
        and all(row["config"].get(key, value) == value for key, value in PLAIN.items())
    ]


def cap(row: Row) -> int:
    """Return c; the synchronous schemes have 0 whatever their configuration says."""
    return 0 if row["config"]["scheme"].endswith("sync") else int(row["config"]["staleness"])


def family(row: Row) -> str:
    """Return "HA" or "HU"."""
    return str(row["config"]["scheme"][:2]).upper()


def method(row: Row) -> str:
    """Name a cell: a scheme with its c or frugality, or FedAvg with its epochs."""
    config = row["config"]
    if config["baseline"]:
        return f"FedAvg, {config['epochs']} epochs"
    if config["scheme"] == RATE:
        return f"rate, f = {config.get('frugality', 0.0):g}"
    return f"{family(row)}-Asyn c = {cap(row)}" if cap(row) else f"{family(row)}-Sync"


def server(row: Row) -> str:
    """Name what the server does with the average."""
    config = row["config"]
    return f"Adam, eta {config.get('eta', 0.004):g}" if config.get("optimizer") == "adam" else "average"


def setting(row: Row) -> tuple[float, float]:
    """Return (T, E)."""
    return float(row["config"]["cycle-time"]), float(row["config"]["energy"])


def by(rows: Iterable[Row], key: Callable[[Row], Key]) -> dict[Key, list[Row]]:
    """Group rows, each seed once (HA-Sync and HA-Asyn with c = 0 are one scheme); groups come sorted."""
    groups: dict[Any, dict[Hashable, Row]] = defaultdict(dict)
    for row in rows:
        groups[key(row)][row["config"]["seed"], cap(row), family(row), setting(row)] = row
    return {name: list(groups[name].values()) for name in sorted(groups)}


def cycles_to(row: Row, percent: float) -> float:
    """Return after how many cycles an accuracy is reached; infinite if never."""
    reached = (cycle for cycle, accuracy in enumerate(row["accuracy"], start=1) if 100 * accuracy >= percent)
    return next(reached, inf)


def cost_to(row: Row, percent: float, cost: str) -> float:
    """Return the sum of a cost ("makespan_s" or "energy_j") up to an accuracy; infinite if never."""
    cycles = cycles_to(row, percent)
    return inf if cycles == inf else float(sum(act[cost] for act in row["acts"][: int(cycles)]))


def gain_ratio(row: Row) -> float:
    """Return tau*/floor(tau*), averaged over the cycles: what rounding down costs the synchronous scheme."""
    ratios = [act["relaxed"] / np.floor(act["relaxed"]) for act in row["acts"] if act["relaxed"] >= 1]
    return float(np.mean(ratios)) if ratios else np.nan


def median(values: Sequence[float]) -> float:
    """Return the upper median, which may be infinite."""
    return float(np.sort(values)[len(values) // 2])
