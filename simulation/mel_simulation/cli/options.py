"""The options of a run on the command line, as `scenario.config` declares them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import click
import typer

from mel_simulation.scenario.config import Option, options


def absolute(path: str) -> str:
    """Return an absolute path, because workers run elsewhere; an empty one stays empty."""
    return str(Path(path).resolve()) if path else ""


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
    kind: Any = Annotated[each.kind, shown]
    return inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=kind)
