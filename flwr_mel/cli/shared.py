"""What all commands share: exit codes, errors in one line, the console."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import click
import typer
from rich.console import Console
from typer.core import TyperGroup

BUG, BAD_INPUT, INFEASIBLE, INTERRUPTED = 1, 2, 3, 130

#: Columns of text that goes to a file or a pipe.
PIPED_WIDTH = 100


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
            return inner(args, prog_name, complete_var, False, windows_expand_args, **extra)

        if not standalone_mode:
            return run()
        sys.exit(self._run(run))

    def _run(self, run: Callable[[], Any]) -> int:
        try:
            code = run()
        except click.ClickException as error:
            return _usage(error)
        except (click.Abort, KeyboardInterrupt):
            return say("interrupted", INTERRUPTED)
        except BrokenPipeError:
            # The reader has left. Point stdout elsewhere, or the interpreter complains on its way out.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return BUG
        except Exception as error:
            if os.environ.get("FLWR_MEL_DEBUG"):
                raise
            what = " ".join(str(error).split()) or "no message"
            hint = "Please report it; FLWR_MEL_DEBUG=1 shows where it happened"
            return say(f"internal error, {type(error).__name__}: {what}. {hint}", BUG)
        return code if isinstance(code, int) else 0


def say(text: str, code: int) -> int:
    """Write one line to stderr and return the exit code."""
    line = " ".join(text.split())
    typer.echo(f"{typer.style('error:', fg='red', bold=True)} {line}", err=True)
    return code


def stop(text: str, code: int = BAD_INPUT) -> NoReturn:
    """End the command with one line on stderr."""
    raise typer.Exit(say(text, code))


def note(text: str) -> None:
    """Write a remark to stderr, where it does not disturb a program that reads stdout."""
    typer.echo(f"note: {text}", err=True)


def _usage(error: click.ClickException) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "flwr-mel"
    text = error.format_message().rstrip(".").replace("\n", " ")
    return say(f"{text}. See: {path} --help", BAD_INPUT)


@contextmanager
def bad_input(options: Mapping[str, str] | None = None) -> Iterator[None]:
    """Turn the library's complaints into exit code 2.

    Parameters
    ----------
    options : mapping, optional
        From the library's field names to the options a user knows.
    """
    try:
        yield
    except ValueError as error:
        text = str(error).replace("Use None for no limit", "Leave it out for no limit")
        for field, option in (options or {}).items():
            text = re.sub(rf"\b{field}\b", option, text)
        stop(text)


def console(width: int | None = None) -> Console:
    """Return where tables go: stdout, coloured and as wide as the terminal if it is one."""
    out = Console(highlight=False, width=width)
    if width is None and not out.is_terminal and not os.environ.get("COLUMNS"):
        return Console(highlight=False, width=PIPED_WIDTH)
    return out
