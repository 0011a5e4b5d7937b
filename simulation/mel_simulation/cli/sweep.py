"""``flwr-mel sweep``: many simulations side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flwr_mel._validate import count
from flwr_mel.tools.shell import bad_input, console, missing_packages, note, stop
from mel_simulation.cli.many import Known, RayAddress, Workers, help_on, profile_argument, why_stopped
from mel_simulation.cli.progress import progress
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
    "The argument is a profile or a TOML file. Cells with the same training are computed once. "
    f"Results: OUT/results.jsonl, one line per cell.\n\n{help_on(profiles())}",
)
def sweep(
    config: Annotated[str, profile_argument(profiles())],
    out: Annotated[Path | None, typer.Option(help="Where results go; default: runs/sweep-NAME.")] = None,
    known: Known = None,
    data_dir: Annotated[str, typer.Option(help="Directory of idx files.")] = "",
    workers: Workers = 0,
    ray_address: RayAddress = "",
) -> None:
    """Run a grid of simulations."""
    path = profiles().get(config, Path(config))
    where = (out or Path("runs") / f"sweep-{path.stem}").resolve()
    with bad_input({"data_dir": "--data-dir", "results": "--from"}):
        count("--workers", workers)
        cells = read_sweep(path, str(Path(data_dir).resolve()) if data_dir else "")
        try:
            from mel_simulation.scenario.job import dataset_of  # noqa: PLC0415 (takes a moment)
            from mel_simulation.sweep import run  # noqa: PLC0415
            from mel_simulation.sweep.results import Results  # noqa: PLC0415
        except ImportError as error:
            missing_packages("sweep", error, "simulation")
        results = Results(where, known or ())
        with progress(console(), "cells") as show:
            show("loading", 0, len(cells))
            if notice := " ".join({text for cell in cells if (text := dataset_of(cell.config).notice)}):
                note(notice)
            why, code = why_stopped(
                lambda: run.sweep(cells, results, show, workers, ray_address), run.SweepError
            )
            file, done = results.collect(cells, notice), sum(cell.key in results.rows for cell in cells)
            show("stopped" if why else "done", done, len(cells))
    if why:
        stop(f"{why}. {done} of {len(cells)} cells are in {file}; the same command continues", code)
    typer.echo(f"{done} of {len(cells)} cells in {file}")
