"""Runs a test app in a process group of its own, so that Ray's noise and remains stay outside pytest."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flwr_mel.records import CycleRecord

ROOT = Path(__file__).resolve().parents[2]
BACKEND = {
    "client_resources": {"num_cpus": 1},
    "init_args": {"num_cpus": 2, "include_dashboard": False, "log_to_driver": False},
}


@dataclass
class Run:
    """The files that one simulation left."""

    path: Path

    def result(self, scenario):
        return json.loads((self.path / f"{scenario}.json").read_text())

    def records(self, scenario):
        return [CycleRecord.from_dict(r) for r in self.result(scenario)["records"]]

    def weights(self, scenario):
        with np.load(self.path / f"{scenario}.npz") as data:
            return [data[key] for key in data.files]

    def calls(self, scenario):
        """Cycle and learner of every training that took place."""
        files = (self.path / "calls").glob(f"{scenario}.*.*")
        return sorted(tuple(int(x) for x in file.name.split(".")[1:]) for file in files)


def run_python(arguments, directory, timeout_s=400):
    """Run Python to its end; return its output, and end whatever it left behind."""
    # Ray's sockets need short paths, and two test runs at once need two of them.
    scratch = tempfile.mkdtemp(prefix="mel", dir="/tmp" if Path("/tmp").is_dir() else None)
    env = os.environ | {
        "PYTHONPATH": str(ROOT),
        "LAB_OUT": str(directory),
        "RAY_TMPDIR": scratch,
        "TMPDIR": scratch,
        "FLWR_HOME": str(Path(scratch) / "flwr"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DEDUP_LOGS": "0",
        "OMP_NUM_THREADS": "1",
    }
    env.pop("RAY_ADDRESS", None)
    log = Path(directory) / "log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(timeout_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
            shutil.rmtree(scratch, ignore_errors=True)
    text = log.read_text(errors="replace")
    assert process.returncode == 0, f"exit code {process.returncode}\n{text[-6000:]}"
    return text
