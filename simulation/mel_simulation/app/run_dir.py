"""The run directory: what a run leaves behind. An interruption loses at most the cycle in flight."""

from __future__ import annotations

import csv
import importlib.metadata
import json
import os
import platform
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_mel._files import atomically
from flwr_mel._validate import InputError, Phrase, complain
from flwr_mel.checkpoint import Checkpoint, Checkpoints
from flwr_mel.devices import Device, Measured
from flwr_mel.records import CycleRecord, JsonlWriter, read_jsonl
from mel_simulation.scenario.config import RESUMABLE, RunConfig
from mel_simulation.scenario.data import Dataset

if TYPE_CHECKING:
    from mel_simulation.scenario.network import Weights

#: Joules in the paper's example battery, 2,000 mAh at 5 V.
BATTERY_J = 36_000.0

_PACKAGES = ("flwr-mel", "flwr", "numpy", "scipy", "torch", "ray", "cvxpy")


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
        else:
            for file in self.checkpoints.files():
                file.unlink()
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
                rule = f"{old.get(key)!r} as the run began"
                raise complain(key.replace("-", "_"), rule, value, "Leave it out, or start another run.")
        done, wanted = self.cycles_done(), facts["config"]["cycles"]
        if wanted < done:
            rule = f"at least {done}, the cycles that the run has done"
            raise complain("cycles", rule, wanted, "Give more to go on, or start another run.")
        if before.get("fleet") != facts["fleet"]:
            got = Phrase("other learners")
            raise complain("fleet", "as the run began", got, "Start another run.")
        sizes = [[place.get("data", {}).get(key) for key in ("train", "test")] for place in (before, facts)]
        if sizes[0] != sizes[1]:
            rule = f"as the run began, with {sizes[0]} samples to train and test"
            remedy = Phrase("Give the same {}, or start another run.", "data_dir")
            raise complain("dataset", rule, sizes[1], remedy)

    def trim(self, cycles: int) -> None:
        """Keep the records and tables of the first cycles only.

        Parameters
        ----------
        cycles : int
            How many; there must be as many on record.
        """
        kept = [r for r in self.records() if r.cycle <= cycles]
        if len(kept) < cycles:
            why = f"it has {len(kept)} cycles on record, but a model after {cycles}"
            raise self._damaged(self.path / "records.jsonl", why)
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
            got = Phrase(f"{self.path}, which has no config.json")
            remedy = Phrase("Start it without {}.", "resume")
            raise complain("run_dir", "a run to resume", got, remedy) from None
        except ValueError as error:
            raise self._damaged(path, error) from None
        return facts

    def _damaged(self, path: Path, error: object) -> InputError:
        remedy = f"{path.name} is damaged ({error}): start anew in another."
        return complain("run_dir", "a whole run", str(self.path), remedy)

    def records(self) -> list[CycleRecord]:
        """Return the cycles on record."""
        path = self.path / "records.jsonl"
        return list(read_jsonl(path)) if path.exists() else []

    @property
    def checkpoints(self) -> Checkpoints:
        """The strategy's checkpoints: from them a run goes on, through either API."""
        return Checkpoints(self.path / "checkpoints", keep=2)

    def checkpoint(self) -> Checkpoint | None:
        """Return what the last cycle that is safe on disk left; None when there is none."""
        found = self.checkpoints.load()
        if found is None and self.records():
            raise complain(
                "run_dir",
                "a run with checkpoints to go on from",
                str(self.path),
                "It was begun by flwr_mel 0.1, or they were removed. Start another run.",
            )
        return found

    def cycles_done(self) -> int:
        """Return the last cycle that is safe on disk."""
        found = self.checkpoint()
        return 0 if found is None else found.cycle

    def finish(self, summary: Mapping[str, Any], weights: Weights) -> None:
        """Write the summary and the model."""
        arrays: dict[str, Any] = {f"w{i:03d}": w for i, w in enumerate(weights)}
        atomically(self.path / "model.npz", lambda f: np.savez(f, **arrays), "wb")
        atomically(self.path / "summary.json", lambda f: json.dump(summary, f, indent=2))


_METRICS = (
    "cycle",
    "accuracy",
    "loss",
    "mean_epochs",
    "objective",
    "value",
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
    head: list[Any] = [record.cycle, metrics.get("accuracy"), metrics.get("loss"), record.mean_epochs]
    head += [record.objective, record.value, record.bound]
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
