"""``flwr-mel report``: make the HTML report of a run, or compare several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flwr_mel.cli.shared import bad_input, stop
from flwr_mel.report import write_report
from flwr_mel.report.run import records_of

EXAMPLES = """Examples:

flwr-mel report runs/ha-asyn

flwr-mel report runs/ha-asyn runs/ha-sync runs/hu-sync --out comparison.html"""


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run directories, or files that JsonlWriter wrote."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="The page.  \\[default: report.html in the run directory; for several runs, here]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write one self-contained HTML page about a run, or about several side by side.

    RUN is a run directory, of a simulation or of a deployment; only its records.jsonl is needed,
    config.json adds names and limits. Or it is a file that JsonlWriter wrote.

    One RUN: accuracy against cycles and virtual time, what every learner was given,
    time and energy against their limits, who idled, who was left out and why.

    Several: accuracy against cycles, virtual time and energy, and a table of results.

    Interrupted runs are shown as far as they got. The page needs no network.
    Its path is printed. A directory that is no run ends in exit code 2.
    """
    beside = records_of(runs[0]).parent if len(runs) == 1 else Path()
    target = out or beside / "report.html"
    if target.is_dir():
        stop(f"--out must be a file, {target} is a directory. Try: --out {target / 'report.html'}")
    with bad_input({"out": "--out", "a run": "RUN"}):
        typer.echo(write_report(runs, target))
