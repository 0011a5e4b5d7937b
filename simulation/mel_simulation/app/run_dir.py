"""The run directory: what a run leaves behind. An interruption loses at most the cycle in flight."""

from __future__ import annotations

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
from typing import Any

import numpy as np

from flwr_mel._files import atomically
from flwr_mel._validate import Phrase, complain
from flwr_mel.records import CycleRecord, JsonlWriter, read_jsonl
from mel_simulation.scenario.config import RESUMABLE, RunConfig
from mel_simulation.scenario.job import dataset_of, learners_of

_PACKAGES = ("flwr-mel", "flwr", "numpy", "scipy", "torch", "ray", "cvxpy")


def versions() -> dict[str, str]:
    """Return the versions of the packages that computed the results."""
    found = {"python": sys.version.split()[0], "platform": platform.machine()}
    for package in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


class RunDir:
    """One run's files; the directory is made when it is first written to.

    Parameters
    ----------
    path : Path
        Of the directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records_file = path / "records.jsonl"
        self.summary = path / "summary.json"
        self.error = path / "error.txt"
        self.checkpoints = path / "checkpoints"

    @classmethod
    def of(cls, config: RunConfig) -> RunDir:
        """Return the configured directory, or a new one below ./runs named by time and scheme."""
        stamp = time.strftime("%Y%m%d-%H%M%S")
        name = f"{stamp}-{config.scheme}-{config.mode}-{os.getpid()}"
        return cls(Path(config.run_dir) if config.run_dir else Path("runs") / name)

    def start(self, config: RunConfig) -> None:
        """Write config.json. Only a resumed run may continue what is there, and it must be the same run."""
        data = dataset_of(config)
        facts = {
            "config": config.as_dict(),
            "versions": versions(),
            "fleet": [asdict(device) for device in learners_of(config, 1)],
            "data": {"train": len(data.train_y), "test": len(data.test_y)},
            "source": data.source,
            "notice": data.notice,
        }
        if config.resume:
            self._check_same(facts)
        elif self.records() or self.cycles_done():
            got = Phrase(f"{self.path}, which holds a run")
            raise complain("run_dir", Phrase("new, or a run to {}", "resume"), got)
        atomically(self.path / "config.json", lambda f: json.dump(facts, f, indent=2))
        JsonlWriter(self.records_file).resume(self.cycles_done())
        self.summary.unlink(missing_ok=True)
        self.error.unlink(missing_ok=True)

    def _check_same(self, facts: Mapping[str, Any]) -> None:
        """Refuse to resume a run that is damaged, or with anything that would change its results."""
        before = self.facts()
        for key, value in facts["config"].items():
            old = before["config"].get(key)
            if key not in RESUMABLE and value != old:
                remedy = "Leave it out, or start another run."
                raise complain(key.replace("-", "_"), f"{old!r} as in the run so far", value, remedy)
        for key, what in (("fleet", "learners"), ("data", "samples")):
            if before[key] != facts[key]:
                raise complain(key, "as in the run so far", Phrase(f"other {what}"), "Start another run.")
        done, recorded = self.cycles_done(), len(self.records())
        if recorded < done or (recorded and not done):
            got = Phrase(f"{recorded} cycles on record and a checkpoint after {done}")
            raise complain("run_dir", "a whole run with its checkpoints", got, "Start another run.")

    def facts(self) -> dict[str, Any]:
        """Return what `start` wrote into config.json."""
        path = self.path / "config.json"
        if not path.is_file():
            got = Phrase(f"{self.path}, which has no config.json")
            raise complain("run_dir", "a run to resume", got, Phrase("Start it without {}.", "resume"))
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return facts

    def records(self) -> list[CycleRecord]:
        """Return the cycles on record."""
        return list(read_jsonl(self.records_file)) if self.records_file.exists() else []

    def cycles_done(self) -> int:
        """Return the last cycle that has a checkpoint."""
        found = max((file.stem for file in self.checkpoints.glob("round-*.npz")), default="")
        return int(found.removeprefix("round-") or 0)

    def finish(self, summary: Mapping[str, Any], weights: list[Any] | None) -> None:
        """Write the model, if it is new, and the summary."""
        if weights is not None:
            arrays: dict[str, Any] = {f"w{i:03d}": w for i, w in enumerate(weights)}
            atomically(self.path / "model.npz", lambda f: np.savez(f, **arrays), "wb")
        atomically(self.summary, lambda f: json.dump(summary, f, indent=2))
