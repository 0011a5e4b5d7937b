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
from mel_simulation.scenario.fleet import devices
from mel_simulation.scenario.job import dataset_of

_PACKAGES = ("flwr-mel", "flwr", "numpy", "scipy", "torch", "ray", "cvxpy")


def describe_run(config: RunConfig) -> dict[str, Any]:
    """Return all that a run's results follow from, as config.json has it."""
    data = dataset_of(config)
    return {
        "config": config.as_dict(),
        "versions": versions(),
        "fleet": [asdict(device) for device in devices(config, 1)],
        "data": {"source": data.source, "train": len(data.train_y), "test": len(data.test_y)},
        "notice": data.notice,
    }


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
        self.checkpoints = path / "checkpoints"

    @classmethod
    def of(cls, config: RunConfig) -> RunDir:
        """Return the configured directory, or a new one below ./runs named by time and scheme."""
        stamp = time.strftime("%Y%m%d-%H%M%S")
        name = f"{stamp}-{config.scheme}-{config.mode}-{os.getpid()}"
        return cls(Path(config.run_dir) if config.run_dir else Path("runs") / name)

    def start(self, config: RunConfig) -> None:
        """Write config.json; a resumed run must be the same run."""
        facts = describe_run(config)
        if config.resume:
            self.check_same(facts)
        else:
            for file in self.checkpoints.glob("round-*"):
                file.unlink()
        atomically(self.path / "config.json", lambda f: json.dump(facts, f, indent=2))
        self.drop_unfinished()

    def drop_unfinished(self) -> None:
        """Drop the records of cycles beyond the last checkpoint, which are repeated."""
        JsonlWriter(self.records_file).resume(self.cycles_done())

    def check_same(self, facts: Mapping[str, Any]) -> None:
        """Refuse to resume a run that is damaged, or with anything that would change its results."""
        before, remedy = self.facts(), "Leave it out, or start another run."
        for key, value in facts["config"].items():
            old = before["config"].get(key)
            if key not in RESUMABLE and value != old:
                raise complain(key.replace("-", "_"), f"{old!r} as in the run so far", value, remedy)
        done, recorded, wanted = self.cycles_done(), len(self.records()), facts["config"]["cycles"]
        if recorded < done or (recorded and not done):
            got = Phrase(f"{recorded} cycles on record and a checkpoint after {done}")
            raise complain("run_dir", "a whole run with its checkpoints", got, "Start another run.")
        if wanted < done:
            raise complain("cycles", f"at least {done}, the cycles that the run has done", wanted)
        if before["fleet"] != facts["fleet"]:
            raise complain("fleet", "as in the run so far", Phrase("other learners"), "Start another run.")
        if before["data"]["train"] != facts["data"]["train"]:
            rule = f"as in the run so far, with {before['data']['train']} samples to train"
            raise complain("dataset", rule, facts["data"]["train"], "Start another run.")

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
