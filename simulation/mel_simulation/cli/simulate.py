"""``flwr-mel simulate``: the paper's experiment on Flower's Ray engine."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer
from click.core import ParameterSource

from flwr_mel._validate import complain, number
from flwr_mel.tools.shell import bad_input
from mel_simulation.cli.options import with_run_options

EXAMPLES = (
    "Examples:\n\nflwr-mel simulate\n\nflwr-mel simulate --scheme ha-sync --cycle-time 20 --energy 20\n\n"
    "flwr-mel simulate --mode fl --alpha 0.5 --learners 100 --cycles 5\n\n"
    "flwr-mel simulate --run-dir runs/mine --resume --cycles 20"
)

#: What the library calls some options.
_LIBRARY = {"total_samples": "--samples", "cycle_time_s": "--cycle-time", "energy_limit_j": "--energy"}

app = typer.Typer(add_completion=False)


@app.command(epilog=EXAMPLES)
@with_run_options
def simulate(
    context: typer.Context,
    cpus_per_learner: Annotated[
        float, typer.Option(help="CPUs per working learner; fewer: more actors.")
    ] = 1.0,
    ray_address: Annotated[
        str, typer.Option(envvar="RAY_ADDRESS", help="Join an existing Ray cluster, e.g. 10.0.0.1:6379.")
    ] = "",
    **values: Any,
) -> None:
    """Simulate heterogeneous learners that train together, and write a report.

    Time and energy are virtual: they come from the cost model, never from this machine's clock.
    """
    default = ParameterSource.DEFAULT
    given = {key: value for key, value in values.items() if context.get_parameter_source(key) is not default}
    with bad_input(_LIBRARY):
        _check_cpus(cpus_per_learner, ray_address)
        from mel_simulation.cli.running import configure, run  # noqa: PLC0415 (takes a moment)

        run(configure(values, given), cpus_per_learner, ray_address)


def _check_cpus(cpus_per_learner: float, ray_address: str) -> None:
    """Refuse what would leave the engine without actors, waiting for ever."""
    number("cpus_per_learner", cpus_per_learner, above=0)
    here = os.cpu_count() or 1
    if ray_address and not float(cpus_per_learner).is_integer():
        raise complain("cpus_per_learner", "a whole number on a Ray cluster", cpus_per_learner)
    if cpus_per_learner > here and not ray_address:
        raise complain("cpus_per_learner", f"at most the {here} CPUs of this machine", cpus_per_learner)
