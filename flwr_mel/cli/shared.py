"""What all commands share: exit codes, errors in one line, the console."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, NoReturn

import click
import typer
from click.core import ParameterSource
from rich.console import Console
from typer.core import TyperGroup

from flwr_mel._text import error_line, message, printable
from flwr_mel._validate import InputError
from flwr_mel.cli import plugins

#: Exit codes: a bug of ours, bad input, no allocation fits, the machine is in the way (files, disk, memory,
#: packages), a run that was started has failed, Ctrl-C.
BUG, BAD_INPUT, INFEASIBLE, ENVIRONMENT, FAILED, INTERRUPTED = 1, 2, 3, 4, 5, 130


class DatasetName(StrEnum):
    """Datasets of the simulation, known without importing it."""

    MNIST = "mnist"
    FASHION_MNIST = "fashion-mnist"


#: Columns of text that goes to a file or a pipe.
PIPED_WIDTH = 100

_SPACE = "Free some space, or choose another place"
_ALLOWED = "Check the permissions, or choose another place"
_TAKEN = "A file stands where a directory is needed: check the path"
_REMEDIES = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EFBIG: "Raise the limit (ulimit -f), or choose another place",
    errno.EACCES: _ALLOWED,
    errno.EPERM: _ALLOWED,
    errno.EROFS: "Choose a place that can be written to",
    errno.ENOENT: "Check the path",
    errno.ENOTDIR: _TAKEN,
    errno.EEXIST: _TAKEN,
    errno.EISDIR: "A directory stands where a file is needed: check the path",
    errno.EMFILE: "Raise the limit of open files (ulimit -n)",
    errno.ECONNREFUSED: "Is the other end running?",
}
_MEMORY = "Ask for less (learners, samples), or use a machine with more memory"


class Commands(TyperGroup):
    """The group of commands. Whatever goes wrong ends in one line and an exit code, not a traceback."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, and exit as `standalone_mode` asks, with our form of error messages."""

        def run() -> Any:
            inner = super(Commands, self).main
            code = inner(args, prog_name, complete_var, False, windows_expand_args, **extra)
            sys.stdout.flush()  # while an error can still be told
            return code

        if not standalone_mode:
            return run()
        sys.exit(self._run(run))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name our commands, then those that other packages add."""
        own = super().list_commands(ctx)
        return own + [name for name in plugins.found(plugins.COMMANDS) if name not in own]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; one of another package is imported only when it is asked for."""
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in plugins.found(plugins.COMMANDS):
            return own
        try:
            command = typer.main.get_command(plugins.load(plugins.COMMANDS, cmd_name))
        except ImportError as error:
            command = _unavailable(cmd_name, error)
        command.name = cmd_name
        return command

    def _run(self, run: Callable[[], Any]) -> int:
        try:
            code = run()
        except click.ClickException as error:
            return _usage(error)
        except (click.Abort, KeyboardInterrupt):
            return say("interrupted", INTERRUPTED)
        except SystemExit as leaving:
            # typer and rich leave with 1 when a pipe breaks, whichever it was.
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


def say(text: str, code: int) -> int:
    """Write one line to stderr and return the exit code."""
    line = printable(" ".join(text.split()))
    try:
        typer.echo(f"{typer.style('error:', fg='red', bold=True)} {line}", err=True)
    except OSError:  # nobody listens; the code still tells
        _discard(sys.stderr)
    return code


def stop(text: str, code: int = BAD_INPUT) -> NoReturn:
    """End the command with one line on stderr."""
    raise typer.Exit(say(text, code))


def note(text: str) -> None:
    """Write a remark to stderr, where it does not disturb a program that reads stdout."""
    typer.echo(f"note: {text}", err=True)


def given(*names: str) -> list[str]:
    """Return those of the running command's parameters that stand on the command line, as options."""
    context = click.get_current_context()
    typed = [name for name in names if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    options = {p.name: p.opts[0] for p in context.command.params}
    return [options[name] for name in typed]


def refuse_given(why: str, *names: str) -> None:
    """End the command if one of these parameters was given: it would be ignored.

    Parameters
    ----------
    why : str
        Beside what it has no meaning, or what says it already.
    *names : str
        Parameters, as the function of the command calls them.
    """
    for option in given(*names):
        stop(f"{option} must be left out {why}")


def missing_packages(what: str, error: ImportError, extra: str) -> NoReturn:
    """End the command because an optional part is not installed.

    Parameters
    ----------
    what : str
        What was asked for.
    error : ImportError
        Which package is missing.
    extra : str
        The extra of flwr-mel that brings it.
    """
    stop(f"{what} needs more packages ({error}): pip install 'flwr-mel[{extra}]'", ENVIRONMENT)


def _unavailable(name: str, error: ImportError) -> click.Command:
    """Return a command in place of one whose packages are not installed: it says which."""
    return click.Command(
        name,
        callback=lambda: missing_packages(name, error, "simulation"),
        short_help=f"Not available: {error}.",
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )


def _usage(error: click.ClickException) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "flwr-mel"
    text = error.format_message().rstrip(".").replace("\n", " ")
    return say(f"{text}. See: {path} --help", BAD_INPUT)


def _environment(error: OSError | MemoryError) -> int:
    """Say what the machine refused, and what to do. A reader that has left is no error."""
    if isinstance(error, BrokenPipeError) and _while_printing(error):
        _discard(sys.stdout)
        _discard(sys.stderr)
        return 0
    if isinstance(error, MemoryError):
        return say(f"out of memory ({message(error).rstrip('.')}). {_MEMORY}", ENVIRONMENT)
    place = error.filename
    if place is None and _while_printing(error):
        place = "standard output"
        _discard(sys.stdout)
    places = [str(name) for name in (place, error.filename2) if name is not None]
    what = error.strerror or str(error) or type(error).__name__
    return say(": ".join([" and ".join(places), what] if places else [what]) + _remedy(error), ENVIRONMENT)


def _remedy(error: BaseException | None) -> str:
    known = _REMEDIES.get(error.errno or 0, "") if isinstance(error, OSError) else ""
    return f". {known}" if known else ""


def _discard(stream: Any) -> None:
    """Point a stream elsewhere, or the interpreter complains on its way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _while_printing(error: OSError) -> bool:
    """Whether it happened where we print, and not in a file of somebody's: the error itself does not tell."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    module = str(frame.f_globals.get("__name__"))
    return module.partition(".")[0] in ("click", "rich", "typer") or module == __name__


@contextmanager
def bad_input(options: Mapping[str, str] | None = None) -> Iterator[None]:
    """Turn the library's complaints into one line and an exit code; any other error is a bug of ours.

    Parameters
    ----------
    options : mapping, optional
        From the library's field names to the options a user knows.
    """
    try:
        yield
    except InputError as error:
        text = error.told(options or {})
        if isinstance(error.__cause__, OSError | MemoryError):
            stop(text.rstrip(".") + _remedy(error.__cause__), ENVIRONMENT)
        stop(text)


def console(width: int | None = None) -> Console:
    """Return where tables go: stdout, coloured and as wide as the terminal if it is one."""
    out = Console(highlight=False, width=width)
    if width is None and not out.is_terminal and not os.environ.get("COLUMNS"):
        return Console(highlight=False, width=PIPED_WIDTH)
    return out
