"""What all commands share: exit codes, errors in one line, the console, commands of other packages."""

from __future__ import annotations

import errno
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NoReturn

import click
import typer
from click.core import ParameterSource
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from flwr_mel._text import error_line, message, printable
from flwr_mel._validate import InputError

#: Exit codes: a bug of ours, bad input, no allocation fits, the machine is in the way (files, disk, memory,
#: packages), a run that was started has failed, Ctrl-C.
BUG, BAD_INPUT, INFEASIBLE, ENVIRONMENT, FAILED, INTERRUPTED = 1, 2, 3, 4, 5, 130
#: Entry points by which other packages, such as the simulation, add commands.
COMMANDS = "flwr_mel.commands"
#: What the app in simulation/ adds, and what to install for it.
SIMULATION, SIMULATION_PROJECTS = ("simulate", "sweep", "arena"), ". ./simulation"
#: Columns of text that goes to a file or a pipe.
PIPED_WIDTH = 100

_ELSEWHERE = "choose another place"
_REMEDIES = {
    errno.ENOSPC: f"Free some space, or {_ELSEWHERE}",
    errno.EDQUOT: f"Free some space, or {_ELSEWHERE}",
    errno.EFBIG: f"Raise the limit (ulimit -f), or {_ELSEWHERE}",
    errno.EACCES: f"Check the permissions, or {_ELSEWHERE}",
    errno.EPERM: f"Check the permissions, or {_ELSEWHERE}",
    errno.EROFS: "Choose a place that can be written to",
    errno.ENOENT: "Check the path",
    errno.ENOTDIR: "A file exists where a directory is needed: check the path",
    errno.EEXIST: "A file exists where a directory is needed: check the path",
    errno.EISDIR: "A directory exists where a file is needed: check the path",
}


class Commands(TyperGroup):
    """The group of commands. Whatever goes wrong ends in one line and an exit code, not a traceback."""

    def main(self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **extra: Any) -> Any:  # type: ignore[override]
        """Run, and exit as `standalone_mode` asks, with our form of error messages."""

        def run() -> Any:
            code = super(Commands, self).main(args, standalone_mode=False, **extra)
            if sys.stdout is None:
                return say("standard output: closed. Send it to /dev/null if it is not wanted", ENVIRONMENT)
            sys.stdout.flush()  # while an error can still be told
            return code

        if not standalone_mode:
            return run()
        sys.exit(_exit_code(run))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name our commands, then those that other packages add."""
        return list(dict.fromkeys([*super().list_commands(ctx), *SIMULATION, *plugins(COMMANDS)]))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; one of another package is imported only when it is asked for."""
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in self.list_commands(ctx):
            return own
        try:
            command = typer.main.get_command(plugin(COMMANDS, cmd_name))
        except ImportError as error:
            command = _unavailable(cmd_name, error)
        command.name = cmd_name
        return command


def plugins(group: str) -> dict[str, EntryPoint]:
    """Return what other packages add under an entry point group, by name."""
    return {point.name: point for point in entry_points(group=group)}


def plugin(group: str, name: str) -> Any:
    """Return one of them, or raise ImportError."""
    if name not in plugins(group):
        raise ImportError("mel-simulation is not installed")
    return plugins(group)[name].load()


def _unavailable(name: str, error: ImportError) -> click.Command:
    """Return a command in place of one whose packages are not installed: it says which."""
    return click.Command(
        name,
        callback=lambda: missing_packages(name, error, SIMULATION_PROJECTS),
        short_help=f"Not available: {error}.",
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )


def _exit_code(run: Callable[[], Any]) -> int:
    """Run a command and return its exit code, whatever goes wrong."""
    try:
        code = run()
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "flwr-mel"
        what = error.format_message().rstrip(".")
        return say(f"{what}{'' if what.endswith('?') else '.'} See: {path} --help", BAD_INPUT)
    except (click.Abort, KeyboardInterrupt):
        return say("interrupted", INTERRUPTED)
    except SystemExit as leaving:  # typer and rich leave with 1 when a pipe breaks, whichever it was
        if isinstance(leaving.__context__, OSError):
            return _environment(leaving.__context__)
        raise
    except (OSError, MemoryError) as error:
        return _environment(error)
    except Exception as error:
        if os.environ.get("FLWR_MEL_DEBUG"):
            raise
        hint = "Please report it; FLWR_MEL_DEBUG=1 shows where it happened"
        return say(f"internal error, {error_line(error)}. {hint}", BUG)
    return code if isinstance(code, int) else 0


def _environment(error: OSError | MemoryError) -> int:
    """Say what the machine refused, and what to do. A reader that has left is no error."""
    if isinstance(error, MemoryError):
        remedy = "Ask for less (learners, samples), or use a machine with more memory"
        return say(f"out of memory ({message(error).rstrip('.')}). {remedy}", ENVIRONMENT)
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    # The error itself does not tell whether it happened in our output or in a file.
    module = str(frame.f_globals.get("__name__"))
    printing = module.partition(".")[0] in ("click", "rich", "typer") or module == __name__
    if printing:
        _discard(sys.stdout)
        if isinstance(error, BrokenPipeError):
            _discard(sys.stderr)
            return 0
    place = error.filename or ("standard output" if printing else "")
    what = error.strerror or str(error) or type(error).__name__
    return say(f"{place}: {what}{_remedy(error)}" if place else what + _remedy(error), ENVIRONMENT)


def _remedy(error: BaseException | None) -> str:
    known = _REMEDIES.get(error.errno or 0, "") if isinstance(error, OSError) else ""
    return f". {known}" if known else ""


def _discard(stream: Any) -> None:
    """Point a stream elsewhere, or the interpreter complains on its way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def say(text: str, code: int) -> int:
    """Write one line to stderr and return the exit code."""
    line = printable(" ".join(text.split()))
    try:
        typer.echo(f"{typer.style('error:', fg='red', bold=True)} {line}", err=True)
    except OSError:  # stderr is closed; the code still tells
        _discard(sys.stderr)
    return code


def stop(text: str, code: int = BAD_INPUT) -> NoReturn:
    """End the command with one line on stderr."""
    raise typer.Exit(say(text, code))


def note(text: str) -> None:
    """Write a remark to stderr, where it does not disturb a program that reads stdout."""
    typer.echo(f"note: {text}", err=True)


def _options() -> dict[str, str]:
    """Return the options of the running command by parameter."""
    return {str(p.name): p.opts[0] for p in click.get_current_context().command.params if p.opts[0][0] == "-"}


def refuse_given(why: str, *names: str) -> None:
    """End the command if one of these parameters was given on the command line: it would be ignored."""
    for name in names:
        if click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE:
            stop(f"{_options()[name]} must be left out {why}")


def missing_packages(what: str, error: ImportError, projects: str) -> NoReturn:
    """End the command because an optional part is not installed, and say what pip has to install."""
    stop(f"{what} needs more packages ({error}); in a clone of flwr_mel: pip install {projects}", ENVIRONMENT)


@contextmanager
def bad_input(names: Mapping[str, str] | None = None) -> Iterator[None]:
    """Turn the library's complaints into one line and an exit code; any other error is a bug of ours.

    Parameters
    ----------
    names : mapping, optional
        What the user calls the library's fields, apart from options of the same name.
    """
    try:
        yield
    except InputError as error:
        text = error.told(_options() | dict(names or {}))
        if isinstance(error.__cause__, OSError | MemoryError):
            stop(text.rstrip(".") + _remedy(error.__cause__), ENVIRONMENT)
        stop(text)
    except KeyboardInterrupt:  # typer would end without a word
        stop("interrupted", INTERRUPTED)


# What answers are made of


def print_json(body: Mapping[str, Any]) -> None:
    """Write an answer for programs."""
    typer.echo(json.dumps(body, indent=2, allow_nan=False))


def console() -> Console:
    """Return where tables go: stdout, coloured and as wide as the terminal if it is one."""
    out = Console(highlight=False)
    if not out.is_terminal and not os.environ.get("COLUMNS"):
        return Console(highlight=False, width=PIPED_WIDTH)
    return out


def title(out: Console, text: str, detail: str) -> None:
    """Print the first lines."""
    out.print(Text(text, style="bold"))
    out.print(Text(detail, style="dim"))
    out.print()


def grid(*columns: str) -> Table:
    """Return a table without a frame; columns are numbers, those that end in "<" words."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for column in columns:
        words = column.endswith("<")
        table.add_column(column.rstrip("<"), justify="left" if words else "right", no_wrap=True)
    return table


def facts(out: Console, pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and values in two columns."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for key, value in pairs:
        table.add_row(key, Text(value))
    out.print(table)
