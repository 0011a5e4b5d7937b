"""``flwr-mel sweep``: many simulations side by side."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from mel_simulation.cli import many
from mel_simulation.sweep.cells import profiles, read_sweep

EXAMPLES = (
    "Examples:\n\nflwr-mel sweep quick\n\nflwr-mel sweep headline --data-dir mnist --out results/headline\n\n"
    "flwr-mel sweep paper --from results/paper.jsonl --from results/headline.jsonl\n\n"
    "flwr-mel sweep mine.toml\n\nIt may be killed at any time; the same command continues."
)

app = typer.Typer(add_completion=False)


@app.command(
    epilog=EXAMPLES,
    help="Run a grid of simulations: schemes, limits, staleness, hand-outs, seeds, baselines.\n\n"
    f"Results: OUT/results.jsonl, one line per cell.\n\n{many.help_on(profiles())}",
)
def sweep(
    config: Annotated[str, many.profile_argument(profiles())],
    out: many.Out = None,
    known: many.Known = None,
    data_dir: many.DataDir = "",
    workers: many.Workers = 0,
    ray_address: many.RayAddress = "",
) -> None:
    """Run a grid of simulations."""
    path = profiles().get(config, Path(config))
    where = (out or Path("runs") / f"sweep-{path.stem}").resolve()

    def load() -> many.Loaded:
        cells = read_sweep(path, data_dir)
        from mel_simulation.scenario.job import dataset_of  # noqa: PLC0415 (takes a moment)
        from mel_simulation.sweep import run  # noqa: PLC0415
        from mel_simulation.sweep.results import Results  # noqa: PLC0415

        results = Results(where, known or ())
        notices = [dataset_of(cell).notice for cell in cells]
        return notices, partial(run.sweep, cells, results), partial(run.collect, cells, results)

    typer.echo(many.finished("sweep", "cells", load, workers, ray_address))
