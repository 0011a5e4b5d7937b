"""``flwr-mel simulate``: the paper's experiment on Flower's Ray engine."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Annotated, Any

import click
import typer
from click.core import ParameterSource

from flwr_mel.tools.shell import bad_input
from mel_simulation.cli.many import RayAddress
from mel_simulation.scenario.config import options

EXAMPLES = (
    "Examples:\n\nflwr-mel simulate\n\nflwr-mel simulate --scheme ha-sync --cycle-time 20 --energy 20\n\n"
    "flwr-mel simulate --mode fl --alpha 0.5 --learners 100 --cycles 5\n\n"
    "flwr-mel simulate --run-dir runs/mine --resume --cycles 20"
)

#: What the library calls some options.
_LIBRARY = {"total_samples": "--samples", "cycle_time_s": "--cycle-time", "energy_limit_j": "--energy"}


def simulate(context: typer.Context, **values: Any) -> None:
    """Simulate heterogeneous learners that train together, and write a report.

    Time and energy are virtual: they come from the cost model, never from this machine's clock.
    """
    address, default = values.pop("ray_address"), ParameterSource.DEFAULT
    given = {key: value for key, value in values.items() if context.get_parameter_source(key) is not default}
    with bad_input(_LIBRARY):
        from mel_simulation.cli.running import configure, run  # noqa: PLC0415 (takes a moment)

        run(configure(values, given), address)


def _parameters() -> Iterator[inspect.Parameter]:
    """Yield the parameters of the command: the options of a run as `RunConfig` declares them, and its own."""
    word = inspect.Parameter.KEYWORD_ONLY
    yield inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    for each in options():
        names = [f"--{each.key}"] if each.kind is bool else []
        choice = click.Choice(each.choices) if each.choices else None
        shown = typer.Option(*names, help=f"{each.text}.", click_type=choice, show_default=each.default != "")
        kind: Any = Annotated[each.kind, shown]
        yield inspect.Parameter(each.name, word, default=each.default, annotation=kind)
    yield inspect.Parameter("ray_address", word, default="", annotation=RayAddress)


simulate.__signature__ = inspect.Signature(list(_parameters()))  # type: ignore[attr-defined]
simulate.__annotations__ = {each.name: each.annotation for each in _parameters()}
app = typer.Typer(add_completion=False)
app.command(epilog=EXAMPLES)(simulate)
