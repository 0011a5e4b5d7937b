"""Cross-validation of c: short simulations of a fleet with the c that are worth a try."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

from flwr_mel.cli.shared import stop
from flwr_mel.recommend import Candidate


@dataclass(frozen=True, slots=True)
class Trial:
    """One c: the accuracies after the last cycle, one per seed, their mean and standard deviation."""

    staleness: int
    accuracy: tuple[float, ...]
    mean: float
    spread: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which c the trials pick, under which rule, and in which words."""

    staleness: int
    cycles: int
    seeds: int
    handout: str
    objective: str
    exclude: str
    trials: tuple[Trial, ...]
    within_spread: bool
    text: str
    notice: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Setup:
    """How long and on what the trials train."""

    cycles: int = 4
    seeds: int = 2
    dataset: str = "mnist"
    data_dir: str = ""
    mode: str = "pl"


def judge(rows: Sequence[dict[str, Any]], rule: Candidate, setup: Setup, notice: str = "") -> Verdict:
    """Pick the c with the best mean accuracy, or the smallest that is within the spread of it.

    Parameters
    ----------
    rows : sequence of dict
        Results of a sweep.
    rule : Candidate
        Whose hand-out and objective all trials have.
    setup : Setup
        What was simulated.
    notice : str
        About the data.
    """
    found: dict[int, list[float]] = {}
    for row in rows:
        if row["trouble"] or not row["accuracy"]:
            stop(f"c = {row['config']['staleness']} cannot be simulated: {row['trouble'] or 'no cycle'}")
        found.setdefault(int(row["config"]["staleness"]), []).append(float(row["accuracy"][-1]))
    trials = tuple(
        Trial(c, tuple(values), fmean(values), stdev(values) if len(values) > 1 else 0.0)
        for c, values in sorted(found.items())
    )
    top = max(trials, key=lambda t: t.mean)
    close = [t for t in trials if top.mean - t.mean <= max(t.spread, top.spread)]
    pick = min(close, key=lambda t: t.staleness)
    within = len(close) > 1
    lead = f"After {setup.cycles} cycles c = {top.staleness} has the best mean accuracy, {top.mean:.2%}"
    if setup.seeds < 2:
        text = f"{lead}. One seed tells nothing about the spread: repeat with --seeds 3"
    elif within:
        others = ", ".join(str(t.staleness) for t in close)
        text = (
            f"{lead}, but c = {others} are within the spread over {setup.seeds} seeds: the smallest is taken"
        )
    else:
        text = f"{lead}, by more than the spread over {setup.seeds} seeds"
    return Verdict(
        pick.staleness,
        setup.cycles,
        setup.seeds,
        rule.handout,
        rule.objective,
        rule.exclude,
        trials,
        within,
        f"{text}.",
        notice,
    )
