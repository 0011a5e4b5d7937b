"""What the paper's results section states, as checks on our results.

A claim is judged seed by seed (a seed is one placement of the learners, one draw of energy limits and one
initial model). It holds if it is true for every seed, holds in part if for some, does not hold if for none.
Cells that were not run are said to be missing; nothing is extrapolated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from simulation.figures_rows import plain

Row = dict[str, Any]


class Verdict(StrEnum):
    """How a claim fares."""

    HOLDS = "holds"
    PART = "holds in part"
    FAILS = "does not hold"
    MISSING = "not run"


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
            twin = grid.rows.get(key)
            # HA-Sync and HA-Asyn with c = 0 meet here.
            same = {} if twin is None else {"same_as_sync": twin["accuracy"] == row["accuracy"]}
            grid.rows[key] = {**row, **same}
        return grid

    def seeds(self, *cells: tuple[str, int, float, float]) -> list[int]:
        """Return the seeds for which all these cells were run."""
        found = [{key[4] for key in self.rows if key[:4] == cell} for cell in cells]
        return sorted(set.intersection(*found)) if found else []

    def row(self, family: str, c: int, time_s: float, energy_j: float, seed: int) -> Row:
        """Return one cell."""
        return self.rows[family, c, time_s, energy_j, seed]


def after(row: Row, cycles: int) -> float | None:
    """Accuracy in percent after some cycles; None if the cell has none."""
    curve = row["accuracy"]
    return 100 * curve[cycles - 1] if len(curve) >= cycles else None


def updates_to(row: Row, percent: float) -> int | None:
    """Global updates until an accuracy is reached; None if it is not."""
    return next((i for i, a in enumerate(row["accuracy"], start=1) if 100 * a >= percent), None)


def fewer_updates(
    time_s: float, energy_j: float, cs: Sequence[int], percent: float
) -> Callable[[Grid], Finding]:
    """HA-Asyn with one of these c needs fewer updates to an accuracy than HA-Sync."""

    def check(grid: Grid) -> Finding:
        cells = [("ha", c, time_s, energy_j) for c in (0, *cs)]
        seeds, truths, shown = grid.seeds(*cells), [], []
        for seed in seeds:
            sync = updates_to(grid.row("ha", 0, time_s, energy_j, seed), percent)
            best = [updates_to(grid.row("ha", c, time_s, energy_j, seed), percent) for c in cs]
            reached = [n for n in best if n is not None]
            truths.append(bool(reached) and (sync is None or min(reached) < sync))
            shown.append(f"{min(reached) if reached else 'never'} against {sync or 'never'}")
        return Finding("; ".join(shown), tuple(truths))

    return check


def reaches(
    time_s: float,
    energy_j: float,
    cs: Sequence[int],
    cycles: int,
    percent: float,
    *,
    sync_below: float | None = None,
) -> Callable[[Grid], Finding]:
    """HA-Asyn with every one of these c reaches an accuracy; HA-Sync may have to stay below one."""

    def check(grid: Grid) -> Finding:
        wanted = [("ha", c, time_s, energy_j) for c in cs]
        wanted += [("ha", 0, time_s, energy_j)] if sync_below is not None else []
        truths, shown = [], []
        for seed in grid.seeds(*wanted):
            ours = [after(grid.row("ha", c, time_s, energy_j, seed), cycles) for c in cs]
            ok = all(a is not None and a >= percent for a in ours)
            text = ", ".join("-" if a is None else f"{a:.2f}" for a in ours)
            if sync_below is not None:
                sync = after(grid.row("ha", 0, time_s, energy_j, seed), cycles)
                ok = ok and (sync is None or sync < sync_below)
                text += f" (sync {'-' if sync is None else f'{sync:.2f}'})"
            truths.append(ok)
            shown.append(text)
        return Finding("; ".join(shown) + (" %" if shown else ""), tuple(truths))

    return check


def ahead(
    time_s: float, energy_j: float, cs: Sequence[int], cycles: int, points: float
) -> Callable[[Grid], Finding]:
    """HA-Asyn with every one of these c is ahead of HA-Sync by more than some points."""

    def check(grid: Grid) -> Finding:
        truths, shown = [], []
        for seed in grid.seeds(*(("ha", c, time_s, energy_j) for c in (0, *cs))):
            sync = after(grid.row("ha", 0, time_s, energy_j, seed), cycles) or 0.0
            gains = [(after(grid.row("ha", c, time_s, energy_j, seed), cycles) or 0.0) - sync for c in cs]
            truths.append(all(g > points for g in gains))
            shown.append(", ".join(f"{g:+.2f}" for g in gains))
        return Finding("; ".join(shown) + (" points" if shown else ""), tuple(truths))

    return check


def best_staleness(
    time_s: float, energy_j: float, cycles: int, best: Callable[[int], bool], cs: Sequence[int] = range(6)
) -> Callable[[Grid], Finding]:
    """Which c has the best final accuracy."""

    def check(grid: Grid) -> Finding:
        truths, shown = [], []
        for seed in grid.seeds(*(("ha", c, time_s, energy_j) for c in cs)):
            final = {c: after(grid.row("ha", c, time_s, energy_j, seed), cycles) or 0.0 for c in cs}
            top = max(final, key=lambda c: (final[c], -c))
            truths.append(best(top))
            shown.append(f"c = {top} ({final[top]:.2f} %, sync {final[0]:.2f} %)")
        return Finding("; ".join(shown), tuple(truths))

    return check


def aware_beats_unaware(cells: Sequence[tuple[float, float]], cycles: int) -> Callable[[Grid], Finding]:
    """HA-Sync beats HU-Sync everywhere; HU fails (cannot start) on several occasions."""

    def check(grid: Grid) -> Finding:
        truths, wins, stuck = [], 0, 0
        for time_s, energy_j in cells:
            for seed in grid.seeds(("ha", 0, time_s, energy_j), ("hu", 0, time_s, energy_j)):
                ha = after(grid.row("ha", 0, time_s, energy_j, seed), cycles)
                hu = after(grid.row("hu", 0, time_s, energy_j, seed), cycles)
                stuck += hu is None
                wins += ha is not None and (hu is None or ha > hu)
                truths.append(ha is not None and (hu is None or ha > hu))
        text = (
            f"HA-Sync is ahead in {wins} of {len(truths)} cells; HU-Sync cannot start in {stuck}"
            if truths
            else ""
        )
        return Finding(text, tuple(truths))

    return check
