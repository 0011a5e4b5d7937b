"""What the bouts say: the time and energy that a rival takes, relative to ours on the same seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, isfinite, log, sqrt
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from scipy.stats import t

from mel_simulation.arena.rivals import MOMENTUM, OURS, RIVALS
from mel_simulation.arena.run import mark, read_outcomes

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ratio:
    """A rival's cost over ours, geometric mean over paired seeds with a 95 % interval.

    Parameters
    ----------
    value, low, high : float
        The mean and the ends of its interval (0 and infinity where two seeds are too few).
    pairs : int
        Seeds in which at least one of the two reached the target.
    never : int
        Of these, seeds in which the rival did not; its cost there is taken for what it had spent by the
        end, so the ratio is too small.
    missed : int
        Seeds in which ours did not; the ratio is too large then.
    seeds : int
        Seeds with which both are finished.
    p : float
        Of the hypothesis that both take the same.
    """

    value: float
    low: float
    high: float
    pairs: int
    never: int
    missed: int
    seeds: int
    p: float = 1.0

    @property
    def verdict(self) -> str:
        """Say who is better, where the interval leaves no doubt."""
        if not self.seeds:
            return "not finished"
        if not self.pairs:
            return "neither"
        if self.low > 1 and not self.missed:
            return "ours"
        if self.high < 1 and not self.never:
            return "rival"
        return "open"


@dataclass(frozen=True, slots=True)
class Arena:
    """The results of a profile.

    Parameters
    ----------
    about : dict
        The first line of ``arena.jsonl``.
    rows : tuple of dict
        Finished bouts.
    """

    about: Row
    rows: tuple[Row, ...]

    @classmethod
    def read(cls, path: Path) -> Arena:
        """Read ``arena.jsonl``, or the directory that holds it."""
        about, rows = read_outcomes(path)
        return cls(about, tuple(rows))

    @property
    def names(self) -> list[str]:
        """All contestants, in the order of the registry, also those that are not finished."""
        here = set(self.about["rivals"]) if "rivals" in self.about else {row["rival"] for row in self.rows}
        return [name for name in RIVALS if name in here]

    def left(self, setting: str) -> int:
        """Return how many of a setting's reported bouts are not finished."""
        done = sum(len(self.reported(setting, rival)) for rival in self.names)
        return len(self.names) * len(self.about["seeds"]) - done

    def goal(self, setting: str) -> int:
        """Return the target by which all are compared: the last that half of the bouts reached."""
        rows = [row for rival in self.names for row in self.reported(setting, rival)]
        targets = next(each["targets"] for each in self.about["settings"] if each["name"] == setting)
        enough = [
            i
            for i in range(len(targets))
            if rows and mean(row["reached"][i] is not None for row in rows) >= 0.5
        ]
        return max(enough, default=0)

    def reported(self, setting: str, rival: str) -> list[Row]:
        """Return a rival's bouts with the seeds that are reported."""
        return [
            row
            for row in self.rows
            if row["setting"]["name"] == setting
            and row["rival"] == rival
            and row["seed"] in self.about["seeds"]
        ]

    def pick(self, setting: str, beside: str) -> str:
        """Return which of ours stands beside a contestant: one with momentum beside those that have it.

        Parameters
        ----------
        setting, beside : str
            Where, beside whom.
        """
        alike = [name for name in self.names if name in OURS and (name in MOMENTUM) == (beside in MOMENTUM)]
        return self.best(setting, alike) or (alike[0] if len(alike) == 1 else "ha-progress")

    def best(self, setting: str, among: Sequence[str]) -> str:
        """Return who was best on the tuning seed, of some; empty: nobody is known to be.

        Parameters
        ----------
        setting : str
            Where.
        among : sequence of str
            Of whom.
        """
        tuned = [
            (mark(row), row["rival"])
            for row in self.rows
            if row["setting"]["name"] == setting
            and row["rival"] in among
            and row["seed"] == self.about["tuning_seed"]
        ]
        return min(tuned)[1] if tuned else ""

    def ratio(self, setting: str, rival: str, target: int, what: str, ours: str = "") -> Ratio:
        """Compare a rival with one of ours.

        Parameters
        ----------
        setting, rival : str
            Where, who.
        target : int
            Which of the setting's targets.
        what : str
            "time_s" or "energy_j".
        ours : str
            Which; empty: our pick beside it.
        """
        mine = {row["seed"]: row for row in self.reported(setting, ours or self.pick(setting, rival))}
        theirs = {row["seed"]: row for row in self.reported(setting, rival)}
        logs, never, missed = [], 0, 0
        both = sorted(mine.keys() & theirs.keys())
        for seed in both:
            (a, done), (b, reached) = (cost(each[seed], target, what) for each in (mine, theirs))
            if done or reached:
                logs.append(log(b / a))
                never += not reached
                missed += not done
        return _interval(logs, never, missed, len(both))

    def typical(self, setting: str, rival: str, target: int, what: str) -> float:
        """Return the median cost over the seeds; infinity where half of them did not reach the target."""
        found = [cost(row, target, what) for row in self.reported(setting, rival)]
        return median(c if reached else inf for c, reached in found) if found else inf


def cost(row: Row, target: int, what: str) -> tuple[float, bool]:
    """Return what a bout took to a target and whether it got there; else what it had taken by its end."""
    reached = row["reached"][target]
    if reached is not None:
        return float(reached[what]), True
    at_s, _, energy_j = row["curve"][-1]
    return float(at_s if what == "time_s" else energy_j), False


def _interval(logs: Sequence[float], never: int, missed: int, seeds: int) -> Ratio:
    if not logs:
        return Ratio(1.0, 0.0, inf, 0, 0, 0, seeds)
    middle, n = mean(logs), len(logs)
    if n < 2:
        return Ratio(exp(middle), 0.0, inf, n, never, missed, seeds)
    error = stdev(logs) / sqrt(n)
    half = float(t.ppf(0.975, n - 1)) * error
    p = 2 * float(t.sf(abs(middle) / error, n - 1)) if error else float(not middle)
    return Ratio(exp(middle), exp(middle - half), exp(middle + half), n, never, missed, seeds, p)


def corrected(ratios: Sequence[Ratio]) -> list[str]:
    """Judge many comparisons at once, by Holm: all verdicts are right with 95 %, if seeds are normal.

    Parameters
    ----------
    ratios : sequence of Ratio
        All that are looked at.

    Returns
    -------
    list of str
        "ours" or "rival" of those that remain.
    """
    remain = []
    line = sorted((r for r in ratios if r.pairs > 1), key=lambda r: r.p)
    for i, ratio in enumerate(line):
        if ratio.p > 0.05 / (len(line) - i):
            break
        if ratio.verdict in ("ours", "rival"):
            remain.append(ratio.verdict)
    return remain


def written(ratio: Ratio) -> str:
    """Write a ratio for a table."""
    if not ratio.pairs:
        return ratio.verdict
    sign = "≥ " if ratio.never and not ratio.missed else "≤ " if ratio.missed and not ratio.never else ""
    span = f" ({ratio.low:.2f} to {ratio.high:.2f})" if isfinite(ratio.high) else ""
    return f"{sign}{ratio.value:.2f}{span}"
