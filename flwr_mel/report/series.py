"""Runs that belong together: what differs between them names them, and seeds of one set-up are one series."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np

from flwr_mel._validate import FloatArray
from flwr_mel.report.headline import scheme_name, title
from flwr_mel.report.ledger import column, first_reached, metric, rising
from flwr_mel.report.numerals import DASH, JOULES, SECONDS, measure, plural, short
from flwr_mel.report.run import Run
from flwr_mel.report.tables import written

#: Settings that tell runs apart, and how they are written; others follow with their names.
_TELLING = {
    "scheme": "", "staleness": "c=", "mode": "", "cycle-time": "T=", "energy": "E=", "fleet": "",
    "dataset": "", "alpha": "alpha=", "solver": "", "handout": "", "learners": "K=", "seed": "seed ",
}  # fmt: skip
#: Where a run lies and how it is carried; nobody compares runs by that.
_IDLE = {"run-dir", "data-dir", "resume", "api"}
#: From how many runs on seeds of a single set-up are put together; fewer are better seen one by one.
_ENOUGH = 3


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Runs that differ in their seeds alone.

    Parameters
    ----------
    label : str
        What sets it apart from the others.
    runs : tuple of Run
        At least one.
    """

    label: str
    runs: tuple[Run, ...]

    def table(self, read: Callable[[Run], FloatArray]) -> FloatArray:
        """Return what `read` gives for each run, a row per run; NaN beyond its last cycle."""
        rows = [read(run) for run in self.runs]
        longest = max(map(len, rows))
        return np.array([np.append(row, np.full(longest - len(row), math.nan)) for row in rows])

    @property
    def accuracy(self) -> FloatArray:
        """A row per run."""
        return self.table(lambda run: metric(run, "accuracy"))

    @property
    def cycles(self) -> FloatArray:
        """Numbers of the longest run's cycles."""
        return column(max(self.runs, key=lambda run: len(run.records)), "cycle")

    def values(self, read: Callable[[Run], float]) -> FloatArray:
        """Return one number per run."""
        return np.array([read(run) for run in self.runs])

    def setting(self, key: str) -> str:
        """Write a setting; the runs' values if they differ."""
        known = dict.fromkeys(_value(run, key) for run in self.runs)
        return ", ".join(text or DASH for text in known)


def series(runs: Sequence[Run]) -> list[Series]:
    """Put runs that differ in their seeds alone together, and name each by what sets it apart.

    Parameters
    ----------
    runs : sequence of Run
        Two or more.
    """
    groups: dict[object, list[Run]] = {}
    for i, run in enumerate(runs):
        groups.setdefault(_setup(run) or i, []).append(run)
    if len(groups) == 1 and len(runs) < _ENOUGH:
        groups = {i: [run] for i, run in enumerate(runs)}
    names = _names([group[0] for group in groups.values()])
    return [Series(name, tuple(group)) for name, group in zip(names, groups.values(), strict=True)]


def labels(runs: Sequence[Run]) -> list[str]:
    """Name runs so that no two names are equal: by what sets them apart, or else by directory."""
    return _names(runs)


def differing(rows: Sequence[Series]) -> list[str]:
    """Return the settings in which series, or the runs within, differ."""
    every = [run for row in rows for run in row.runs]
    keys = dict.fromkeys([*_TELLING, *(_spelled(key) for run in every for key in run.config)])
    return [key for key in keys if key not in _IDLE and len({_value(run, key) for run in every}) > 1]


def _spelled(key: object) -> str:
    return str(key).replace("_", "-")


def _value(run: Run, key: str) -> str:
    """Write a setting as it was in force; "" if there was none."""
    value: Any = run.setting(key)
    if value is None or value == "":
        return ""
    if key == "scheme":
        return scheme_name(run)
    if key == "fleet":
        return PurePath(str(value)).name
    if key in ("energy", "energy-spread") and run.setting("fleet"):
        return ""
    if key == "staleness" and str(run.setting("scheme")).endswith("sync"):
        return ""
    return written(value)


def _setup(run: Run) -> str:
    """Return everything that was set but the seed; "" if nothing is known."""
    keys = sorted({_spelled(key) for key in run.config} - _IDLE - {"seed", "cycles"})
    return "\n".join(f"{key}={_value(run, key)}" for key in keys)


def _names(runs: Sequence[Run]) -> list[str]:
    if len(runs) == 1:
        return [title(runs[0])]
    alone = [Series("", (run,)) for run in runs]
    keys = differing(alone)
    told = [
        " ".join(f"{_TELLING.get(key, f'{key}=')}{text}" for key in keys if (text := _value(run, key)))
        for run in runs
    ]
    clear = len(set(told)) == len(told)
    names = told if clear and all(told) else [run.name for run in runs]
    twice = Counter(names)
    names = [
        f"{run.path.resolve().parent.name}/{name}" if twice[name] > 1 else name
        for run, name in zip(runs, names, strict=True)
    ]
    seen: Counter[str] = Counter()
    result = []
    for name in names:
        seen[name] += 1
        result.append(f"{name} #{seen[name]}" if seen[name] > 1 else name)
    return result


def cost_of(row: Series, level: float) -> tuple[str, str]:
    """Say what an accuracy cost, in the mean over runs: cycles, and then virtual time and energy.

    Parameters
    ----------
    row : Series
        The runs.
    level : float
        The accuracy.
    """
    found = [(run, first_reached(run, level)) for run in row.runs]
    reached = [(run, n) for run, n in found if n is not None]
    if len(reached) < len(found):
        return DASH, f"{len(reached):,} of {plural(len(found), 'run')}" if reached else ""
    cycles = float(np.mean([run.records[n].cycle for run, n in reached]))
    clock = float(np.mean([rising(run, "clock_s")[n] for run, n in reached]))
    joules = float(np.mean([rising(run, "total_energy_j")[n] for run, n in reached]))
    words = "1 cycle" if cycles == 1 else f"{short(cycles, 3)} cycles"
    return words, f"{measure(clock, SECONDS)}, {measure(joules, JOULES)}"
