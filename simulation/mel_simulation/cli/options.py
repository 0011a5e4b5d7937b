"""The options of a run on the command line, in pyproject.toml and in the docs, from `scenario.config`.

``python -m mel_simulation.cli.options`` writes them into simulation/pyproject.toml and docs/SIMULATION.md.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import click
import typer

from mel_simulation.pages import fill, markdown_table
from mel_simulation.scenario.config import PAPER_LEARNERS, Option, RunConfig, options

ROOT = Path(__file__).parents[3]
PROJECT, PAGE = ROOT / "simulation" / "pyproject.toml", ROOT / "docs" / "SIMULATION.md"
_TABLE = "[tool.flwr.app.config]\n"


def with_run_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each of a run's; it gets them as keyword arguments.

    Parameters
    ----------
    function : callable
        Takes a typer.Context first and ``**values`` last.
    """
    signature = inspect.signature(function, eval_str=True)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    rest = [p.replace(kind=p.KEYWORD_ONLY) for p in own[1:]]
    parameters = [own[0], *(_parameter(each) for each in options()), *rest]
    function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in parameters}
    return function


def _parameter(each: Option) -> inspect.Parameter:
    names = [f"--{each.key}"] if each.kind is bool else []
    choice = click.Choice(each.choices) if each.choices else None
    shown = typer.Option(*names, help=f"{each.text}.", click_type=choice, show_default=each.default != "")
    # The command brings its own federation, of the paper's size; `flwr run` takes the one there is.
    default = PAPER_LEARNERS if each.name == "learners" else each.default
    kind: Any = Annotated[each.kind, shown]
    return inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def table() -> str:
    """Return the options as a Markdown table."""
    return markdown_table(["key", "default", "meaning"], [_row(each) for each in options()])


def _row(each: Option) -> list[str]:
    default = f"{each.default:g}" if each.kind is float else str(each.default).lower() or "empty"
    missing = not all(choice in each.text for choice in each.choices)
    spelled = f": {', '.join(f'`{c}`' for c in each.choices)}" if missing else ""
    return [f"`{each.key}`", default, each.text + spelled]


def project_table() -> str:
    """Return the defaults as Flower's table."""
    # Numbers, strings and booleans are spelled as in JSON.
    lines = (f"{key} = {json.dumps(value)}\n" for key, value in RunConfig().as_dict().items())
    return _TABLE + "".join(lines)


def main() -> None:
    """Write both places."""
    head, _, _ = PROJECT.read_text(encoding="utf-8").partition(_TABLE)
    PROJECT.write_text(head + project_table(), encoding="utf-8")
    fill(PAGE, {"options": table()})


if __name__ == "__main__":
    main()
