"""The run directory: what a run leaves behind. An interruption loses at most the cycle in flight."""

from __future__ import annotations

import csv
import importlib.metadata
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from flwr_mel.learners import Device
from flwr_mel.learners.fleet import Measured
from flwr_mel.records import CycleRecord, JsonlWriter, read_jsonl
from simulation.config import RESUMABLE, RunConfig
from simulation.data import Dataset
from simulation.network import Weights

#: Joules in the paper's example battery, 2,000 mAh at 5 V.
BATTERY_J = 36_000.0

_PACKAGES = ("flwr-mel", "flwr", "numpy", "scipy", "torch", "ray", "cvxpy")


def atomically(path: Path, write: Callable[[Any], None], mode: str = "w") -> None:
    """Write a file whole or not at all.

    Parameters
    ----------
    path : Path
        The file.
    write : callable
        Takes the open file.
    mode : str
        "w" or "wb".
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, mode) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def describe_run(config: RunConfig, fleet: list[Device | Measured], data: Dataset) -> dict[str, Any]:
    """Return all that a run's results follow from, as config.json has it.

    Parameters
    ----------
    config : RunConfig
        The run.
    fleet : list of Device or Measured
        The learners in the first cycle.
    data : Dataset
        What they learn from.
    """
    return {
        "config": config.as_dict(),
        "versions": versions(),
        "fleet": [_facts(d) for d in fleet],
        "data": {"source": data.source, "train": len(data.train_y), "test": len(data.test_y)},
        "notice": data.notice,
    }


class RunDir:
    """One run's files.

    Parameters
    ----------
    path : Path
        The directory; made when it is first written to.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, config: RunConfig) -> RunDir:
        """Return the configured directory, or a new one below ./runs named by time and scheme."""
        if config.run_dir:
            return cls(Path(config.run_dir))
        stamp = time.strftime("%Y%m%d-%H%M%S")
        return cls(Path("runs") / f"{stamp}-{config.scheme}-{config.mode}-{os.getpid()}")

    def start(self, config: RunConfig, fleet: list[Device | Measured], data: Dataset) -> None:
        """Write down what is about to run; drop records beyond the checkpoint when a run is resumed."""
        facts = describe_run(config, fleet, data)
        if config.resume:
            self.check_same(facts)
        atomically(self.path / "config.json", lambda f: json.dump(facts, f, indent=2))
        self.trim(self.cycles_done() if config.resume else 0)

    def check_same(self, facts: Mapping[str, Any]) -> None:
        """Refuse to go on with anything that would change the results.

        Parameters
        ----------
        facts : mapping
            From `describe_run`.
        """
        before = self.facts()
        old = before.get("config", {})
        for key, value in facts["config"].items():
            if key not in RESUMABLE and value != old.get(key):
                raise ValueError(
                    f"{key} must stay {old.get(key)!r} as the run began, got {value!r}. Leave it out, or "
                    "start another run"
                )
        if before.get("fleet") != facts["fleet"]:
            raise ValueError("fleet must stay as the run began, but the learners differ. Start another run")
        sizes = [[place.get("data", {}).get(key) for key in ("train", "test")] for place in (before, facts)]
        if sizes[0] != sizes[1]:
            raise ValueError(
                f"dataset must stay as the run began: it had {sizes[0]} samples to train and test, now "
                f"{sizes[1]}. Give the same data_dir, or start another run"
            )

    def trim(self, cycles: int) -> None:
        """Keep the records and tables of the first cycles only.

        Parameters
        ----------
        cycles : int
            How many; there must be as many on record.
        """
        kept = [r for r in self.records() if r.cycle <= cycles]
        if len(kept) < cycles:
            raise ValueError(f"{self.path} has {len(kept)} cycles on record, but a model after {cycles}")
        walls = self._wall_times()
        lines = "".join(json.dumps(r.as_dict(), allow_nan=False) + "\n" for r in kept)
        atomically(self.path / "records.jsonl", lambda f: f.write(lines))
        self._table("metrics.csv", _METRICS, [_metrics_row(r, walls.get(str(r.cycle), "")) for r in kept])
        self._table("ledger.csv", _LEDGER, [row for r in kept for row in ledger_rows(r)])

    def add(self, record: CycleRecord, wall_s: float) -> None:
        """Append a cycle to the records and tables.

        Parameters
        ----------
        record : CycleRecord
            The cycle.
        wall_s : float
            Seconds it took on this machine. Only the table of metrics has them: records are the same wherever
            a run is repeated.
        """
        ledger = ledger_rows(record)  # first of all, because it may refuse
        JsonlWriter(self.path / "records.jsonl")(record)
        self._table("metrics.csv", _METRICS, [_metrics_row(record, f"{wall_s:.3f}")], append=True)
        self._table("ledger.csv", _LEDGER, ledger, append=True)

    def _table(
        self, name: str, columns: tuple[str, ...], rows: list[list[Any]], *, append: bool = False
    ) -> None:
        with (self.path / name).open("a" if append else "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            if not append:
                writer.writerow(columns)
            writer.writerows(rows)

    def _wall_times(self) -> dict[str, str]:
        with suppress(FileNotFoundError), (self.path / "metrics.csv").open(encoding="utf-8") as file:
            return {row["cycle"]: row.get("wall_s") or "" for row in csv.DictReader(file)}
        return {}

    def facts(self) -> dict[str, Any]:
        """Return what `start` wrote down; it must be there."""
        path = self.path / "config.json"
        try:
            facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ValueError(
                f"run_dir must hold a run to resume, got {self.path}, which has no config.json. Start it "
                "without resume"
            ) from None
        except ValueError as error:
            raise ValueError(f"{path} is damaged ({error}): start anew in another run_dir") from None
        return facts

    def records(self) -> list[CycleRecord]:
        """Return the cycles on record."""
        path = self.path / "records.jsonl"
        return list(read_jsonl(path)) if path.exists() else []

    def save_model(self, weights: Weights, cycle: int, state: Mapping[str, Any]) -> None:
        """Keep the model after a cycle, with what the next cycle needs to know."""
        about = np.array(json.dumps({**state, "cycle": cycle}))
        arrays: dict[str, Any] = {"about": about} | {f"w{i:03d}": w for i, w in enumerate(weights)}
        atomically(self.path / "model.npz", lambda f: np.savez(f, **arrays), "wb")

    def load_model(self) -> tuple[Weights, dict[str, Any]]:
        """Return the model and the state that `save_model` kept."""
        path = self.path / "model.npz"
        try:
            with np.load(path, allow_pickle=False) as file:
                names = sorted(name for name in file.files if name != "about")
                return [file[name] for name in names], json.loads(str(file["about"]))
        except (ValueError, KeyError, EOFError, BadZipFile) as error:
            raise ValueError(f"{path} is damaged ({error}): start anew in another run_dir") from None

    def cycles_done(self) -> int:
        """Return the last cycle whose model is safe on disk."""
        return int(self.load_model()[1]["cycle"]) if (self.path / "model.npz").exists() else 0

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the summary."""
        atomically(self.path / "summary.json", lambda f: json.dump(summary, f, indent=2))


_METRICS = (
    "cycle",
    "accuracy",
    "loss",
    "mean_epochs",
    "bound",
    "samples",
    "makespan_s",
    "clock_s",
    "energy_j",
    "wall_s",
)
_LEDGER = (
    "cycle",
    "learner",
    "epochs",
    "samples",
    "busy_s",
    "idle_s",
    "cycle_time_s",
    "energy_j",
    "energy_limit_j",
    "battery_share",
    "outcome",
)


def _metrics_row(record: CycleRecord, wall_s: str) -> list[Any]:
    metrics = record.metrics
    head = [record.cycle, metrics.get("accuracy"), metrics.get("loss"), record.mean_epochs, record.bound]
    return [*head, record.total_samples, record.makespan_s, record.clock_s, record.energy_j, wall_s]


def ledger_rows(record: CycleRecord) -> list[list[Any]]:
    """Return who was busy how long for how many joules in a cycle, by the cost model.

    Raises
    ------
    RuntimeError
        If anybody exceeded the cycle time or its energy limit. It cannot happen; this is the proof.
    """
    rows = []
    for r in record.learners:
        if r.time_s > record.cycle_time_s or (r.energy_limit_j is not None and r.energy_j > r.energy_limit_j):
            raise RuntimeError(
                f"cycle {record.cycle}: {r.learner} took {r.time_s} s of {record.cycle_time_s} s and "
                f"{r.energy_j} J of {r.energy_limit_j} J"
            )
        idle = record.cycle_time_s - r.time_s
        share = r.energy_j / BATTERY_J
        row = [record.cycle, r.learner, r.epochs, r.samples, r.time_s, idle, record.cycle_time_s]
        rows.append([*row, r.energy_j, r.energy_limit_j, share, str(r.outcome)])
    return rows


def versions() -> dict[str, str]:
    """Return the versions of what computed the results."""
    found = {"python": sys.version.split()[0], "platform": platform.machine()}
    for package in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def _facts(device: Device | Measured) -> dict[str, Any]:
    facts = {key: value for key, value in asdict(device).items() if value is not None}
    return {**facts, "class": device.name.rstrip("0123456789").rstrip("-") or "device"}
