"""What the paper's results section states, as checks on our results.

A claim is judged seed by seed (a seed is one placement of the learners, one draw of energy limits and one
initial model). It holds if it is true for every seed, holds in part if for some, does not hold if for none.
Cells that were not run are said to be missing; nothing is extrapolated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from mel_simulation.paper.rows import plain
from mel_simulation.sweep.results import seeds_by_position

Row = dict[str, Any]


class Verdict(StrEnum):
    """How a claim fares."""

    HOLDS = "holds"
    PART = "holds in part"
    FAILS = "does not hold"
    MISSING = "not run"


#: What is said of several claims with a verdict.
_OF_MANY = {
    Verdict.HOLDS: "hold in our runs",
    Verdict.PART: "hold for some seeds",
    Verdict.FAILS: "do not hold",
    Verdict.MISSING: "were not run yet",
}


def counted(verdicts: Sequence[Verdict]) -> str:
    """Say how many of the paper's statements fared how.

    Parameters
    ----------
    verdicts : sequence of Verdict
        One of each statement.
    """
    counts = Counter(verdicts)
    parts = [f"{counts[v]} {said}" for v, said in _OF_MANY.items() if counts[v]]
    return f"Of {len(verdicts)} statements of the paper {', '.join(parts)}."


@dataclass(frozen=True, slots=True)
class Finding:
    """Our side of a claim: what we measured, per seed whether the claim is true."""

    ours: str
    truths: tuple[bool, ...]

    @property
    def verdict(self) -> Verdict:
        """Judge over the seeds."""
        if not self.truths:
            return Verdict.MISSING
        if all(self.truths):
            return Verdict.HOLDS
        return Verdict.PART if any(self.truths) else Verdict.FAILS


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement of the paper.

    Parameters
    ----------
    where : str
        Section or figure label.
    says : str
        The statement, in our words, with the paper's numbers.
    check : callable
        Takes `Grid`, returns a `Finding`.
    """

    where: str
    says: str
    check: Callable[[Grid], Finding]


@dataclass(slots=True)
class Grid:
    """Results by (scheme family, c, T, E, seed); HA-Asyn with c = 0 is HA-Sync."""

    rows: dict[tuple[str, int, float, float, int], Row] = field(default_factory=dict)

    @classmethod
    def of(cls, results: Iterable[Row]) -> Grid:
        """Sort the cells that a claim can be about: PL, proportional hand-out, d_k-weighted average."""
        grid = cls()
        for row in results:
            c = row["config"]
            if not plain([row]) or c["solver"] != "exact" or c["mobility"]:
                continue
            staleness = 0 if c["scheme"].endswith("sync") else c["staleness"]
            key = (c["scheme"][:2], staleness, c["cycle-time"], c["energy"], c["seed"])
            grid.rows[key] = {**row, **_meet(grid.rows.get(key), row)}
        return grid

    def seeds(self, *cells: tuple[str, int, float, float]) -> list[int]:
        """Return the seeds for which all these cells were run."""
        found = [{key[4] for key in self.rows if key[:4] == cell} for cell in cells]
        return sorted(set.intersection(*found)) if found else []

    def row(self, family: str, c: int, time_s: float, energy_j: float, seed: int) -> Row:
        """Return one cell."""
        return self.rows[family, c, time_s, energy_j, seed]


def _meet(twin: Row | None, row: Row) -> dict[str, bool]:
    """Compare HA-Sync and HA-Asyn with c = 0, which meet in one place of the grid.

    The same cell from two files is no test, and neither are two versions of us.
    """
    if twin is None:
        return {}
    known = {key: value for key, value in twin.items() if key == "same_as_sync"}
    other = twin["config"]["scheme"] != row["config"]["scheme"]
    if other and seeds_by_position(twin) == seeds_by_position(row):
        return {"same_as_sync": twin["accuracy"] == row["accuracy"]}
    return known


def after(row: Row, cycles: int) -> float | None:
    """Accuracy in percent after some cycles; None if the cell has none."""
    curve = row["accuracy"]
    return 100 * curve[cycles - 1] if len(curve) >= cycles else None


def updates_to(row: Row, percent: float) -> int | None:
    """Global updates until an accuracy is reached; None if it is not."""
    return next((i for i, a in enumerate(row["accuracy"], start=1) if 100 * a >= percent), None)


#: What a seed's rows, by c, make of a claim: whether it is true, and what we measured.
Judge = Callable[[dict[int, Row]], tuple[bool, str]]
Check = Callable[[Grid], Finding]


def by_seed(limits: Sequence[tuple[float, float]], cs: Sequence[int], judge: Judge, unit: str = "") -> Check:
    """Judge HA seed by seed, where all of these c were run.

    Parameters
    ----------
    limits : sequence of (float, float)
        The (T, E).
    cs : sequence of int
        The c; 0 is HA-Sync.
    judge : callable
        Takes the rows of a seed.
    unit : str
        Behind the last number.
    """

    def check(grid: Grid) -> Finding:
        found = [
            judge({c: grid.row("ha", c, time_s, energy_j, seed) for c in cs})
            for time_s, energy_j in limits
            for seed in grid.seeds(*(("ha", c, time_s, energy_j) for c in cs))
        ]
        shown = "; ".join(text for _, text in found)
        return Finding(shown + (unit if found else ""), tuple(truth for truth, _ in found))

    return check


def fewer_updates(time_s: float, energy_j: float, cs: Sequence[int], percent: float) -> Check:
    """HA-Asyn with one of these c needs fewer updates to an accuracy than HA-Sync."""

    def judge(rows: dict[int, Row]) -> tuple[bool, str]:
        sync, best = updates_to(rows[0], percent), least_updates(rows, cs, percent)
        truth = best is not None and (sync is None or best < sync)
        return truth, f"{best or 'never'} against {sync or 'never'}"

    return by_seed([(time_s, energy_j)], (0, *cs), judge)


def least_updates(rows: dict[int, Row], cs: Sequence[int], percent: float) -> int | None:
    """Return the fewest updates of these c to an accuracy."""
    return min((n for c in cs if (n := updates_to(rows[c], percent)) is not None), default=None)


def reaches(
    time_s: float,
    energy_j: float,
    cs: Sequence[int],
    cycles: int,
    percent: float,
    *,
    sync_below: float | None = None,
) -> Check:
    """HA-Asyn with every one of these c reaches an accuracy; HA-Sync may have to stay below one."""

    def judge(rows: dict[int, Row]) -> tuple[bool, str]:
        ours = [after(rows[c], cycles) for c in cs]
        truth = all(a is not None and a >= percent for a in ours)
        text = ", ".join("-" if a is None else f"{a:.2f}" for a in ours)
        if sync_below is not None:
            sync = after(rows[0], cycles)
            truth = truth and (sync is None or sync < sync_below)
            text += f" (sync {'-' if sync is None else f'{sync:.2f}'})"
        return truth, text

    return by_seed([(time_s, energy_j)], cs if sync_below is None else (*cs, 0), judge, " %")


def ahead(time_s: float, energy_j: float, cs: Sequence[int], cycles: int, points: float) -> Check:
    """HA-Asyn with every one of these c is ahead of HA-Sync by more than some points."""

    def judge(rows: dict[int, Row]) -> tuple[bool, str]:
        gains = [(after(rows[c], cycles) or 0.0) - (after(rows[0], cycles) or 0.0) for c in cs]
        return all(g > points for g in gains), ", ".join(f"{g:+.2f}" for g in gains)

    return by_seed([(time_s, energy_j)], (0, *cs), judge, " points")


def best_staleness(time_s: float, energy_j: float, cycles: int, best: Callable[[int], bool]) -> Check:
    """Which c of 0 to 5 has the best final accuracy."""

    def judge(rows: dict[int, Row]) -> tuple[bool, str]:
        final = {c: after(row, cycles) or 0.0 for c, row in rows.items()}
        top = max(final, key=lambda c: (final[c], -c))
        return best(top), f"c = {top} ({final[top]:.2f} %, sync {final[0]:.2f} %)"

    return by_seed([(time_s, energy_j)], range(6), judge)


def as_few_updates(times: Sequence[float], energy_j: float, percent: float) -> Check:
    """HA-Sync needs as few updates to an accuracy as any c of 1 to 5."""

    def judge(rows: dict[int, Row]) -> tuple[bool, str]:
        sync, rest = updates_to(rows[0], percent), least_updates(rows, range(1, 6), percent)
        where = f"T={rows[0]['config']['cycle-time']:g}"
        truth = sync is not None and rest is not None and sync <= rest
        return truth, f"{where}: {sync or 'never'} against {rest or 'never'}"

    return by_seed([(time_s, energy_j) for time_s in times], range(6), judge)


def aware_beats_unaware(limits: Sequence[tuple[float, float]], cycles: int) -> Check:
    """HA-Sync beats HU-Sync everywhere; HU fails (cannot start) on several occasions."""

    def check(grid: Grid) -> Finding:
        pairs = [
            [after(grid.row(kind, 0, *limit, seed), cycles) for kind in ("ha", "hu")]
            for limit in limits
            for seed in grid.seeds(("ha", 0, *limit), ("hu", 0, *limit))
        ]
        truths = tuple(ha is not None and (hu is None or ha > hu) for ha, hu in pairs)
        stuck = sum(hu is None for _, hu in pairs)
        text = f"HA-Sync is ahead in {sum(truths)} of {len(truths)} cells; HU-Sync cannot start in {stuck}"
        return Finding(text if truths else "", truths)

    return check
