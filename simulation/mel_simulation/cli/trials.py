"""Short simulations of a given fleet, for `flwr-mel recommend --cross-validate`."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from flwr_mel.allocation import AllocationProblem
from flwr_mel.allocation.problem import NO_LIMIT
from flwr_mel.devices import COEFFICIENTS, Measured
from flwr_mel.tools.fleetfile import Fleet, write_fleet
from flwr_mel.tools.shell import FAILED, stop
from mel_simulation.cli.many import absolute, progress
from mel_simulation.ray_session import TaskError
from mel_simulation.scenario.config import RunConfig
from mel_simulation.scenario.job import total_samples
from mel_simulation.sweep.cells import Cell
from mel_simulation.sweep.results import Results
from mel_simulation.sweep.run import sweep


def run_trials(
    names: Sequence[str],
    problem: AllocationProblem,
    cells: Sequence[tuple[int, int]],
    settings: Mapping[str, Any],
    data_dir: str,
) -> list[dict[str, Any]]:
    """Simulate a fleet with several c; return the rows of the sweep.

    The costs are the problem's own; a dataset of another size is costed as if it had the problem's
    samples. Seeds stand for shuffles, first models and, in FL, partitions. Progress goes to stderr.

    Parameters
    ----------
    names : sequence of str
        Of the learners.
    problem : AllocationProblem
        Costs and limits.
    cells : sequence of (c, seed)
        One simulation each.
    settings : mapping
        Mode, cycles and hand-out, as `RunConfig` names them.
    data_dir : str
        Of MNIST's files; "": the usual place.
    """
    folder = absolute(data_dir)
    cost = problem.total_samples / total_samples(RunConfig(mode=settings["mode"], data_dir=folder))
    with tempfile.TemporaryDirectory(prefix="mel-trials-") as scratch, progress("cells") as show:
        fleet = Path(scratch) / "fleet.toml"
        fleet.write_text(write_fleet(scaled(names, problem, cost)), encoding="utf-8")
        every = [
            Cell(
                **settings,
                scheme="ha-asyn" if c else "ha-sync",
                staleness=c,
                seed=seed,
                data_dir=folder,
                learners=len(problem),
                cycle_time=problem.cycle_time_s,
                fleet=str(fleet),
                min_samples=max(1, round(problem.min_samples / cost)),
            )
            for c, seed in cells
        ]
        results = Results(Path(scratch))
        try:
            sweep(every, results, show)
        except TaskError as error:
            stop(str(error), FAILED)
        return list(results.rows.values())


def scaled(names: Sequence[str], problem: AllocationProblem, cost: float) -> Fleet:
    """Return the problem's learners, each sample costing as much as `cost` of the problem's."""
    costs = {name: getattr(problem.coefficients, name) for name in COEFFICIENTS}
    costs |= {name: cost * costs[name] for name in ("c2", "c1", "g2", "g1")}
    limits, most = problem.energy_limit_j.tolist(), problem.max_samples.tolist()
    return Fleet(
        [
            Measured(
                **{field: float(values[k]) for field, values in costs.items()},
                energy_limit_j=None if limits[k] == inf else limits[k],
                max_samples=None if most[k] >= NO_LIMIT else int(most[k] / cost),
                name=name,
            )
            for k, name in enumerate(names)
        ]
    )
