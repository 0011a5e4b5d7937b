"""What the bouts show: the time and energy that a rival takes, relative to ours on the same seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, inf, log, sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from scipy.stats import t

from mel_simulation.arena.rivals import OURS, RIVALS, server_of
from mel_simulation.arena.run import mark, read_outcomes

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ratio:
    """A rival's cost over ours, geometric mean over paired seeds with a 95 % interval.

    Parameters
    ----------
    value, low, high : float
        The mean and its interval (0 to infinity where there are fewer than two seeds).
    pairs : int
        Seeds in which at least one of the two reached the target.
    never : int
        Of these, seeds in which the rival did not; its cost there is what it had spent by the end, so the
        ratio is too small.
    missed : int
        Seeds in which ours did not; the ratio is too large then.
    p : float
        Of the hypothesis that both take the same.
    """

    value: float = 1.0
    low: float = 0.0
    high: float = inf
    pairs: int = 0
    never: int = 0
    missed: int = 0
    p: float = 1.0

    @property
    def verdict(self) -> str:
        """Return "ours" or "rival" where the interval leaves no doubt, else "open"; "-" without data."""
        if not self.pairs:
            return "-"
        if self.low > 1 and not self.missed:
            return "ours"
        return "rival" if self.high < 1 and not self.never else "open"

    def __str__(self) -> str:
        if not self.pairs:
            return "-"
        sign = "≥ " if self.never and not self.missed else "≤ " if self.missed and not self.never else ""
        return f"{sign}{self.value:.2f}"

    @property
    def interval(self) -> str:
        """The ratio with its interval."""
        return f"{self} ({self.low:.2f} to {self.high:.2f})" if self.pairs > 1 else str(self)


@dataclass(frozen=True, slots=True)
class Arena:
    """The results of a profile: the first line of ``arena.jsonl``, and the finished bouts."""

    about: Row
    rows: tuple[Row, ...]
    _bouts: dict[tuple[str, str], list[Row]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for row in self.rows:
            self._bouts.setdefault((row["setting"]["name"], row["rival"]), []).append(row)

    @classmethod
    def read(cls, path: Path) -> Arena:
        """Read ``arena.jsonl``, or the directory that holds it."""
        about, rows = read_outcomes(path)
        return cls(about, tuple(rows))

    @property
    def names(self) -> list[str]:
        """All contestants, in the order of the registry."""
        return [name for name in RIVALS if name in self.about["rivals"]]

    @property
    def rivals(self) -> list[str]:
        """Those that are not ours."""
        return [name for name in self.names if name not in OURS]

    def goal(self, setting: str) -> int:
        """Return the target by which all are compared: the last that half of the bouts reached."""
        rows = [row for rival in self.names for row in self.reported(setting, rival)]
        targets = next(each["targets"] for each in self.about["settings"] if each["name"] == setting)
        reached = [
            i
            for i in range(len(targets))
            if rows and mean(row["reached"][i] is not None for row in rows) >= 0.5
        ]
        return max(reached, default=0)

    def reported(self, setting: str, rival: str) -> list[Row]:
        """Return a rival's bouts with the seeds that are reported."""
        return [row for row in self._bouts.get((setting, rival), []) if row["seed"] in self.about["seeds"]]

    def pick(self, setting: str, beside: str) -> str:
        """Return which of ours is compared with a contestant: the best one with the same server."""
        alike = [name for name in self.names if name in OURS and server_of(name) == server_of(beside)]
        return self.best(setting, alike) or next(iter(alike), "")

    def best(self, setting: str, among: Sequence[str]) -> str:
        """Return the best of some contestants on the tuning seed; empty: not known."""
        tuned = [
            (mark(row), rival)
            for rival in among
            for row in self._bouts.get((setting, rival), [])
            if row["seed"] == self.about["tuning_seed"]
        ]
        return min(tuned)[1] if tuned else ""

    def ratio(self, setting: str, rival: str, target: int, what: str, ours: str = "") -> Ratio:
        """Compare a rival with one of ours.

        Parameters
        ----------
        setting, rival : str
            Names; an empty rival compares with nothing.
        target : int
            Which of the setting's targets.
        what : str
            "time_s" or "energy_j".
        ours : str
            Which of ours; empty: see `pick`.
        """
        if not rival:
            return Ratio()
        mine = {row["seed"]: row for row in self.reported(setting, ours or self.pick(setting, rival))}
        theirs = {row["seed"]: row for row in self.reported(setting, rival)}
        logs, never, missed = [], 0, 0
        for seed in sorted(mine.keys() & theirs.keys()):
            (a, done), (b, reached) = (cost(each[seed], target, what) for each in (mine, theirs))
            if done or reached:
                logs.append(log(b / a))
                never += not reached
                missed += not done
        return _ratio(logs, never, missed)


def cost(row: Row, target: int, what: str) -> tuple[float, bool]:
    """Return what a bout took to a target and True; or what it had taken by its end and False."""
    reached = row["reached"][target]
    if reached is not None:
        return float(reached[what]), True
    at_s, _, energy_j = row["curve"][-1]
    return float(at_s if what == "time_s" else energy_j), False


def _ratio(logs: Sequence[float], never: int, missed: int) -> Ratio:
    if not logs:
        return Ratio()
    middle, n = mean(logs), len(logs)
    if n < 2:
        return Ratio(exp(middle), pairs=n, never=never, missed=missed)
    error = stdev(logs) / sqrt(n)
    half = float(t.ppf(0.975, n - 1)) * error
    p = 2 * float(t.sf(abs(middle) / error, n - 1)) if error else float(not middle)
    return Ratio(exp(middle), exp(middle - half), exp(middle + half), n, never, missed, p)


def corrected(ratios: Sequence[Ratio]) -> list[str]:
    """Return the verdicts that remain when many comparisons are judged at once (Holm, 5 %)."""
    remain = []
    line = sorted((r for r in ratios if r.pairs > 1), key=lambda r: r.p)
    for i, ratio in enumerate(line):
        if ratio.p > 0.05 / (len(line) - i):
            break
        if ratio.verdict in ("ours", "rival"):
            remain.append(ratio.verdict)
    return remain
