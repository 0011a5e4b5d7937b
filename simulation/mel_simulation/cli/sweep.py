"""``flwr-mel sweep``: many simulations side by side."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from mel_simulation.cli.many import Loaded, command
from mel_simulation.sweep.cells import profiles, read_sweep


def _load(file: Path, where: Path, known: list[Path], data_dir: str) -> Loaded:
    cells = read_sweep(file, data_dir)
    from mel_simulation.scenario.job import dataset_of  # noqa: PLC0415 (takes a moment)
    from mel_simulation.sweep import run  # noqa: PLC0415
    from mel_simulation.sweep.results import Results  # noqa: PLC0415

    results = Results(where, known)
    notices = [dataset_of(cell).notice for cell in cells]
    return notices, partial(run.sweep, cells, results), partial(run.collect, cells, results)


app = command(
    "sweep",
    "cells",
    profiles(),
    _load,
    "Run a grid of simulations: schemes, limits, staleness, hand-outs, seeds, baselines.\n\n"
    "Results: OUT/results.jsonl, one line per cell.",
)
