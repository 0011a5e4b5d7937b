"""``flwr-mel fleet``: write the paper's fleet as an example, or check and convert a fleet file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from flwr_mel.cli.shared import bad_input, note, stop
from flwr_mel.costs import Workload
from flwr_mel.learners import Fleet, paper_fleet, parse_fleet, read_fleet, write_fleet, write_fleet_csv
from flwr_mel.learners.paper import PAPER_LAYERS

EXAMPLES = """Examples:

flwr-mel fleet --paper --seed 0 > fleet.toml

flwr-mel fleet --paper --learners 1000 --energy 20 --csv > fleet.csv

flwr-mel fleet fleet.csv > fleet.toml"""

_OPTIONS = {"learners": "--learners", "mean_j": "--energy", "energy_j": "--energy", "spread_j": "--spread"}


def fleet(
    file: Annotated[
        str | None, typer.Argument(help="A fleet file to check and to write out again; - is stdin (TOML).")
    ] = None,
    paper: Annotated[bool, typer.Option("--paper", help="Draw the learners of the paper's Table 1.")] = False,
    seed: Annotated[int, typer.Option(help="One seed, one fleet.", min=0)] = 0,
    learners: Annotated[int, typer.Option(help="How many; four classes in equal shares.")] = 20,
    energy: Annotated[float, typer.Option(help="Mean energy limit per cycle, joules.")] = 10.0,
    spread: Annotated[float, typer.Option(help="Limits lie within --energy plus or minus this.")] = 2.5,
    csv: Annotated[bool, typer.Option("--csv", help="Write CSV in place of TOML.")] = False,
) -> None:
    """Write a fleet file to stdout: the paper's learners, or a file checked and converted.

    FILE is a .toml or .csv fleet, or - for TOML from stdin.
    A broken file ends in exit code 2 and one line that names the line and the field.
    """
    if paper == (file is not None):
        stop("give either --paper or a fleet file. See: flwr-mel fleet --help")
    if paper:
        with bad_input(_OPTIONS):
            devices = paper_fleet(
                np.random.default_rng(seed), learners, energy_j=energy, energy_spread_j=spread
            )
        fleet_ = Fleet(devices, Workload.mlp(PAPER_LAYERS))
        title = f"The paper's fleet (Table 1), seed {seed}.\nflwr-mel plan reads this file."
    else:
        fleet_, title = load(str(file)), ""
    if not csv:
        typer.echo(write_fleet(fleet_, title=title), nl=False)
        return
    if fleet_.workload not in (None, Workload.mlp(PAPER_LAYERS)):
        note("CSV holds no workload: give plan its --layers and --mode, or keep the TOML file.")
    typer.echo(write_fleet_csv(fleet_), nl=False)


def load(file: str) -> Fleet:
    """Read a fleet file, or TOML from stdin for "-"; end with exit code 2 if it is broken."""
    with bad_input():
        if file == "-":
            return parse_fleet(sys.stdin.buffer.read(), "stdin")
        return read_fleet(Path(file))
