"""``flwr-mel try``: run an app as it is and planned on a virtual fleet, follow both, and compare."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from flwr_mel._files import atomically
from flwr_mel.records import CycleRecord
from flwr_mel.tools import shell
from flwr_mel.tools.report import write_report
from flwr_mel.tools.report.markup import DASH, percent, short
from flwr_mel.tools.report.runs import Run, common_level
from flwr_mel.tools.trial.fleets import BUILT_IN, Reference, devices_of


def try_app(
    app: Annotated[Path, typer.Argument(metavar="APP", help="Directory of a Flower app with MelStrategy.")],
    fleet: Annotated[str, typer.Option(help=f"{', '.join(BUILT_IN)}, or a fleet file.")],
    clients: Annotated[int, typer.Option(help="Number of clients.", min=1)] = 20,
    rounds: Annotated[int, typer.Option(help="Rounds of the app as it is.", min=1)] = 20,
    target_accuracy: Annotated[
        float | None, typer.Option(help="Compared at. Default: the best that all reach.")
    ] = None,
    best: Annotated[bool, typer.Option("--best", help='Add a run with cycle_time_s="best".')] = False,
    reference: Annotated[
        Path | None, typer.Option(help="What a sample takes. Default: OUT's, or measured.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the app's random numbers.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Results. Default: runs/APP-FLEET.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """Run your Flower app on a virtual fleet: as it is, and planned.

    APP is the directory of a Flower app that has mel_mod in its client and
    MelStrategy in its server. Flower's simulation engine runs it on a virtual
    clock: the work of each client is counted and priced for its device. A planned
    run ends when it is as good as the app as it is, or has taken as long. OUT
    gets the records, report.html, and reference.json with what a sample takes on
    this machine. The same reference gives the same results, on any machine.

    Exit codes: 0 done, 2 bad input, 4 the environment, 5 a run failed.

    Try:

    flwr-mel try . --fleet phones

    flwr-mel try . --fleet 1-2-5-10 --clients 4 --target-accuracy 0.9 --best

    flwr-mel try . --fleet fleet.toml --reference runs/app-phones/reference.json
    """
    from flwr_mel.tools.trial.runs import Trial  # noqa: PLC0415 (loads Flower)

    with shell.bad_input():
        where = (out or Path("runs") / f"{app.resolve().name}-{Path(fleet).stem}").resolve()
        trial = Trial.of(app, fleet, where, clients, seed)
        devices_of(fleet, clients, Reference(1.0, 0))  # what is wrong with the fleet is told before a run
        if find_spec("ray") is None:
            shell.missing_packages("try", ImportError("no ray"), "'flwr[simulation]' '.[report]'")
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends what runs, as Ctrl-C does
        known = reference or where / "reference.json"
        if reference is None and not known.exists():
            measured = asdict(trial.measure())
            atomically(known, lambda file: json.dump(measured, file, indent=1))
        trial.use(devices_of(fleet, clients, Reference.read(known)))
        own = trial.run("observe", rounds, lambda _: False)
        level = float(np.nanmax(own.learned, initial=-np.inf)) if target_accuracy is None else target_accuracy

        def enough(record: CycleRecord) -> bool:
            learned = own.is_share and record.metrics.get(own.metric, -np.inf) >= level
            return learned or record.clock_s >= own.records[-1].clock_s

        runs = [own, *(trial.run(kind, rounds, enough) for kind in ("plan", *["best"] * best))]
        page = write_report([run.path for run in runs], where / "report.html")
    reached = common_level(runs) if target_accuracy is None else target_accuracy
    found = {str(run.config["run"]): outcome(run, reached) for run in runs}
    if as_json:
        about = {"app": trial.name, "fleet": fleet, "clients": clients, "seed": seed}
        shell.print_json({**about, "accuracy": reached if np.isfinite(reached) else None, "runs": found})
        return
    console = shell.console()
    shell.title(console, f"{trial.name} on {fleet}", f"{clients:,} clients, virtual time and energy")
    table = shell.grid("<", *found)
    for row in rows_of(reached, list(found.values())):
        table.add_row(*row)
    console.print(table)
    console.print(f"\nreport: {page}", soft_wrap=True, markup=False)


def outcome(run: Run, level: float) -> dict[str, float | None]:
    """Return what a run brought, and what an accuracy took; None where that is not known.

    Parameters
    ----------
    run : Run
        On a virtual fleet.
    level : float
        The accuracy.
    """
    at, n, asked = run.first(level), len(run.records), [record.asked for record in run.records]
    busy = sum(row.train_s or 0.0 for rows in asked for row in rows)
    there = sum(took * len(rows) for took, rows in zip(run.round_s, asked, strict=True))
    found = {
        "seconds_per_round": run.column("clock_s")[-1] / n,
        "joules_per_round": run.joules[-1] / n,
        "rounds": np.nan if at is None else at + 1,
        "seconds": np.nan if at is None else run.column("clock_s")[at],
        "joules": np.nan if at is None else run.joules[at],
        "work": np.nanmean(run.column("work")) if np.isfinite(run.column("work")).any() else np.nan,
        "idle": 1 - busy / there if there else np.nan,
    }
    return {key: float(x) if np.isfinite(x) else None for key, x in found.items()}


def rows_of(level: float, found: Sequence[Mapping[str, float | None]]) -> Iterator[list[str]]:
    """Yield the rows of the table: a name, and a cell per run, with its gain over the first."""
    to = f" to {percent(level, 1)}"
    named = {
        "seconds_per_round": ("time per round", "s"),
        "joules_per_round": ("energy per round", "J"),
        "seconds": (f"time{to}", "s"),
        "joules": (f"energy{to}", "J"),
        "rounds": (f"rounds{to}", ""),
        "work": ("work per round, relative", "%"),
        "idle": ("idle time", "%"),
    }
    for key, (name, unit) in named.items():
        first, cells = found[0][key], list[str]()
        for x in (one[key] for one in found):
            text = DASH if x is None else percent(x, 0) if unit == "%" else short(x, unit)
            gain = f" ({short(first / x)} x)" if key in ("seconds", "joules") and first and x else ""
            cells.append(text + gain * bool(cells))
        if any(one[key] is not None for one in found):
            yield [name, *cells]
