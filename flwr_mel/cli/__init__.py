"""The command line ``flwr-mel``: one file per command, each registered here."""

from __future__ import annotations

from typing import Annotated

import typer

from flwr_mel import __version__
from flwr_mel.cli.fleet import EXAMPLES as FLEET_EXAMPLES
from flwr_mel.cli.fleet import fleet
from flwr_mel.cli.link_server import EXAMPLES as LINK_SERVER_EXAMPLES
from flwr_mel.cli.link_server import link_server
from flwr_mel.cli.plan import EXAMPLES as PLAN_EXAMPLES
from flwr_mel.cli.plan import plan
from flwr_mel.cli.profile import EXAMPLES as PROFILE_EXAMPLES
from flwr_mel.cli.profile import profile
from flwr_mel.cli.recommend import EXAMPLES as RECOMMEND_EXAMPLES
from flwr_mel.cli.recommend import recommend
from flwr_mel.cli.report import EXAMPLES as REPORT_EXAMPLES
from flwr_mel.cli.report import report
from flwr_mel.cli.shared import Commands
from flwr_mel.cli.simulate import EXAMPLES as SIMULATE_EXAMPLES
from flwr_mel.cli.simulate import simulate
from flwr_mel.cli.sweep import EXAMPLES as SWEEP_EXAMPLES
from flwr_mel.cli.sweep import sweep
from flwr_mel.cli.watch import EXAMPLES as WATCH_EXAMPLES
from flwr_mel.cli.watch import watch

app = typer.Typer(
    cls=Commands,
    invoke_without_command=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start here:\n\nflwr-mel fleet --paper --seed 0 > fleet.toml\n\n"
    "flwr-mel plan fleet.toml --cycle-time 10 --samples 60000 --staleness 2",
)
app.command(epilog=PLAN_EXAMPLES)(plan)
app.command(epilog=RECOMMEND_EXAMPLES)(recommend)
app.command(epilog=FLEET_EXAMPLES)(fleet)
app.command(epilog=REPORT_EXAMPLES)(report)
app.command(epilog=SIMULATE_EXAMPLES)(simulate)
app.command(epilog=SWEEP_EXAMPLES)(sweep)
app.command(epilog=PROFILE_EXAMPLES)(profile)
app.command(epilog=LINK_SERVER_EXAMPLES)(link_server)
app.command(epilog=WATCH_EXAMPLES)(watch)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"flwr-mel {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - acts through its callback
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Decide how many epochs and samples each device of a fleet gets, every cycle.

    So that all report in time, nobody exceeds its energy limit and as much learning as possible happens.

    Exit codes: 0 done, 2 bad input, 3 infeasible, 1 a bug of ours.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run the command line."""
    app()
