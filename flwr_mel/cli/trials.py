"""Cross-validation of c: short simulations of a fleet with the c that are worth a try."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rich.console import Console

from flwr_mel.allocation import AllocationProblem
from flwr_mel.allocation.problem import NO_LIMIT
from flwr_mel.cli.shared import BUG, note, stop
from flwr_mel.cli.sweep import follow
from flwr_mel.learners import Fleet, Measured, write_fleet
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


def cross_validate(
    names: Sequence[str],
    problem: AllocationProblem,
    rule: Candidate,
    staleness: Sequence[int],
    setup: Setup,
) -> Verdict:
    """Simulate the fleet with every c, and pick one.

    The costs are the problem's own; a dataset of another size is costed as if it had the problem's
    samples. Energy limits stay as they are, so seeds stand for shuffles, first models and, in FL, partitions.

    Parameters
    ----------
    names : sequence of str
        The learners'.
    problem : AllocationProblem
        Costs and limits.
    rule : Candidate
        Whose hand-out and objective; its own c does not matter.
    staleness : sequence of int
        The c to try.
    setup : Setup
        Cycles, seeds and data.
    """
    from simulation.cells import read_sweep  # noqa: PLC0415

    folder = str(Path(setup.data_dir).resolve()) if setup.data_dir else ""
    with tempfile.TemporaryDirectory(prefix="mel-trials-") as scratch:
        where = Path(scratch)
        path = _write(where, names, problem, rule, staleness, setup, folder)
        cells = read_sweep(path, folder)
        rows, notice = _simulate(cells, path, where / "out", folder)
    return judge(rows, rule, setup, notice)


def _write(
    where: Path,
    names: Sequence[str],
    problem: AllocationProblem,
    rule: Candidate,
    staleness: Sequence[int],
    setup: Setup,
    folder: str,
) -> Path:
    """Write the fleet and the sweep."""
    from simulation.config import RunConfig  # noqa: PLC0415
    from simulation.task import total_samples  # noqa: PLC0415

    base: dict[str, Any] = {"mode": setup.mode, "dataset": setup.dataset}
    used = total_samples(RunConfig.parse({**base, "data-dir": folder}))
    cost = problem.total_samples / used
    (where / "fleet.toml").write_text(write_fleet(scaled(names, problem, cost)), encoding="utf-8")
    base |= {
        "cycles": setup.cycles,
        "learners": len(problem),
        "cycle-time": problem.cycle_time_s,
        "fleet": str(where / "fleet.toml"),
        "min-samples": max(1, round(problem.min_samples / cost)),
        "scheme": "ha-progress" if rule.objective == "progress" else "ha-asyn",
        "exclude": rule.exclude,
    }
    base |= {"handout": rule.handout} if rule.handout else {}
    grid = {"staleness": list(staleness), "seed": list(range(setup.seeds))}
    text = "".join(
        f"{head}\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())
        for head, table in (("[base]", base), ("[[grid]]", grid))
    )
    path = where / "sweep.toml"
    path.write_text(text, encoding="utf-8")
    return path


def scaled(names: Sequence[str], problem: AllocationProblem, cost: float) -> Fleet:
    """Return the problem's learners, each sample costing as much as `cost` of the problem's.

    Parameters
    ----------
    names : sequence of str
        The learners'.
    problem : AllocationProblem
        Costs and limits.
    cost : float
        Positive.
    """
    c = problem.coefficients
    columns = {"c2": c.c2 * cost, "c1": c.c1 * cost, "c0": c.c0}
    columns |= {"g2": c.g2 * cost, "g1": c.g1 * cost, "g0": c.g0}
    learners = []
    for k, name in enumerate(names):
        limit, most = float(problem.energy_limit_j[k]), int(problem.max_samples[k])
        mine: dict[str, Any] = {field: float(column[k]) for field, column in columns.items()}
        learners.append(
            Measured(
                **mine,
                energy_limit_j=None if limit == float("inf") else limit,
                max_samples=None if most >= NO_LIMIT else int(most / cost),
                name=name,
            )
        )
    return Fleet(learners)


def _simulate(cells: Sequence[Any], path: Path, out: Path, folder: str) -> tuple[list[dict[str, Any]], str]:
    """Run a sweep with its progress on stderr; stdout may belong to a program."""
    from simulation.launch import Engine, LaunchError, complete  # noqa: PLC0415
    from simulation.results import Results, read_results  # noqa: PLC0415
    from simulation.task import dataset_of  # noqa: PLC0415

    results, data = Results(out), dataset_of(cells[0].config)
    if data.notice:
        note(data.notice)
    out.mkdir(parents=True)
    config = {"sweep": str(path), "data-dir": folder, "out": str(out)}
    engine = Engine(cells[0].config.learners, offline=data.embedded)
    try:
        screen = Console(stderr=True, highlight=False)
        trouble = complete(
            config,
            engine,
            out / "flower.log",
            lambda alive: follow(screen, results, cells, alive),
            "simulation.sweep_app:app",
        )
    except LaunchError as error:
        stop(str(error), BUG)
    if trouble:
        stop(f"the cross-validation failed: {trouble}", BUG)
    return read_results(results.collect(cells, data.notice)), data.notice


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
