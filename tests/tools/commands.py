"""Ways to run the command line: in this process, and as a real one."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

from tests.waiting import PATIENCE_S

with warnings.catch_warnings():
    # typer uses names that newer releases of click announce to remove.
    warnings.simplefilter("ignore", DeprecationWarning)
    from typer.testing import CliRunner

    from flwr_mel.tools.cli import app

LIMITS = ("--cycle-time", "10", "--samples", "60000")


def run(*args: object, code: int = 0, **kwargs):
    """Run a command in this process, by default in a wide terminal."""
    kwargs.setdefault("env", {"COLUMNS": "120"})
    result = CliRunner().invoke(app, [str(a) for a in args], **kwargs)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def refused(*args: object, code: int = 2) -> str:
    """Run what must fail with one line on stderr and nothing on stdout; return that line."""
    result = run(*args, code=code)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def ask(*args: object, code: int = 0) -> dict:
    """Run with --json; stdout must be JSON and nothing else, without NaN or Infinity."""

    def refuse(constant):
        raise AssertionError(constant)

    return json.loads(run(*args, "--json", code=code).stdout, parse_constant=refuse)


def command(*args: object, installed: bool = False) -> list[str]:
    """Return how a shell calls us."""
    program = [str(Path(sys.executable).with_name("flwr-mel"))]
    return [*(program if installed else [sys.executable, "-m", "flwr_mel.tools.cli"]), *map(str, args)]


def process(*args: object, installed: bool = False, **kwargs):
    """Run a command as a process of its own."""
    return shell(command(*args, installed=installed), **kwargs)


def shell(words, **kwargs):
    """Run any program."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | kwargs
    return subprocess.run(words, check=False, text=True, timeout=PATIENCE_S, **streams)
