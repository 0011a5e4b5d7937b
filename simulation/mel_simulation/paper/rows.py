"""Rows of a sweep as the figures need them: which cells belong together, and their numbers over seeds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from statistics import mean, stdev
from typing import Any, TypeVar

import numpy as np

from flwr_mel._validate import FloatArray
from flwr_mel.solvers.schemes import PAPER_SCHEMES, SchemeName
from mel_simulation.scenario.config import options
from mel_simulation.sweep.results import seeds_by_position

Row = dict[str, Any]
Key = TypeVar("Key", bound=Hashable)

#: What the paper's own cells have in these keys.
PLAIN = {"mode": "pl", "handout": "proportional", "average": "data", "baseline": "", "exclude": "infeasible"}

#: What the paper leaves open, and what we take for it; `mel_simulation.paper.variations` takes others.
USUAL: dict[str, Any] = {
    each.key: each.default
    for each in options()
    if each.name in ("energy_spread", "min_samples", "batch_size", "learning_rate")
}

#: Rule and c of what is compared with baselines: the paper's two, and ours at the same c.
COMPARED = {("proportional", 0), ("proportional", 2), ("strongest-first", 2), ("progress", 2)}
_GLOSSARY = (
    "HA: batches follow the devices, HU: equal batches. Asyn: epochs differ by up to c, Sync: not at all. "
    "T: seconds per cycle, E: joules per learner and cycle."
)


class NoCells(Exception):
    """There is nothing to draw a figure from; the text says what is missing."""


def is_like(row: Row, **wanted: Any) -> bool:
    """Whether a cell's configuration has these values (underscores for dashes)."""
    return all(row["config"].get(key.replace("_", "-")) == value for key, value in wanted.items())


def plain(rows: Iterable[Row]) -> list[Row]:
    """Return the paper's cells: its schemes, data, limits, hand-out and averaging, no baseline."""
    return [
        row
        for row in rows
        if is_like(row, **PLAIN)
        and row["config"]["scheme"] in PAPER_SCHEMES
        and row["config"]["energy"]
        and all(row["config"].get(key, usual) == usual for key, usual in USUAL.items())
    ]


def trained(rows: Iterable[Row]) -> list[Row]:
    """Return the cells that have a curve."""
    return [row for row in rows if not row["trouble"] and row["accuracy"]]


def cap(row: Row) -> int:
    """Return c; the synchronous schemes have 0 whatever their configuration says."""
    return 0 if row["config"]["scheme"].endswith("sync") else int(row["config"]["staleness"])


def family(row: Row) -> str:
    """Return "HA" or "HU"."""
    return str(row["config"]["scheme"][:2]).upper()


def rule(row: Row) -> str:
    """Name how a heterogeneity-aware scheme allocates: a hand-out, the progress objective, exclusion."""
    config = row["config"]
    which = SchemeName(config["scheme"])
    name = str(config["handout"]) if which in PAPER_SCHEMES else str(which.objective)
    return name + (", stragglers out" if config["exclude"] == "optimal" else "")


def setting(row: Row) -> tuple[float, float]:
    """Return (T, E)."""
    return float(row["config"]["cycle-time"]), float(row["config"]["energy"])


def by(rows: Iterable[Row], key: Callable[[Row], Key]) -> dict[Key, list[Row]]:
    """Group rows; groups come sorted."""
    groups: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return dict(sorted(groups.items()))


def once_per_seed(rows: Iterable[Row]) -> list[Row]:
    """Return a row per seed: HA-Sync and HA-Asyn with c = 0 are one scheme and must not count twice."""
    return list({row["config"]["seed"]: row for row in rows}.values())


def scheme_rows(rows: Iterable[Row]) -> dict[tuple[str, int], list[Row]]:
    """Group one setting's cells by ("HA" or "HU", c), each seed once."""
    groups = by(rows, lambda r: (family(r), cap(r)))
    return {key: once_per_seed(group) for key, group in groups.items()}


def cycles_to(row: Row, target: float) -> float:
    """Return after how many cycles an accuracy is reached; infinite if never."""
    reached = [cycle for cycle, accuracy in enumerate(row["accuracy"], start=1) if accuracy >= target]
    return float(reached[0]) if reached else np.inf


#: Accuracies that comparisons may count to.
LADDER = (0.98, 0.975, 0.97, 0.965, 0.96, 0.955, 0.95, 0.94, 0.92, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5)


def common_goals(rows: Sequence[Row], count: int, wanted: Sequence[float] = ()) -> list[float]:
    """Return the highest accuracies that half of the cells reach, where cells differ most; lowest first.

    Parameters
    ----------
    rows : sequence of dict
        Cells with curves.
    count : int
        How many accuracies.
    wanted : sequence of float
        Taken instead, if half of the cells reach them.
    """
    enough = [g for g in LADDER if np.mean([np.isfinite(cycles_to(row, g)) for row in rows]) >= 0.5]
    if wanted and set(wanted[:count]) <= set(enough):
        return list(wanted[:count])
    return sorted(enough[:count]) or [LADDER[-1]]


def cost_to(row: Row, target: float, cost: str) -> float:
    """Return the cost ("makespan_s" or "energy_j", summed over cycles) to an accuracy; infinite if never.

    Parameters
    ----------
    row : dict
        A cell.
    target : float
        Accuracy, 0 to 1.
    cost : str
        A key of the acts.
    """
    cycles = cycles_to(row, target)
    return float(running(row, cost)[int(cycles) - 1]) if np.isfinite(cycles) else np.inf


def running(row: Row, cost: str) -> FloatArray:
    """Return a cost of the acts, summed up to the end of each cycle."""
    result: FloatArray = np.cumsum([act[cost] for act in row["acts"]], dtype=float)
    return result


def at_cycle(rows: Sequence[Row], cycle: int) -> FloatArray:
    """Return the accuracies after a cycle, of the rows that are long enough."""
    return np.array([row["accuracy"][cycle - 1] for row in rows if len(row["accuracy"]) >= cycle])


def curves(rows: Sequence[Row]) -> FloatArray:
    """Return the accuracy curves, cut to the shortest, one per line."""
    length = min(len(row["accuracy"]) for row in rows)
    return np.array([row["accuracy"][:length] for row in rows])


def gain_ratio(row: Row) -> float:
    """Return tau*/floor(tau*), averaged over the cycles: what rounding down costs the synchronous scheme."""
    ratios = [act["relaxed"] / np.floor(act["relaxed"]) for act in row["acts"] if act["relaxed"] >= 1]
    return float(np.mean(ratios)) if ratios else np.nan


def median(values: Sequence[float]) -> float:
    """Return the upper median, which may be infinite."""
    return float(np.sort(values)[len(values) // 2])


def spread(values: Sequence[float]) -> str:
    """Return mean and standard deviation."""
    return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def provenance(rows: Sequence[Row]) -> str:
    """Say how many cells an older version computed, and what that means; empty where none.

    Parameters
    ----------
    rows : sequence of dict
        Cells.
    """
    old = sum(map(seeds_by_position, rows))
    if not old:
        return ""
    return (
        f"{old} of these {len(rows)} cells were computed by version 0.1, which drew the learners' seeds by "
        "their position, not by their name: the same allocations, the samples of SGD in another order. "
        "Computed anew, accuracies differ by tenths of a point, as they do between seeds."
    )


def about(rows: Sequence[Row], notice: str = "") -> str:
    """Say what a figure was made from: data, samples per cycle, cycles and seeds.

    Parameters
    ----------
    rows : sequence of dict
        The cells in the figure.
    notice : str
        The sweep's notice about its data.
    """
    names = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
    data = ", ".join(sorted({names.get(row["config"]["dataset"], "?") for row in rows}))
    if "SUBSET" in notice:
        data += " (embedded subset)"
    seeds = {row["config"]["seed"] for row in rows}
    cycles = sorted({len(row["accuracy"]) for row in trained(rows)})
    words = [data, f"{_samples(rows)}K = {max(r['config']['learners'] for r in rows)}"]
    words += [f"{'-'.join(str(c) for c in sorted({cycles[0], cycles[-1]}))} cycles"]
    words += ["1 seed" if len(seeds) == 1 else f"{len(seeds)} seeds (placements)"]
    return f"{'; '.join(words)}. {_GLOSSARY}"


def _samples(rows: Sequence[Row]) -> str:
    """Say d where it can be told: all took part and did the same number of epochs."""
    for row in trained(rows):
        act = row["acts"][0]
        if not row["config"]["baseline"] and not cap(row) and act["used"] == row["config"]["learners"]:
            return f"d = {round(act['sample_epochs'] / act['mean_epochs']):,} samples per cycle; "
    return ""
