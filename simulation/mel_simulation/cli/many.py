"""What ``flwr-mel sweep`` and ``flwr-mel arena`` share: everything but what they compute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from errno import ENOENT
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from flwr_mel._validate import complain, count
from flwr_mel.tools.shell import FAILED, INTERRUPTED, bad_input, note, stop
from mel_simulation.ray_session import Show, TaskError

RayAddress = Annotated[str, typer.Option(envvar="RAY_ADDRESS", help="Existing Ray cluster.")]

#: Notices about the data, what computes all tasks, and what writes the finished ones into a file.
Loaded: TypeAlias = tuple[Iterable[str], Callable[[Show, int, str], None], Callable[[], Path]]
#: Called with the profile's file, the directory of the results, other results, and the directory of the data.
Load: TypeAlias = Callable[[Path, Path, list[Path], str], Loaded]


def command(name: str, tasks: str, profiles: Mapping[str, Path], load: Load, about: str) -> typer.Typer:
    """Return a command that computes a profile.

    Parameters
    ----------
    name : str
        Of the command.
    tasks : str
        What it computes.
    profiles : mapping
        Files by name; each begins with a comment for the help.
    load : callable
        Reads the profile.
    about : str
        Help.
    """
    comments = {each: path.read_text(encoding="utf-8").splitlines()[0] for each, path in profiles.items()}
    listed = "\n\n".join(f"{each}: {comment.lstrip('# ')}" for each, comment in comments.items())
    which = typer.Argument(
        "quick",
        help=f"A TOML file, or a profile: {', '.join(profiles)}.",
        autocompletion=lambda incomplete: [each for each in profiles if each.startswith(incomplete)],
    )
    app = typer.Typer(add_completion=False)

    @app.command(
        help=f"{about}\n\nProfiles:\n\n{listed}",
        epilog=f"Example:\n\nflwr-mel {name} quick\n\nAfter a kill, the same command continues.",
    )
    def compute(
        profile: str = which,
        out: Annotated[Path | None, typer.Option(help="Where results go; default: runs/NAME.")] = None,
        known: Annotated[
            list[Path] | None,
            typer.Option("--from", help="Results that need not be computed again; may be repeated."),
        ] = None,
        data_dir: Annotated[
            str, typer.Option(help="Directory of the data; default: the cache, or a download.")
        ] = "",
        workers: Annotated[int, typer.Option(help="Number of parallel workers; 0: one per CPU.")] = 0,
        ray_address: RayAddress = "",
    ) -> None:
        file = profiles.get(profile, Path(profile))
        where = (out or Path("runs") / f"{name}-{file.stem}").resolve()
        with bad_input({"data_dir": "--data-dir", "results": "--from"}), progress(tasks) as show:
            count("--workers", workers)
            if not file.is_file():
                rule = f"one of {', '.join(profiles)}, or a TOML file"
                raise complain("profile", rule, profile) from FileNotFoundError(ENOENT, "")
            notices, work, collect = load(file, where, known or [], absolute(data_dir))
            for notice in sorted(set(notices) - {""}):
                note(notice)
            why, code = "", 0
            try:
                work(show, workers, ray_address)
            except TaskError as error:
                why, code = f"failed: {error}", FAILED
            except KeyboardInterrupt:
                why, code = "interrupted", INTERRUPTED
            results = collect()
            if why:
                stop(f"{why}. Finished {tasks} are in {results}; the same command continues", code)
        typer.echo(results)

    return app


def absolute(path: str) -> str:
    """Return an absolute path, because workers run elsewhere; an empty one stays empty."""
    return str(Path(path).resolve()) if path else ""


@contextmanager
def progress(tasks: str) -> Iterator[Show]:
    """Show a bar on stderr; in a pipe, a line for every phase and every finished task."""
    out = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, disable=not out.is_terminal) as bar:
        task = bar.add_task("loading", total=None)

        def show(phase: str, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, description=phase)
            if not out.is_terminal:
                out.print(f"{done} of {total} {tasks}: {phase}", soft_wrap=True)

        yield show
