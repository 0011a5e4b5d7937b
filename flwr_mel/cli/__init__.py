"""The command line ``flwr-mel``: one file per command, each registered here; others come by entry points."""

from __future__ import annotations

from typing import Annotated

import typer

from flwr_mel import __version__
from flwr_mel.cli import fleet, link_server, report
from flwr_mel.cli.plan import command as plan_command
from flwr_mel.cli.profile import command as profile_command
from flwr_mel.cli.recommend import command as recommend_command
from flwr_mel.cli.shared import Commands
from flwr_mel.cli.watch import command as watch_command
from flwr_mel.tools import bundle

app = typer.Typer(
    cls=Commands,
    invoke_without_command=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start here:\n\nflwr-mel fleet --paper --seed 0 > fleet.toml\n\n"
    "flwr-mel plan fleet.toml --cycle-time 10 --samples 60000 --staleness 2",
)
app.command(epilog=plan_command.EXAMPLES)(plan_command.plan)
app.command(epilog=recommend_command.EXAMPLES)(recommend_command.recommend)
app.command(epilog=fleet.EXAMPLES)(fleet.fleet)
app.command(epilog=report.EXAMPLES)(report.report)
app.command(epilog=profile_command.EXAMPLES)(profile_command.profile)
app.command(epilog=link_server.EXAMPLES)(link_server.link_server)
app.command(epilog=bundle.EXAMPLES)(bundle.bundle)
app.command(epilog=watch_command.EXAMPLES)(watch_command.watch)


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

    Exit codes: 0 done, 2 bad input, 3 infeasible, 4 the environment (files, disk, memory, packages),
    5 a run that was started has failed, 1 a bug of ours.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run the command line."""
    app()
