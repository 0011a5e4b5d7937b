"""Costs to an accuracy, compared seed by seed, also where a run ended before it got there.

A run that does not reach the accuracy costs at least what it spent. So a pair of runs gives a ratio, or only
the most or the least that it can be; a verdict is drawn from what is certain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np

from mel_simulation.paper.plain_words import margin
from mel_simulation.paper.rows import Row, cycles_to, running


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run cost until it reached an accuracy, or in all if it did not."""

    cost: float
    reached: bool


def spent(row: Row, goal: float, cost: str) -> Spent:
    """Count a cost ("makespan_s", "energy_j" or "progress") to an accuracy.

    Parameters
    ----------
    row : dict
        A cell.
    goal : float
        Accuracy, 0 to 1.
    cost : str
        A key of the acts.
    """
    cycles, so_far = cycles_to(row, goal), running(row, cost)
    reached = bool(np.isfinite(cycles))
    return Spent(float(so_far[int(cycles) - 1 if reached else -1]), reached)


@dataclass(frozen=True, slots=True)
class Comparison:
    """How many times the rival's cost ours is, in the geometric mean over pairs with the same seed.

    Parameters
    ----------
    times, low, high : float
        The ratio and its 95 % interval; not a number where there are too few pairs.
    pairs : int
        Seeds that both have.
    sign : str
        "=", or "<" or ">" where the ratio is smaller or larger because runs of the rival or of ours did not
        get there, or "?" where both happened.
    missed, rival_missed : int
        Seeds with which we, and with which the rival did not get there.
    """

    times: float
    low: float
    high: float
    pairs: int
    sign: str
    missed: int
    rival_missed: int

    @property
    def verdict(self) -> str:
        """Say "better", "worse", "no clear difference", or why nothing can be said."""
        if not self.pairs:
            return "no common seeds"
        if self.missed == self.rival_missed == self.pairs:
            return "neither reaches it"
        if self.pairs == 1:
            return "one seed"
        if self.high < 1 and self.sign in "=<":
            return "better"
        if self.low > 1 and self.sign in "=>":
            return "worse"
        return "no clear difference" if self.sign == "=" else "open"

    def __str__(self) -> str:
        if not self.pairs or self.sign == "?":
            return "-"
        sign = "" if self.sign == "=" else f"{self.sign} "
        if self.pairs == 1:
            return f"{sign}{self.times:.2f}"
        return f"{sign}{self.times:.2f} ({self.low:.2f} to {self.high:.2f})"


def compare(own: Mapping[int, Spent], rival: Mapping[int, Spent]) -> Comparison:
    """Compare costs by seed.

    Parameters
    ----------
    own, rival : mapping of int to Spent
        By seed.
    """
    pairs = [(own[seed], rival[seed]) for seed in sorted(own) if seed in rival]
    missed, rival_missed = sum(not a.reached for a, _ in pairs), sum(not b.reached for _, b in pairs)
    sign = "?" if missed and rival_missed else "<" if rival_missed else ">" if missed else "="
    logs = [float(np.log(a.cost / b.cost)) for a, b in pairs]
    middle = mean(logs) if logs else np.nan
    width = margin(logs) if len(logs) > 1 else np.nan
    times, low, high = (float(np.exp(x)) for x in (middle, middle - width, middle + width))
    return Comparison(times, low, high, len(pairs), sign, missed, rival_missed)


def by_seed(rows: Sequence[Row], goal: float, cost: str) -> dict[int, Spent]:
    """Return what each seed's run spent.

    Parameters
    ----------
    rows : sequence of dict
        Cells, one per seed.
    goal : float
        Accuracy.
    cost : str
        A key of the acts.
    """
    return {int(row["config"]["seed"]): spent(row, goal, cost) for row in rows}


def rate(rows: Sequence[Row], cost: str) -> float:
    """Return S per cost, over all cycles: what theory takes for the speed.

    Parameters
    ----------
    rows : sequence of dict
        Cells.
    cost : str
        A key of the acts.
    """
    acts = [act for row in rows for act in row["acts"]]
    return float(sum(act["progress"] for act in acts) / sum(act[cost] for act in acts))
