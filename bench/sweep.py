"""A sweep's wall time against the bare training of its cells: ``python -m bench.sweep [--before PYTHON]``.

Bare: the same tasks (epochs, samples) given to `scenario.network.train`, a process per core taking cell by
cell, without Ray, planning, evaluation or averaging. The start of Ray and of the processes is not counted.
With the Python of an environment in which an earlier version is installed, the whole command `flwr-mel sweep`
is timed as well, that version's and ours. Writes a section of docs/BENCHMARKS.md and
bench/results/sweep.json.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from mel_simulation.scenario.config import LAYERS
from mel_simulation.scenario.job import batch_size, dataset_of
from mel_simulation.scenario.network import initial_weights, single_thread, train
from mel_simulation.sweep.cells import Cell, read_sweep
from mel_simulation.sweep.results import Results
from mel_simulation.sweep.run import ray_workers, run_cells
from mel_simulation.sweep.schedule import Schedule, plan_schedule

from bench.simulation import repeated
from bench.tables import PAGE, table, write_section

RESULTS = Path(__file__).parent / "results" / "sweep.json"
SWEEP = """[base]
learners = 20
[[grid]]
cycles = {cycles}
staleness = [0, 1, 2]
cycle-time = [10.0, 20.0]
[[grid]]
cycles = {cycles}
scheme = "ha-sync"
cycle-time = [10.0, 20.0]
"""
Job = tuple[int, int, int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, help="the full MNIST as idx files")
    parser.add_argument("--cycles", type=int, default=12)
    parser.add_argument("--before", metavar="PYTHON", help="of an environment with an earlier version")
    parser.add_argument("--no-write", action="store_true", help="print only")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="b-") as name:
        scratch = Path(name)
        data_dir = args.data_dir.resolve() if args.data_dir else repeated(scratch / "data")
        result = measure(scratch, str(data_dir), args.cycles)
        if args.before:
            for key, python in (("before_s", args.before), ("command_s", sys.executable)):
                result[key] = whole_command(python, scratch, str(data_dir), scratch / key)
    print(report(result))
    if not args.no_write:
        write_section(PAGE, "sweep", report(result))
        RESULTS.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def measure(scratch: Path, data_dir: str, cycles: int) -> dict[str, float]:
    """Time the sweep and, right after it, the bare training of its cells, longest first too."""
    path = scratch / "sweep.toml"
    path.write_text(SWEEP.format(cycles=cycles), encoding="utf-8")
    cells = read_sweep(path, data_dir)
    workers = os.cpu_count() or 1
    begin = time.perf_counter()
    with ray_workers(cells, workers) as pool:
        start = time.perf_counter()
        run_cells(cells, Results(scratch / "out"), pool, lambda _: None)
        end = time.perf_counter()
    schedules = [(cell, plan_schedule(cell, cell.config.learners)) for cell in cells]
    distinct = {schedule.signature(cell): _jobs(schedule) for cell, schedule in schedules}
    trainings = sorted(distinct.values(), key=lambda jobs: -sum(e * n for e, n, _ in jobs))
    # Not forked: torch's threads do not survive that. Nobody begins before all are ready.
    with multiprocessing.get_context("spawn").Pool(workers, _ready, (cells[0],)) as processes:
        processes.map(_warm, range(4 * workers), chunksize=1)
        together = time.perf_counter()
        seconds = processes.map(bare, trainings, chunksize=1)
        together = time.perf_counter() - together
    return {
        "cells": len(cells),
        "trainings": len(trainings),
        "cycles": cycles,
        "workers": workers,
        "start_s": start - begin,
        "cells_s": end - start,
        "bare_work_s": sum(seconds),
        "bare_s": together,
    }


def whole_command(python: str, scratch: Path, data_dir: str, out: Path) -> float:
    """Return the seconds that `flwr-mel sweep` takes in an environment, its start included."""
    start = time.perf_counter()
    sweep = ["sweep", str(scratch / "sweep.toml"), "--data-dir", data_dir]
    command = [python, "-m", "flwr_mel.tools.cli", *sweep]
    # Elsewhere than in the checkout, whose packages `-m` would take instead of the environment's.
    subprocess.run([*command, "--out", str(out)], check=True, cwd=scratch, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def _jobs(schedule: Schedule) -> list[Job]:
    return [(t.epochs, t.samples, t.seed) for cycle in schedule.cycles for t in cycle.tasks]


_cell: list[Cell] = []


def _ready(cell: Cell) -> None:
    _cell.append(cell)
    dataset_of(cell.config)


def _warm(_: int) -> None:
    time.sleep(0.2)  # so that every process takes one


def bare(jobs: list[Job]) -> float:
    """Train as every task says, on any samples, and return the seconds: which samples does not matter."""
    [cell] = _cell
    data, weights = dataset_of(cell.config), initial_weights(0, LAYERS)
    start = time.perf_counter()
    with single_thread():
        for epochs, samples, seed in jobs:
            x, y = data.train_x[:samples], data.train_y[:samples]
            rng = np.random.default_rng(seed)
            train(weights, x, y, epochs, batch=batch_size(cell.config), rng=rng)
    return time.perf_counter() - start


def report(r: dict[str, float]) -> str:
    """Return the section."""
    rows = [
        [f"the whole command{version}", f"{r[name]:.0f} s", ""]
        for name, version in (("before_s", ", version before"), ("command_s", ""))
        if name in r
    ]
    rows += [
        ["start of Ray and its workers", f"{r['start_s']:.0f} s", ""],
        ["the sweep's cells: planning, training, averaging, testing, writing", f"{r['cells_s']:.1f} s", ""],
        [
            f"bare training of the cells in {r['workers']:.0f} processes",
            f"{r['bare_s']:.1f} s",
            f"{r['cells_s'] / r['bare_s']:.2f}",
        ],
    ]
    return (
        "## A sweep against the bare training of its cells\n\n"
        f"{r['cells']:.0f} cells of 20 learners and {r['cycles']:.0f} cycles, {r['trainings']:.0f} of them "
        "different trainings, both timed in one run. Generated by `python -m bench.sweep`.\n\n"
        + table(["what", "takes", "sweep's cells / that"], rows)
    )


if __name__ == "__main__":
    main()
