"""``flwr-mel sweep``: many simulations on one start of Flower's engine."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from flwr_mel.cli.shared import BUG, INTERRUPTED, bad_input, console, note, stop

EXAMPLES = (
    "Examples:\n\nflwr-mel sweep quick\n\nflwr-mel sweep headline --data-dir mnist --out results/headline\n\n"
    "flwr-mel sweep mine.toml\n\nIt may be killed at any time; the same command goes on."
)


def sweep(
    config: Annotated[
        str,
        typer.Argument(help="A TOML file, or a profile: quick, headline, paper, past."),
    ],
    out: Annotated[Path | None, typer.Option(help="Where results go; default: runs/sweep-NAME.")] = None,
    data_dir: Annotated[str, typer.Option(help="Directory of idx files.")] = "",
    cpus_per_learner: Annotated[float, typer.Option(help="CPUs per working learner.")] = 1.0,
    ray_address: Annotated[str, typer.Option(envvar="RAY_ADDRESS", help="Existing Ray cluster.")] = "",
) -> None:
    """Run a grid of simulations: schemes, limits, staleness, hand-outs, seeds, baselines.

    A profile's name or a TOML file says which. Cells that come to the same training are computed once.
    Results: OUT/results.jsonl, one line per cell.
    """
    try:
        from simulation.cells import read_sweep  # noqa: PLC0415
    except ImportError as error:
        stop(f"the sweep needs more packages ({error}): pip install 'flwr-mel[simulation]'", BUG)
    path = _profile(config)
    where = (out or Path("runs") / f"sweep-{path.stem}").resolve()
    logging.getLogger("simulation").addHandler(logging.NullHandler())
    with bad_input():
        folder = str(Path(data_dir).resolve()) if data_dir else ""
        cells = read_sweep(path, folder)
        _run(path.resolve(), cells, where, folder, cpus_per_learner, ray_address)


def _profile(name: str) -> Path:
    import simulation  # noqa: PLC0415

    own = Path(simulation.__file__).parent / "profiles" / f"{name}.toml"
    return own if own.is_file() else Path(name)


def _run(path: Path, cells: Sequence[Any], out: Path, data_dir: str, cpus: float, ray_address: str) -> None:
    from simulation.launch import Engine, LaunchError, complete  # noqa: PLC0415
    from simulation.results import Results  # noqa: PLC0415
    from simulation.task import dataset_of  # noqa: PLC0415

    results, data = Results(out), dataset_of(cells[0].config)
    if data.notice:
        note(data.notice)
    learners = {cell.config.learners for cell in cells}
    if len(learners) != 1 or 0 in learners:
        raise ValueError(f"learners must be the same positive number in all cells, got {sorted(learners)}")
    done = len(results.done(cells))
    trouble = ""
    if done < len(cells):
        out.mkdir(parents=True, exist_ok=True)
        config = {"sweep": str(path), "data-dir": data_dir, "out": str(out)}
        engine = Engine(learners.pop(), cpus, ray_address, data.embedded)
        try:
            trouble = complete(
                config,
                engine,
                out / "flower.log",
                lambda alive: follow(console(), results, cells, alive),
                "simulation.sweep_app:app",
            )
        except LaunchError as error:
            stop(str(error), BUG)
        except KeyboardInterrupt:
            written = results.collect(cells, data.notice)
            finished = f"{len(results.done(cells))} of {len(cells)} cells are in {written}"
            stop(f"interrupted: {finished}; the same command goes on", INTERRUPTED)
    written = results.collect(cells, data.notice)
    if trouble:
        stop(f"the sweep failed: {trouble}. Its log: {out / 'flower.log'}; the same command goes on", BUG)
    typer.echo(f"{len(results.done(cells))} of {len(cells)} cells in {written}")


def follow(out: Console, results: Any, cells: Sequence[Any], alive: Any) -> None:
    """Show how many cells are finished until the run ends."""
    start, before = time.monotonic(), len(results.done(cells))
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), TextColumn("{task.fields[left]}"), console=out) as progress:
        bar = progress.add_task("starting Flower's engine", total=len(cells), completed=before, left="")
        shown = before
        while True:
            going = alive()
            done = len(results.done(cells))
            fresh = done - before
            left = (len(cells) - done) * (time.monotonic() - start) / fresh if fresh else 0.0
            text = f"about {left / 60:.0f} min left" if fresh and going else ""
            progress.update(bar, completed=done, description="cells" if fresh else "starting", left=text)
            if done > shown and not out.is_terminal:
                out.print(f"{done} of {len(cells)} cells {text}", soft_wrap=True)
                shown = done
            if not going:
                return
            time.sleep(0.5)
