"""What ``flwr-mel sweep`` and ``flwr-mel arena`` share: options, profiles, progress, and how they end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from flwr_mel._validate import count
from flwr_mel.tools.shell import FAILED, INTERRUPTED, bad_input, console, missing_packages, note, stop
from mel_simulation.cli.options import absolute
from mel_simulation.ray_session import Show, TaskError

Out = Annotated[Path | None, typer.Option(help="Where results go; default: runs/COMMAND-NAME.")]
Known = Annotated[
    list[Path] | None,
    typer.Option("--from", help="Results that need not be computed again; may be repeated."),
]
DataDir = Annotated[
    str, typer.Option(help="Directory of the data. Default: the cache, or a download.", callback=absolute)
]
Workers = Annotated[int, typer.Option(help="Number of parallel workers; 0: one per CPU.")]
RayAddress = Annotated[str, typer.Option(envvar="RAY_ADDRESS", help="Existing Ray cluster.")]

#: Notices about the data, what computes all tasks, and what writes the results of finished ones.
Loaded: TypeAlias = tuple[Iterable[str], Callable[[Show, int, str], None], Callable[[], Path]]


def profile_argument(profiles: Mapping[str, Path]) -> Any:
    """Return an argument for a profile or a file, with completion."""

    def complete(begun: str) -> list[str]:
        return [name for name in profiles if name.startswith(begun)]

    text = f"A TOML file, or a profile: {', '.join(profiles)}."
    return typer.Argument(help=text, autocompletion=complete)


def help_on(profiles: Mapping[str, Path]) -> str:
    """Return the profiles for the help of a command, each with the comment that its file begins with."""
    texts = {name: path.read_text(encoding="utf-8") for name, path in profiles.items()}
    lines = [f"{name}: {text.splitlines()[0].lstrip('# ')}" for name, text in texts.items()]
    return "\n\n".join(["Profiles:", *lines])


def finished(command: str, tasks: str, load: Callable[[], Loaded], workers: int, ray_address: str) -> Path:
    """Compute all tasks and return the file of results; if not all were computed, end the command."""
    with bad_input({"data_dir": "--data-dir", "results": "--from"}), progress(console(), tasks) as show:
        count("--workers", workers)
        show("loading", 0, 1)
        try:
            notices, compute, collect = load()
        except ImportError as error:
            missing_packages(command, error, "simulation")
        for notice in sorted(set(notices) - {""}):
            note(notice)
        why, code = "", 0
        try:
            compute(show, workers, ray_address)
        except TaskError as error:
            why, code = f"failed: {error}", FAILED
        except KeyboardInterrupt:
            why, code = "interrupted", INTERRUPTED
        file = collect()
        if why:
            stop(f"{why}. Finished {tasks} are in {file}; the same command continues", code)
    return file


@contextmanager
def progress(out: Console, tasks: str) -> Iterator[Show]:
    """Show a bar; in a pipe, a line for every phase and every finished task."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, disable=not out.is_terminal) as bar:
        task = bar.add_task("loading", total=None)

        def show(phase: str, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, description=phase)
            if not out.is_terminal:
                out.print(f"{done} of {total} {tasks}: {phase}", soft_wrap=True)

        yield show
