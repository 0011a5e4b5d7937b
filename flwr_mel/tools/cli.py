"""The command line ``flwr-mel``. Other packages add commands by the entry points `flwr_mel.commands`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flwr_mel import __version__
from flwr_mel._validate import complain
from flwr_mel.costs import Workload
from flwr_mel.paper import PAPER_LAYERS, PaperFleet
from flwr_mel.tools import shell
from flwr_mel.tools.bundle import bundle
from flwr_mel.tools.fleetfile import MOST_LEARNERS, Fleet, write_fleet
from flwr_mel.tools.plan import plan
from flwr_mel.tools.profile_command import profile
from flwr_mel.tools.question import load
from flwr_mel.tools.report import write_report
from flwr_mel.tools.trial.command import try_app

app = typer.Typer(
    cls=shell.Commands,
    invoke_without_command=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def fleet(
    file: Annotated[str | None, typer.Argument(help="A fleet file to check and convert.")] = None,
    paper: Annotated[bool, typer.Option("--paper", help="Draw the learners of the paper's Table 1.")] = False,
    seed: Annotated[int, typer.Option(help="The same seed gives the same fleet, as in simulate.")] = 0,
    learners: Annotated[int, typer.Option(help="Number of learners, in four classes of equal size.")] = 20,
    energy: Annotated[float, typer.Option(help="Mean energy limit per cycle, joules; 0: none.")] = 10.0,
) -> None:
    """Write a fleet file to stdout: the paper's learners, or a checked and converted file.

    FILE is a fleet in TOML, or - for stdin. For a broken file,
    the exit code is 2, and one line names the file, the device and the field.

    Try:

    flwr-mel fleet --paper --seed 0 > fleet.toml

    flwr-mel fleet --paper --learners 1000 --energy 20 > large.toml

    flwr-mel fleet mine.toml > checked.toml
    """
    if paper == (file is not None):
        shell.stop("give either --paper or a fleet file. See: flwr-mel fleet --help")
    title = ""
    if file is not None:
        given = ("seed", "learners", "energy")
        shell.refuse_given("with a fleet file, which has its own learners: use it with --paper", *given)
        drawn = load(file)
    else:
        with shell.bad_input({"energy_j": "--energy"}):
            if learners > MOST_LEARNERS:
                raise complain("learners", f"at most {MOST_LEARNERS:,}", learners)
            spread = min(2.5, energy / 4)  # the paper's, and less around a smaller mean
            devices = PaperFleet(seed, learners, energy, spread).devices(1)
        drawn = Fleet(devices, Workload.mlp(PAPER_LAYERS))
        title = f"The paper's fleet (Table 1), seed {seed}. flwr-mel plan reads this file."
    typer.echo(write_fleet(drawn, title=title), nl=False)


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run directories, or files with records.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The page. Default: report.html, in the directory of a single run."),
    ] = None,
) -> None:
    """Write one self-contained HTML page about a run, or about several runs side by side.

    RUN is a run directory of a simulation or a deployment, or a file that
    JsonlWriter wrote. Of a directory, only records.jsonl is required;
    config.json adds names and limits. Runs that differ only in their seeds are
    combined. Interrupted runs are shown up to their last round. The page needs
    no network. The command prints its path.

    Try:

    flwr-mel report runs/ha-asyn

    flwr-mel report runs/ha-asyn runs/ha-sync runs/hu-sync --out comparison.html
    """
    beside = runs[0] if len(runs) == 1 and runs[0].is_dir() else Path()
    target = out or beside / "report.html"
    if target.is_dir():
        shell.stop(f"--out must be a file, {target} is a directory. Try: --out {target / 'report.html'}")
    with shell.bad_input({"a run": "RUN"}):
        try:
            typer.echo(write_report(runs, target))
        except ImportError as error:
            shell.missing_packages("report", error, "'.[report]'")


# Every command of this package is registered here.
app.command("try")(try_app)
for command in (plan, fleet, profile, report, bundle):
    app.command()(command)


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
    """Decide how many epochs and samples each device of a fleet gets in every round.

    All devices reply in time, no device exceeds its energy limit, and the
    devices train as much as possible.

    Exit codes: 0 done, 2 bad input, 3 infeasible, 4 the environment (files,
    disk, memory, packages), 5 a run failed, 1 a bug in flwr_mel.

    Start here:

    flwr-mel try . --fleet phones

    flwr-mel fleet --paper --seed 0 > fleet.toml

    flwr-mel plan fleet.toml --cycle-time 10 --samples 60000 --staleness 2
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
