"""The runs of an app on a virtual fleet, each in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, SIGTERM
from statistics import median
from typing import Any

import typer

from flwr_mel._validate import Phrase, complain
from flwr_mel.clientapp.virtual import FLEET, read_fleet, write_fleet
from flwr_mel.devices import Measured
from flwr_mel.records import CycleRecord
from flwr_mel.strategy import RECORDS as RECORDED
from flwr_mel.strategy import TRIAL
from flwr_mel.tools import shell
from flwr_mel.tools.report.runs import RECORDS, Run, load_run
from flwr_mel.tools.trial.fleets import Reference

#: What MelStrategy does, the name of the run, and how many times the rounds it may use to catch up.
_KINDS = {"observe": ("as it is", 1), "plan": ("planned", 5), "best": ("best", 100)}
_ROUNDS = "num-server-rounds"
_PERIOD_S, _END_S = 0.2, 10.0


@dataclass(frozen=True, slots=True)
class Trial:
    """The runs of an app on one fleet, and where their results go."""

    name: str
    app: Path
    fleet: str
    where: Path
    job: Mapping[str, Any]

    @classmethod
    def of(cls, app: Path, fleet: str, where: Path, clients: int, seed: int) -> Trial:
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
                lines = file.read_text("utf-8").split("\n") if file.exists() else []
                for line in lines[len(records) : -1]:  # the last is empty, or half written
                    records.append(record := CycleRecord.from_dict(json.loads(line)))
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
            for sign in (SIGTERM, SIGKILL):  # Ray's processes end with it
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
