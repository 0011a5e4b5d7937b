"""What the winners of the comparison cost, said plainly: whom they starve, and who is as good per joule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev

import numpy as np
from scipy.stats import t

from flwr_mel import AllocationProblem, Workload
from flwr_mel._validate import IntArray
from flwr_mel.devices import Device
from flwr_mel.paper import PAPER_SAMPLES
from mel_simulation.paper.figures.rivals import baseline_name
from mel_simulation.paper.rows import Row, by, cap, once_per_seed, rule, running
from mel_simulation.scenario.config import LAYERS
from mel_simulation.scenario.fleet import VirtualFleet
from mel_simulation.sweep.cells import Cell

#: The paper's d_l for its 60,000 samples.
LEAST = 100


@dataclass(frozen=True, slots=True)
class Concentration:
    """How a scheme spreads the samples over the learners, over cycles and seeds.

    Parameters
    ----------
    learners : int
        K.
    least : float
        Learners with the least batch, in the mean.
    fewest, most : int
        The same, in the cycle where it is fewest and in the one where it is most.
    carriers : float
        The learners, strongest first, that hold nine tenths of the samples together.
    """

    learners: int
    least: float
    fewest: int
    most: int
    carriers: float


def batches(row: Row, cycle: int) -> tuple[IntArray, IntArray]:
    """Allocate a cycle of a cell of the paper's fleet again; allocations do not depend on training.

    Parameters
    ----------
    row : dict
        A cell, parallelized and on the paper's fleet.
    cycle : int
        From 1.

    Returns
    -------
    epochs, samples : int arrays
        tau_k and d_k.
    """
    config = Cell.parse(row["config"]).config
    learners = config.learners or 20
    devices = [d for d in VirtualFleet(learners, config).devices(cycle) if isinstance(d, Device)]
    scheme = config.scheme_object()
    problem = AllocationProblem.from_devices(
        devices,
        Workload.mlp(LAYERS),
        cycle_time_s=config.cycle_time,
        total_samples=config.samples or PAPER_SAMPLES,
        staleness=scheme.staleness,
        min_samples=config.min_samples or LEAST,
    )
    found = scheme.allocate(problem)
    return found.epochs, found.samples


def concentration(rows: Sequence[Row]) -> Concentration:
    """Count who gets the least batch in every cycle of every seed.

    Parameters
    ----------
    rows : sequence of dict
        Cells of one scheme, parallelized and on the paper's fleet.
    """
    found = [batches(row, cycle)[1] for row in rows for cycle in range(1, len(row["acts"]) + 1)]
    counts = [int((samples == LEAST).sum()) for samples in found]
    carriers = [int((np.cumsum(np.sort(d)[::-1]) < 0.9 * d.sum()).sum()) + 1 for d in found]
    return Concentration(len(found[0]), mean(counts), min(counts), max(counts), mean(carriers))


def starving(rows: Sequence[Row]) -> str:
    """Say in a sentence what HA-Progress does to the fleet, beside HA-Asyn at the same c.

    Parameters
    ----------
    rows : sequence of dict
        Cells of one (T, E), parallelized.
    """
    own = [r for r in rows if not r["config"]["baseline"]]
    ours = once_per_seed(r for r in own if rule(r) == "progress" and cap(r) == 2)
    paper = once_per_seed(r for r in own if rule(r) == "proportional" and cap(r) == 2)
    if not ours or not paper:
        return ""
    a, b = concentration(ours), concentration(paper)
    span = f"{a.fewest}" if a.fewest == a.most else f"{a.fewest} to {a.most}"
    return (
        f"**What HA-Progress does to the fleet:** of {a.learners} learners {a.least:.0f} get the least batch "
        f"of {LEAST} samples ({span} by cycle and seed; HA-Asyn c = 2: {b.least:.0f}), and "
        f"{a.carriers:.0f} hold nine tenths of all samples (HA-Asyn: {b.carriers:.0f}). The others hardly "
        "count in the average, and the least batch (`min_samples`) is all that protects them. Choose it "
        "where the server ships IID samples, not where weak learners hold what nobody else has."
    )


def within(row: Row, joules: float) -> float:
    """Read the accuracy at an energy off a cell's curve; NaN before its first cycle ends.

    Parameters
    ----------
    row : dict
        A cell with a curve.
    joules : float
        Of all learners.
    """
    spent = running(row, "energy_j")[: len(row["accuracy"])]
    return float(np.interp(joules, spent, row["accuracy"], left=np.nan))


def verdict(gaps: Sequence[float]) -> str:
    """Say whether differences in points, seed by seed, are more than their spread (5 % level, paired t).

    Parameters
    ----------
    gaps : sequence of float
        At least two.
    """
    return (
        "no clear difference" if abs(mean(gaps)) <= margin(gaps) else "better" if mean(gaps) > 0 else "worse"
    )


def margin(gaps: Sequence[float]) -> float:
    """Return half the width of the 95 % interval around the mean (Student's t).

    Parameters
    ----------
    gaps : sequence of float
        At least two.
    """
    return float(stdev(gaps) / len(gaps) ** 0.5 * t.ppf(0.975, len(gaps) - 1))


def per_joule(rows: Sequence[Row]) -> str:
    """Say which baselines that keep the limits are as good as HA-Asyn for the energy they spend.

    Parameters
    ----------
    rows : sequence of dict
        Cells of one (T, E), parallelized.
    """
    own = [r for r in rows if not r["config"]["baseline"] and cap(r) == 2]
    schemes = {
        "HA-Asyn c = 2": once_per_seed(r for r in own if rule(r) == "proportional"),
        "HA-Progress c = 2": once_per_seed(r for r in own if rule(r) == "progress"),
    }
    frugal = by([r for r in rows if r["config"]["baseline"] in ("fedprox", "partial")], baseline_name)
    lines = []
    for name, group in frugal.items():
        rivals = {r["config"]["seed"]: r for r in once_per_seed(group)}
        spent = {seed: float(running(r, "energy_j")[-1]) for seed, r in rivals.items()}
        parts = []
        for scheme, cells in schemes.items():
            pairs = [(r, r["config"]["seed"]) for r in cells if r["config"]["seed"] in rivals]
            gaps = [100 * (rivals[s]["accuracy"][-1] - within(r, spent[s])) for r, s in pairs]
            gaps = [gap for gap in gaps if np.isfinite(gap)]
            if len(gaps) > 1:
                parts.append(f"{verdict(gaps)} than {scheme} ({mean(gaps):+.2f} ± {stdev(gaps):.2f} points)")
        if parts:
            words = " and ".join(parts).replace("difference than", "difference to")
            reached = f"{100 * mean(r['accuracy'][-1] for r in rivals.values()):.2f} %"
            joules = f"{mean(spent.values()):,.0f} J"
            lines.append(f"- {name}: {reached} for {joules}; at the same energy {words}.")
    if not lines:
        return ""
    head = "**Per joule** the baselines that keep both limits compare otherwise than per cycle:"
    return "\n".join([head, "", *lines])
