"""What the bouts show: the time and energy that a rival takes, relative to ours on the same seeds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from scipy.stats import t

from mel_simulation.arena.rivals import OURS, RIVALS, server_of
from mel_simulation.arena.run import mark, read_outcomes

Row = dict[str, Any]
#: What is compared, and how it is called.
COSTS = {"time_s": "time", "energy_j": "energy"}


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

    @classmethod
    def of(cls, logs: Sequence[float], never: int, missed: int) -> Ratio:
        """Return the mean and interval of the logarithms of single seeds' ratios."""
        n = len(logs)
        if n < 2:
            return cls(exp(sum(logs)), pairs=n, never=never, missed=missed)
        middle, error = mean(logs), stdev(logs) / sqrt(n)
        half = float(t.ppf(0.975, n - 1)) * error
        p = 2 * float(t.sf(abs(middle) / error, n - 1)) if error else float(not middle)
        return cls(exp(middle), exp(middle - half), exp(middle + half), n, never, missed, p)

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
        sign = "≥" if self.never and not self.missed else "≤" if self.missed and not self.never else ""
        interval = f" ({self.low:.2f}-{self.high:.2f})" if self.pairs > 1 else ""
        return f"{sign}{self.value:.2f}{interval}"


class Arena:
    """The results of a profile.

    Parameters
    ----------
    about : dict
        The first line of ``arena.jsonl``.
    rows : sequence of dict
        The finished bouts.
    """

    def __init__(self, about: Row, rows: Sequence[Row]) -> None:
        self.about, self.rows = about, rows
        self.settings: list[str] = [setting["name"] for setting in about["settings"]]
        #: Our contestants and all others, in the order of the registry.
        self.ours = [name for name in OURS if name in about["rivals"]]
        self.rivals = [name for name in RIVALS if name in about["rivals"] and name not in OURS]
        self._bouts: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in rows:
            self._bouts[row["setting"]["name"], row["rival"]].append(row)

    @classmethod
    def read(cls, path: Path) -> Arena:
        """Read ``arena.jsonl``, or the directory that holds it."""
        return cls(*read_outcomes(path))

    def reported(self, setting: str, rival: str) -> dict[int, Row]:
        """Return a contestant's bouts by seed."""
        return {row["seed"]: row for row in self._bouts[setting, rival] if row["seed"] in self.about["seeds"]}

    def best(self, setting: str, among: Sequence[str]) -> str:
        """Return the best of some contestants on the tuning seed; empty: not known."""
        rows = [row for name in among for row in self._bouts[setting, name]]
        tuned = [(mark(row), row["rival"]) for row in rows if row["seed"] == self.about["tuning_seed"]]
        return min(tuned)[1] if tuned else ""

    def ratio(self, setting: str, rival: str, what: str, ours: str = "", target: int = -1) -> Ratio:
        """Compare a rival with one of ours.

        Parameters
        ----------
        setting, rival : str
            Names; an empty rival compares with nothing.
        what : str
            "time_s" or "energy_j".
        ours : str
            Which of ours; empty: the best one with the same server, or the first one if nothing was tuned.
        target : int
            Which of the setting's targets; by default the last one.
        """
        if not rival:
            return Ratio()
        alike = [name for name in self.ours if server_of(name) == server_of(rival)]
        mine = self.reported(setting, ours or self.best(setting, alike) or next(iter(alike), ""))
        theirs = self.reported(setting, rival)
        logs, never, missed = [], 0, 0
        for seed in mine.keys() & theirs.keys():
            (a, done), (b, reached) = (cost(each[seed], target, what) for each in (mine, theirs))
            if done or reached:
                logs.append(log(b / a))
                never += not reached
                missed += not done
        return Ratio.of(logs, never, missed)


def cost(row: Row, target: int, what: str) -> tuple[float, bool]:
    """Return what a bout took to a target and True; or what it had taken by its end and False."""
    reached = row["reached"][target]
    if reached is not None:
        return float(reached[what]), True
    at_s, _, energy_j = row["curve"][-1]
    return float(at_s if what == "time_s" else energy_j), False


def corrected(ratios: Sequence[Ratio]) -> list[str]:
    """Return the verdicts that remain when many comparisons are judged at once (Holm, 5 %)."""
    line = sorted((r for r in ratios if r.pairs > 1), key=lambda r: r.p)
    beyond = (i for i, ratio in enumerate(line) if ratio.p > 0.05 / (len(line) - i))
    sure = next(beyond, len(line))
    return [ratio.verdict if i < sure else "open" for i, ratio in enumerate(line)]
