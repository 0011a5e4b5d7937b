"""``flwr-mel try``: run an app as it is and planned on a virtual fleet, follow both, and compare."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer

from flwr_mel._files import atomically
from flwr_mel._validate import Phrase, complain
from flwr_mel.clientapp.virtual import FLEET, read_fleet, write_fleet
from flwr_mel.devices import Measured
from flwr_mel.records import CycleRecord, read_jsonl
from flwr_mel.strategy import RECORDS as RECORDED
from flwr_mel.strategy import TRIAL
from flwr_mel.tools import shell
from flwr_mel.tools.report import write_report
from flwr_mel.tools.report.markup import DASH, percent, short
from flwr_mel.tools.report.runs import RECORDS, Run, common_level, load_run
from flwr_mel.tools.trial.fleets import BUILT_IN, Reference, devices_of

#: What MelStrategy does, the name of the run, and how many times the rounds it may use to catch up.
_KINDS = {"observe": ("as it is", 1), "plan": ("planned", 5), "best": ("best", 100)}
_ROUNDS = "num-server-rounds"
_PERIOD_S, _END_S = 0.2, 10.0


def try_app(
    app: Annotated[Path, typer.Argument(metavar="APP", help="Directory of a Flower app with MelStrategy.")],
    fleet: Annotated[str, typer.Option(help=f"{', '.join(BUILT_IN)}, or a fleet file.")],
    clients: Annotated[int, typer.Option(help="Number of clients.", min=1)] = 20,
    rounds: Annotated[int, typer.Option(help="Rounds of the app as it is.", min=1)] = 20,
    target_accuracy: Annotated[float | None, typer.Option(help="Default: the best that all reach.")] = None,
    best: Annotated[bool, typer.Option("--best", help='Add a run with cycle_time_s="best".')] = False,
    reference: Annotated[Path | None, typer.Option(help="Default: that in OUT, or measured.")] = None,
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
    with shell.bad_input():
        where = (out or Path("runs") / f"{app.resolve().name}-{Path(fleet).stem}").resolve()
        trial = _Trial.of(app, fleet, where, clients, seed)
        devices_of(fleet, clients, Reference(1.0, 0))  # what is wrong with the fleet is told before a run
        if find_spec("ray") is None:
            shell.missing_packages("try", ImportError("No module named 'ray'"), "simulation")
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


@dataclass(frozen=True, slots=True)
class _Trial:
    """The runs of an app on one fleet, and where their results go."""

    name: str
    app: Path
    fleet: str
    where: Path
    job: Mapping[str, Any]

    @classmethod
    def of(cls, app: Path, fleet: str, where: Path, clients: int, seed: int) -> _Trial:
        """Read an app's pyproject.toml."""
        file = app / "pyproject.toml"
        try:
            project = tomllib.loads(file.read_text(encoding="utf-8"))
            flower = project["tool"]["flwr"]["app"]
            job = {key: flower["components"][key] for key in ("serverapp", "clientapp")}
            config, name = dict(_flat(flower["config"])), project["project"]["name"]
            if _ROUNDS not in config:
                raise KeyError(_ROUNDS)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            why = f"{file} has no {error}" if isinstance(error, KeyError) else f"{file}: {error}"
            rule = f"a Flower app, with its components and {_ROUNDS} in pyproject.toml"
            raise complain("APP", rule, Phrase(why)) from error
        return cls(
            name, app.resolve(), fleet, where, {**job, "config": config, "clients": clients, "seed": seed}
        )

    def use(self, devices: Sequence[Measured]) -> None:
        """Set the virtual devices."""
        self.where.mkdir(parents=True, exist_ok=True)
        write_fleet(self.where / "fleet.json", devices)

    def measure(self) -> Reference:
        """Run one round of the app, and measure what a sample takes on this machine."""
        shell.note("measuring what a sample takes on this machine ...")
        # On this fleet a sample takes a virtual second, so virtual seconds are samples.
        self.use([Measured(1.0, 0.0, 0.0, 0.0, 0.0, 0.0)])
        folder = self.where / "reference"
        with self._started(folder, "observe", 1, times=True) as process:
            process.wait()
        self._check(folder, process.returncode)
        times = folder / "times.jsonl"
        if not times.exists():
            why = "no work was counted: the app needs MelStrategy, mel_mod, and num-examples in its replies"
            shell.stop(f"{why}. The log: {folder / 'flower.log'}", shell.FAILED)
        # The median, because the first tasks load libraries and data.
        each, sizes = zip(*map(json.loads, times.read_text("utf-8").splitlines()), strict=True)
        return Reference(median(each), median(sizes))

    def run(self, kind: str, rounds: int, enough: Callable[[CycleRecord], bool]) -> Run:
        """Run the app until its rounds are over or they are enough, and show them."""
        name, times = _KINDS[kind]
        folder = self.where / name.replace(" ", "-")
        file, records, over = folder / RECORDS, list[CycleRecord](), False
        with self._started(folder, kind, rounds * times) as process:
            while not over:
                time.sleep(_PERIOD_S)
                over = process.poll() is not None  # first, so that what is written before the end is read
                for record in (list(read_jsonl(file)) if file.exists() else [])[len(records) :]:
                    records.append(record)
                    learned = [f"{k} {x:.4f}, " for k, x in record.metrics.items() if "acc" in k.lower()][:1]
                    spent = f"{record.clock_s:.4g} s, {record.total_energy_j:.4g} J"
                    typer.echo(f"{name}, round {record.cycle}: {''.join(learned)}{spent}", err=True)
                    if over := enough(record):
                        break
        if not (records and enough(records[-1])):
            self._check(folder, process.returncode)
        if not records:
            shell.stop(f"no round is on record. The log: {folder / 'flower.log'}", shell.FAILED)
        # Flower's node ids are new in every run. The process may have been further when it was ended.
        names = [device.name for device in read_fleet(self.where / "fleet.json")]
        for row in (row for record in records for row in record.learners if row.learner.isdecimal()):
            row.learner, row.node = names[int(row.learner)], row.learner
        file.write_text("".join(f"{json.dumps(record.as_dict())}\n" for record in records), "utf-8")
        about = {"app": self.name, "fleet": self.fleet, "run": name}
        (folder / "config.json").write_text(json.dumps({"config": about}), "utf-8")
        return load_run(folder)

    @contextmanager
    def _started(
        self, folder: Path, kind: str, rounds: int, *, times: bool = False
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Start a run; whatever happens, it does not run any more afterwards."""
        if (folder / "flower.log").exists():
            shutil.rmtree(folder)  # what an earlier run left, such as the app's checkpoints
        folder.mkdir(parents=True, exist_ok=True)
        job = {**self.job, "config": {**self.job["config"], _ROUNDS: rounds}}
        job |= {"error": str(folder / "error.txt"), "times": str(folder / "times.jsonl") if times else ""}
        path = os.pathsep.join(filter(None, [str(self.app), os.environ.get("PYTHONPATH", "")]))
        env = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}
        env |= {FLEET: str(self.where / "fleet.json"), TRIAL: kind, RECORDED: str(folder / RECORDS)}
        # Each client has one CPU: more threads would slow each other down, and add in another order.
        env |= {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
        env |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        command = [sys.executable, "-m", "flwr_mel.tools.trial.engine", json.dumps(job)]
        with (folder / "flower.log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=folder, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            yield process
        finally:
            for sign in (signal.SIGTERM, signal.SIGKILL):  # Ray's processes end with it
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, sign)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_END_S)

    def _check(self, folder: Path, code: int) -> None:
        """End the command if a run failed."""
        if code:
            error = folder / "error.txt"
            why = error.read_text("utf-8") if error.exists() else f"Flower's engine ended with {code}"
            shell.stop(f"the run failed: {why.rstrip('.')}. Its log: {folder / 'flower.log'}", shell.FAILED)


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the keys of nested tables as Flower names them."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
