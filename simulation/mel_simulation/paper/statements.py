"""The statements of the paper's results section, as checks on our results.

A statement is judged seed by seed (a seed is one placement of the learners, one draw of energy limits and one
initial model). It holds if it is true for every seed, holds in part if for some, does not hold if for none.
Cells that were not run count as missing; nothing is extrapolated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import TypeAlias

from mel_simulation.paper.rows import cap, cycles_to, family, setting
from mel_simulation.sweep.results import Row


class Verdict(StrEnum):
    """How a statement fares."""

    HOLDS = "holds"
    PART = "holds in part"
    FAILS = "does not hold"
    MISSING = "not run"


@dataclass(frozen=True, slots=True)
class Finding:
    """Our side of a statement: what we measured, and per seed whether the statement is true."""

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


class Grid:
    """Results by (HA or HU, c, T, E, seed); HA-Asyn with c = 0 is HA-Sync."""

    def __init__(self, results: Iterable[Row] = ()) -> None:
        self.rows: dict[tuple[str, int, float, float, int], Row] = {}
        #: Whether Sync and Asyn with c = 0 have the same curve, where both were run.
        self.twins: dict[tuple[str, int, float, float, int], bool] = {}
        for row in results:
            key = (family(row), cap(row), *setting(row), int(row["config"]["seed"]))
            twin = self.rows.get(key, row)
            if twin["config"]["scheme"] != row["config"]["scheme"]:
                self.twins[key] = twin["accuracy"] == row["accuracy"]
            self.rows[key] = row

    def seeds(self, *cells: tuple[str, int, float, float]) -> list[int]:
        """Return the seeds for which all these cells were run."""
        found = [{key[4] for key in self.rows if key[:4] == cell} for cell in cells]
        return sorted(set.intersection(*found)) if found else []


Check: TypeAlias = Callable[[Grid], Finding]
#: Judges the rows of one seed, by c: whether the statement is true, and what we measured.
Judge: TypeAlias = Callable[[dict[int, Row]], tuple[bool, str]]


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement of the paper: the figure or section, our wording with its numbers, and the check."""

    where: str
    says: str
    check: Check


def after(row: Row, cycles: int) -> float:
    """Accuracy in percent after some cycles; 0 if the cell has none."""
    return 100 * row["accuracy"][cycles - 1] if len(row["accuracy"]) >= cycles else 0.0


def against(ours: float, sync: float) -> str:
    """Return two numbers of updates in words."""
    return " against ".join("never" if n == inf else str(n) for n in (ours, sync))


def by_seed(limits: Sequence[tuple[float, float]], cs: Sequence[int], judge: Judge, unit: str = "") -> Check:
    """Judge HA seed by seed at these (T, E), where all of these c were run; c = 0 is HA-Sync."""

    def check(grid: Grid) -> Finding:
        found = [
            judge({c: grid.rows["HA", c, time_s, energy_j, seed] for c in cs})
            for time_s, energy_j in limits
            for seed in grid.seeds(*(("HA", c, time_s, energy_j) for c in cs))
        ]
        shown = "; ".join(text for _, text in found)
        return Finding(shown + (unit if found else ""), tuple(truth for truth, _ in found))

    return check


def fewer_updates(time_s: float, energy_j: float, cs: Sequence[int], percent: float) -> Check:
    """HA-Asyn with one of these c needs fewer updates to an accuracy than HA-Sync."""

    def judge(rows: dict[int, Row]) -> tuple[bool, str]:
        sync, best = cycles_to(rows[0], percent), min(cycles_to(rows[c], percent) for c in cs)
        return best < sync, against(best, sync)

    return by_seed([(time_s, energy_j)], (0, *cs), judge)


def reaches(
    time_s: float, energy_j: float, cs: Sequence[int], percent: float, sync_below: float | None = None
) -> Check:
    """HA-Asyn with every one of these c reaches an accuracy after 6 cycles; HA-Sync may not reach another."""

    def judge(rows: dict[int, Row]) -> tuple[bool, str]:
        ours = [after(rows[c], 6) for c in cs]
        truth, text = all(a >= percent for a in ours), ", ".join(f"{a:.2f}" for a in ours)
        if sync_below is not None:
            sync = after(rows[0], 6)
            truth, text = truth and sync < sync_below, f"{text} (sync {sync:.2f})"
        return truth, text

    return by_seed([(time_s, energy_j)], cs if sync_below is None else (*cs, 0), judge, " %")


def ahead(time_s: float, energy_j: float, cs: Sequence[int], points: float) -> Check:
    """HA-Asyn with every one of these c is ahead of HA-Sync by more than some points after 12 cycles."""

    def judge(rows: dict[int, Row]) -> tuple[bool, str]:
        gains = [after(rows[c], 12) - after(rows[0], 12) for c in cs]
        return all(g > points for g in gains), ", ".join(f"{g:+.2f}" for g in gains)

    return by_seed([(time_s, energy_j)], (0, *cs), judge, " points")


def best_staleness(time_s: float, energy_j: float, *, sync: bool) -> Check:
    """HA-Sync has the best accuracy of c = 0 to 5 after 12 cycles, or has not."""

    def judge(rows: dict[int, Row]) -> tuple[bool, str]:
        final = {c: after(row, 12) for c, row in rows.items()}
        top = max(final, key=lambda c: (final[c], -c))
        return (top == 0) is sync, f"c = {top} ({final[top]:.2f} %, sync {final[0]:.2f} %)"

    return by_seed([(time_s, energy_j)], range(6), judge)


def as_few_updates(energy_j: float, percent: float) -> Check:
    """HA-Sync needs as few updates to an accuracy as any c of 1 to 5, at T = 25, 30 and 35."""

    def judge(rows: dict[int, Row]) -> tuple[bool, str]:
        sync, rest = cycles_to(rows[0], percent), min(cycles_to(rows[c], percent) for c in range(1, 6))
        return sync <= rest < inf, f"T={setting(rows[0])[0]:g}: {against(sync, rest)}"

    return by_seed([(time_s, energy_j) for time_s in (25.0, 30.0, 35.0)], range(6), judge)


def _same_as_synchronous(grid: Grid) -> Finding:
    same = tuple(grid.twins.values())
    return Finding(f"identical curves in {sum(same)} of {len(same)} cells" if same else "", same)


def _aware_beats_unaware(grid: Grid) -> Finding:
    """HA-Sync beats HU-Sync everywhere after 12 cycles; HU cannot start on several occasions."""
    keys = [key for key in grid.rows if key[:2] == ("HA", 0) and ("HU", *key[1:]) in grid.rows]
    pairs = [[after(grid.rows[kind, *key[1:]], 12) for kind in ("HA", "HU")] for key in keys]
    truths = tuple(ha > hu for ha, hu in pairs)
    stuck = sum(not hu for _, hu in pairs)
    text = f"HA-Sync is ahead in {sum(truths)} of {len(truths)} cells; HU-Sync cannot start in {stuck}"
    return Finding(text if truths else "", truths)


def _largest_gain(grid: Grid) -> Finding:
    """The largest reduction in updates over all cells and the accuracies that the paper names."""
    gains = []
    for (kind, c, time_s, energy_j, seed), row in grid.rows.items():
        base = grid.rows.get(("HA", 0, time_s, energy_j, seed))
        for percent in (94.0, 95.0, 95.5, 97.0, 97.3):
            if kind == "HA" and base and (sync := cycles_to(base, percent)) < inf:
                cell = f"{percent:g} % at T={time_s:g}, E={energy_j:g}, c={c}"
                gains.append((1 - cycles_to(row, percent) / sync, cell))
    if not gains:
        return Finding("", ())
    best, cell = max(gains, key=lambda gain: gain[0])
    return Finding(f"up to {100 * best:.0f} % fewer updates ({cell})", (best >= 0.25,))


_6, _7, _14, _15, _TEXT = "figure06label", "figure07label", "figure14label", "figure15label", "Discussions"
_LOW = "T=10, E=10: "
_ROWS: tuple[tuple[str, str, Check], ...] = (
    (_6, "With c = 0 the asynchronous solution is the synchronous one", _same_as_synchronous),
    (_6, "For c = 0 HA is always better than HU, which fails on several occasions", _aware_beats_unaware),
    (_7, f"{_LOW}94 % in 5 updates with c=1, 2 against 7 (29 % fewer)", fewer_updates(10, 10, (1, 2), 94)),
    (_7, f"{_LOW}95 % in 6 updates with c=1 against 8 (25 %)", fewer_updates(10, 10, (1,), 95)),
    (_15, f"{_LOW}95 % in 7 updates against 9 (22 %)", fewer_updates(10, 10, (1, 2), 95)),
    (_14, "E=10, T=15 after 6: 94.4 % with c=1, sync below 94 %", reaches(15, 10, (1,), 94.4, 94.0)),
    (_14, "E=10, T=20 after 6: 95.4 % with c=1, sync below 94 %", reaches(20, 10, (1,), 95.4, 94.0)),
    (_14, "E=10, T=20 after 6: c=2 crosses 94.5 %", reaches(20, 10, (2,), 94.5)),
    (_14, "E=20, T=20 after 6: 97 % with c=1..3", reaches(20, 20, (1, 2, 3), 97.0)),
    (_14, "E=20, T=35 after 6: 97 % with c=2..4", reaches(35, 20, (2, 3, 4), 97.0)),
    (_14, "E=10, T=10 after 12: c=1 ahead of sync by more than 0.4", ahead(10, 10, (1,), 0.4)),
    (_14, "E=10, T=20 after 12: c=1 and 2 ahead by more than 0.4", ahead(20, 10, (1, 2), 0.4)),
    (_14, "E=20, T=5 after 12: HA-Asyn is best (paper: c=5)", best_staleness(5, 20, sync=False)),
    (_14, "E=20, T=10 after 12: HA-Asyn is best (paper: c=2)", best_staleness(10, 20, sync=False)),
    (_14, "E=20, T=15 after 12: HA-Asyn is best (paper: c=2)", best_staleness(15, 20, sync=False)),
    (_14, "E=20, T=20 after 12: HA-Asyn is best (paper: c=4)", best_staleness(20, 20, sync=False)),
    (_14, "E=20, T=25 after 12: HA-Asyn is best (paper: c=4)", best_staleness(25, 20, sync=False)),
    (_15, "T=25, E=20: 97.3 % in 10 updates with c=3, 4 against 11", fewer_updates(25, 20, (3, 4), 97.3)),
    (_TEXT, "E=10, T=25..35: sync reaches 95.5 % as soon as any c", as_few_updates(10, 95.5)),
    (_TEXT, "E=20, T=25..35: sync reaches 97 % as soon as any c", as_few_updates(20, 97.0)),
    (_TEXT, "E=10, T=30 after 12: HA-Sync is best", best_staleness(30, 10, sync=True)),
    (_TEXT, "E=20, T=30 after 12: HA-Sync is best", best_staleness(30, 20, sync=True)),
    (_TEXT, "E=20, T=40 after 12: HA-Sync is best", best_staleness(40, 20, sync=True)),
    ("abstract", "Gains of up to 25 % over HA-Sync", _largest_gain),
)
CLAIMS = tuple(Claim(*row) for row in _ROWS)
