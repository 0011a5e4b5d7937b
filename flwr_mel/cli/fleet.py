"""``flwr-mel fleet``: write the paper's fleet as an example, or check and convert a file."""

from __future__ import annotations

from typing import Annotated

import typer

from flwr_mel._validate import complain
from flwr_mel.cli.question import load
from flwr_mel.cli.shared import bad_input, note, refuse_given, stop
from flwr_mel.costs import Workload
from flwr_mel.fleets import Fleet, write_fleet, write_fleet_csv
from flwr_mel.fleets.rows import MOST_LEARNERS
from flwr_mel.paper import PAPER_LAYERS, PaperFleet

EXAMPLES = """Examples:

flwr-mel fleet --paper --seed 0 > fleet.toml

flwr-mel fleet --paper --learners 1000 --energy 20 --csv > fleet.csv

flwr-mel fleet fleet.csv > fleet.toml"""

_PAPERS = ("learners", "energy", "spread")
_OPTIONS = {
    "learners": "--learners",
    "seed": "--seed",
    "cycle": "--cycle",
    "energy_j": "--energy",
    "energy_spread_j": "--energy-spread",
}


def fleet(
    file: Annotated[
        str | None, typer.Argument(help="A fleet file to check and to write out again; - is stdin (TOML).")
    ] = None,
    paper: Annotated[bool, typer.Option("--paper", help="Draw the learners of the paper's Table 1.")] = False,
    seed: Annotated[int, typer.Option(help="One seed, one fleet: the one that simulate has.")] = 0,
    cycle: Annotated[
        int, typer.Option(help="As in this cycle of a simulation: energy limits are drawn anew each cycle.")
    ] = 1,
    learners: Annotated[int, typer.Option(help="How many; four classes in equal shares.")] = 20,
    energy: Annotated[float, typer.Option(help="Mean energy limit per cycle, joules; 0: none.")] = 10.0,
    spread: Annotated[
        float,
        typer.Option("--energy-spread", "--spread", help="Limits lie within --energy plus or minus this."),
    ] = 2.5,
    csv: Annotated[bool, typer.Option("--csv", help="Write CSV in place of TOML.")] = False,
) -> None:
    """Write a fleet file to stdout: the paper's learners, or a file checked and converted.

    FILE is a .toml or .csv fleet, or - for TOML from stdin.
    A broken file ends in exit code 2 and one line that names the line and the field.
    """
    if paper == (file is not None):
        stop("give either --paper or a fleet file. See: flwr-mel fleet --help")
    when = "" if cycle == 1 else f", cycle {cycle}"
    if paper:
        with bad_input(_OPTIONS):
            devices = PaperFleet(seed, _few_enough(learners), energy, spread).devices(cycle)
        fleet_ = Fleet(devices, Workload.mlp(PAPER_LAYERS))
        title = f"The paper's fleet (Table 1), seed {seed}{when}.\nflwr-mel plan reads this file."
    else:
        refuse_given(
            "with a fleet file, which has its own learners: they go with --paper", "seed", "cycle", *_PAPERS
        )
        fleet_, title = load(str(file)), ""
    if not csv:
        typer.echo(write_fleet(fleet_, title=title), nl=False)
        return
    if fleet_.workload not in (None, Workload.mlp(PAPER_LAYERS)):
        note("CSV holds no workload: give plan its --layers and --mode, or keep the TOML file.")
    typer.echo(write_fleet_csv(fleet_), nl=False)


def _few_enough(learners: int) -> int:
    """Return a number of learners that a fleet file may have, too."""
    if learners > MOST_LEARNERS:
        raise complain("learners", f"at most {MOST_LEARNERS:,}", learners)
    return learners
