"""A sweep's wall time against the bare training of its cells: ``python -m bench.sweep``.

Bare: the same tasks (epochs, samples) given to `scenario.network.train`, a process per core taking cell by
cell, without Ray, planning, evaluation or averaging. The start of Ray and of the processes is not counted.
"""

from __future__ import annotations

import multiprocessing
import os
import struct
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from mel_simulation.scenario.data import FILES, embedded
from mel_simulation.scenario.job import batch_size, dataset_of
from mel_simulation.scenario.network import initial_weights, train
from mel_simulation.sweep.cells import Cell, read_sweep
from mel_simulation.sweep.results import Results
from mel_simulation.sweep.rounds import rounds
from mel_simulation.sweep.run import sweep

from bench.tables import arguments, save

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
    parser = arguments(__doc__)
    parser.add_argument("--data-dir", type=Path, help="the full MNIST as idx files")
    parser.add_argument("--cycles", type=int, default=12)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="b-") as name:
        scratch = Path(name)
        data_dir = args.data_dir.resolve() if args.data_dir else repeated(scratch / "data")
        result = measure(scratch, str(data_dir), args.cycles)
    print(section(result))
    if not args.no_write:
        save("sweep", result)


def repeated(directory: Path) -> Path:
    """Write the embedded digits, repeated to 60,000, as idx files: as many steps as with MNIST."""
    directory.mkdir()
    d = embedded()
    for name, array in zip(FILES, (d.train_x, d.train_y, d.test_x, d.test_y), strict=True):
        shape = (-1, 28, 28) if array.ndim == 2 else (-1,)
        many = np.concatenate([array] * (15 if name.startswith("train") else 10)).reshape(shape)
        head = struct.pack(f">{1 + many.ndim}I", 0x0800 + many.ndim, *many.shape)
        (directory / name).write_bytes(head + many.tobytes())
    return directory


def measure(scratch: Path, data_dir: str, cycles: int) -> dict[str, float]:
    """Time the sweep and, right after it, the bare training of its cells."""
    path = scratch / "sweep.toml"
    path.write_text(SWEEP.format(cycles=cycles), encoding="utf-8")
    cells = read_sweep(path, data_dir)
    dataset_of(cells[0])
    workers, shown = os.cpu_count() or 1, dict[str, float]()

    def show(phase: str, *_: int) -> None:
        shown.setdefault(phase, time.perf_counter())

    sweep(cells, Results(scratch / "out"), show)
    end = time.perf_counter()
    trainings = [_jobs(cell) for cell in cells]
    # Not forked: torch's threads do not survive that. No process begins before all are ready.
    with multiprocessing.get_context("spawn").Pool(workers, _ready, (cells[0],)) as processes:
        processes.map(_warm, range(4 * workers), chunksize=1)
        together = time.perf_counter()
        processes.map(bare, trainings, chunksize=1)
        together = time.perf_counter() - together
    return {
        "cells": len(cells),
        "cycles": cycles,
        "workers": workers,
        "start_s": shown["computing"] - shown["starting Ray"],
        "cells_s": end - shown["computing"],
        "bare_s": together,
    }


def _jobs(cell: Cell) -> list[Job]:
    untrained = rounds(cell, lambda _, __, weights: weights)
    return [(t.epochs, t.samples, t.seed) for tasks, _, _ in untrained for t in tasks]


_cell: list[Cell] = []


def _ready(cell: Cell) -> None:
    _cell.append(cell)
    dataset_of(cell)


def _warm(_: int) -> None:
    time.sleep(0.2)  # so that every process takes one


def bare(jobs: list[Job]) -> None:
    """Train as every task says, on any samples: which ones does not matter."""
    [cell] = _cell
    data, weights = dataset_of(cell), initial_weights(0)
    for epochs, samples, seed in jobs:
        x, y = data.train_x[:samples], data.train_y[:samples]
        train(weights, x, y, epochs, batch=batch_size(cell), rng=np.random.default_rng(seed))


def section(r: dict[str, Any]) -> str:
    """Return the section of the page."""
    return f"""## Sweeps

A sweep of {r["cells"]:.0f} cells with 20 learners and {r["cycles"]:.0f} cycles takes {r["cells_s"]:.0f} s,
**{r["cells_s"] / r["bare_s"]:.2f} times** as long as the bare training of its tasks in {r["workers"]:.0f}
processes. The start of Ray ({r["start_s"]:.0f} s) is not included.
"""


if __name__ == "__main__":
    main()
