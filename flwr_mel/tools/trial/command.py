"""``flwr-mel try``: run an app as it is and planned on a virtual fleet, follow both, and compare."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.live import Live

from flwr_mel._validate import count, number
from flwr_mel.clientapp.virtual import write_fleet
from flwr_mel.devices import Measured
from flwr_mel.records import CycleRecord, read_jsonl
from flwr_mel.tools import shell
from flwr_mel.tools.report import write_report
from flwr_mel.tools.report.runs import RECORDS, Run, load_run
from flwr_mel.tools.trial.app import App, read_app
from flwr_mel.tools.trial.fleets import BUILT_IN, Reference, devices_of, read_reference, write_reference
from flwr_mel.tools.trial.outcome import outcomes, rows_of

#: What MelStrategy does, the name of the run, and how many times the rounds it may use to catch up.
_KINDS = {"observe": ("as it is", 1), "plan": ("planned", 5), "best": ("best", 100)}
_PERIOD_S = 0.2


def try_app(
    app: Annotated[Path, typer.Argument(metavar="APP", help="Directory of a Flower app with MelStrategy.")],
    fleet: Annotated[str, typer.Option(help=f"{', '.join(BUILT_IN)}, or a fleet file.")],
    clients: Annotated[int, typer.Option(help="Number of clients.")] = 20,
    rounds: Annotated[int, typer.Option(help="Rounds of the app as it is.")] = 20,
    target_accuracy: Annotated[
        float | None, typer.Option(help="Compare times to this. Default: the best that all runs reach.")
    ] = None,
    best: Annotated[bool, typer.Option("--best", help='Add a run with cycle_time_s="best".')] = False,
    run_config: Annotated[str, typer.Option(help="Settings of the app, as for flwr run.")] = "",
    reference: Annotated[
        Path | None, typer.Option(help="What a sample takes. Default: OUT's, or measured here.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of built-in fleets and of the app's random numbers.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Where results go. Default: runs/APP-FLEET.")] = None,
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
    with shell.bad_input():
        for name, value in (("clients", clients), ("rounds", rounds)):
            count(name, value, least=1)
        if target_accuracy is not None:
            number("target_accuracy", target_accuracy, above=0)
        project, devices = read_app(app, run_config), partial(devices_of, fleet, clients, seed)
        devices(Reference(1.0, 0))  # what is wrong with the fleet is told before anything runs
        for package in ("ray", "matplotlib"):
            if find_spec(package) is None:
                shell.missing_packages(
                    "try", ModuleNotFoundError(f"No module named '{package}'"), "simulation"
                )
        where = (out or Path("runs") / f"{app.resolve().name}-{Path(fleet).stem}").resolve()
        where.mkdir(parents=True, exist_ok=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends what runs, as Ctrl-C does
        trial = _Trial(project, where, clients, seed)
        known = reference or where / "reference.json"
        if reference is None and not known.exists():
            write_reference(known, trial.measure())
        trial.devices(devices(read_reference(known)))
        own = trial.run("observe", rounds, fleet, lambda _: False)
        level = float(np.nanmax(own.learned, initial=-np.inf)) if target_accuracy is None else target_accuracy

        def enough(record: CycleRecord) -> bool:
            learned = own.is_share and record.metrics.get(own.metric, -np.inf) >= level
            return learned or record.clock_s >= own.records[-1].clock_s

        runs = [own, *(trial.run(kind, rounds, fleet, enough) for kind in ("plan", *["best"] * best))]
        page = write_report([run.path for run in runs], where / "report.html")
    named = {str(run.config["run"]): run for run in runs}
    reached, found = outcomes(named, target_accuracy)
    if as_json:
        about = {"app": project.name, "fleet": fleet, "clients": clients, "seed": seed, "accuracy": reached}
        shell.print_json({**about, "runs": found})
        return
    output = shell.console()
    shell.title(output, f"{project.name} on {fleet}", f"{clients:,} clients, virtual time and energy")
    table = shell.grid("<", *found)
    for row in rows_of(reached, found):
        table.add_row(*row)
    output.print(table)
    output.print(f"\nreport: {page}", soft_wrap=True, markup=False)


class _Trial:
    """The runs of an app on one fleet, whose results go to one directory."""

    def __init__(self, app: App, where: Path, clients: int, seed: int) -> None:
        self.app, self.where, self.clients, self.seed = app, where, clients, seed
        self.out = Console(stderr=True, highlight=False)

    def devices(self, devices: Sequence[Measured]) -> None:
        """Set the virtual devices."""
        write_fleet(self.where / "fleet.json", devices)

    def measure(self) -> Reference:
        """Run one round of the app, and measure what a sample takes on this machine."""
        self.out.print("measuring what a sample takes on this machine ...")
        # On this fleet a sample takes a virtual second, so virtual seconds are samples.
        self.devices([Measured(1.0, 0.0, 0.0, 0.0, 0.0, 0.0, name="unit")])
        folder, times = self.where / "reference", self.where / "reference" / "times.jsonl"
        times.unlink(missing_ok=True)
        with self._started(folder, "observe", 1, times) as process:
            process.wait()
        self._check(folder, process.returncode)
        noted = [json.loads(line) for line in times.read_text("utf-8").splitlines()] if times.exists() else []
        each = [x["seconds"] / x["drawn"] for x in noted if "drawn" in x]
        if not each:
            shell.stop(
                "no work was counted: the app's client needs mel_mod, and its reply num-examples. "
                f"Its log: {folder / 'flower.log'}",
                shell.FAILED,
            )
        # Of the first tasks some had to load libraries and data.
        return Reference(median(each), int(max(x.get("model_bytes", 0) for x in noted)))

    def run(self, kind: str, rounds: int, fleet: str, enough: Callable[[CycleRecord], bool]) -> Run:
        """Run the app until its rounds are over or they are enough, and show them."""
        name, times = _KINDS[kind]
        folder = self.where / name.replace(" ", "-")
        file, records = folder / RECORDS, list[CycleRecord]()
        live: Any = Live(console=self.out) if self.out.is_terminal else nullcontext(None)
        with self._started(folder, kind, rounds * times) as process, live as view:
            over = False
            while not over:
                time.sleep(_PERIOD_S)
                over = process.poll() is not None  # first, so that what is written before the end is read
                for record in (list(read_jsonl(file)) if file.exists() else [])[len(records) :]:
                    records.append(record)
                    text = _line(name, record)
                    view.update(text) if view else self.out.print(text, soft_wrap=True, markup=False)
                    if over := enough(record):
                        break
        if not (records and enough(records[-1])):
            self._check(folder, process.returncode)
        if not records:
            shell.stop("no round is on record: the app's server needs MelStrategy", shell.FAILED)
        # The process may have been further when it was ended.
        file.write_text("".join(f"{json.dumps(r.as_dict(), allow_nan=False)}\n" for r in records), "utf-8")
        about = {"app": self.app.name, "fleet": fleet, "run": name}
        (folder / "config.json").write_text(json.dumps({"config": about}), "utf-8")
        return load_run(folder)

    def _started(self, folder: Path, kind: str, rounds: int, times: Path | None = None) -> Any:
        fleet = self.where / "fleet.json"
        own = {"clients": self.clients, "seed": self.seed}
        return self.app.started(folder, kind, fleet, rounds=rounds, times=times, **own)

    def _check(self, folder: Path, code: int) -> None:
        """End the command if a run failed."""
        if code:
            error = folder / "error.txt"
            why = error.read_text("utf-8") if error.exists() else f"Flower's engine ended with {code}"
            shell.stop(f"the run failed: {why.rstrip('.')}. Its log: {folder / 'flower.log'}", shell.FAILED)


def _line(name: str, record: CycleRecord) -> str:
    """Describe a round in one line."""
    learned: Mapping[str, float] = {k: x for k, x in record.metrics.items() if "acc" in k.lower()}
    words = [f"{key} {x:.4f}" for key, x in list(learned.items())[:1]]
    words += [f"{record.clock_s:.4g} s virtual", f"{record.total_energy_j:.4g} J"]
    return f"{name}, round {record.cycle}: {', '.join(words)}"
