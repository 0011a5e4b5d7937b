"""Flower's engine in a process of its own, so that Ray's noise and remains stay outside pytest."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flwr_mel._processes import end
from flwr_mel.records import CycleRecord

ROOT = Path(__file__).resolve().parents[2]
NODES = 20
#: Ray reports nothing home and collects no metrics.
SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_enable_metrics_collection": "0"}
#: Ray gives its own processes 30 seconds, which a busy machine may not grant; it is asked again then.
SLOW_START = "timed out during startup"
#: Scenarios that kill workers.
SPOILING = {"dies"}


def environment(scratch):
    """Return an environment in which Flower and Ray keep to one directory, of a short name for sockets."""
    inherited = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    return inherited | {
        "PYTHONPATH": str(ROOT),
        "RAY_TMPDIR": str(scratch),
        "TMPDIR": str(scratch),
        "FLWR_HOME": str(scratch / "flwr"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        **SETTINGS,
        "RAY_DEDUP_LOGS": "0",
        "OMP_NUM_THREADS": "1",
    }


class Engine:
    """One engine for many apps (`tests.flower.host`), started when the first is played."""

    def __init__(self):
        self.process, self.plays = None, 0

    def play(self, app, directory, *, config=None, nodes=NODES, spoils=False, **variables):
        """Run a Flower app to its end and return its output.

        Parameters
        ----------
        app : str
            A module with `server_app` and `client_app`, or the path of one.
        directory : Path
            Gets the log.
        config : dict
            The run configuration.
        nodes : int
            How many of the engine's nodes are there.
        spoils : bool
            It kills workers, so that the next app needs a new engine.
        **variables
            Environment variables that server and clients see.
        """
        self.plays += 1
        log = Path(directory) / f"log-{self.plays}"
        request = {"id": self.plays, "app": str(app), "config": config or {}, "nodes": nodes, "log": str(log)}
        request["environment"] = {key: str(value) for key, value in variables.items()}
        over = False
        try:
            trouble = self._ask(request)
            over = not spoils
        finally:
            if not over:  # also when the test is given up: who knows what still runs
                self.stop()
        said = log.read_text(errors="replace") if log.exists() else ""
        assert not trouble, f"{trouble}\n{said[-6000:]}"
        return said

    def _ask(self, request):
        if self.process is None:
            self._start()
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        if answer := self.answers.readline():
            return json.loads(answer)
        logs = [path for path in (self.scratch / "log", Path(request["log"])) if path.exists()]
        said = "".join(path.read_text(errors="replace") for path in logs)
        assert SLOW_START in said, f"the engine ended\n{said[-6000:]}"
        Path(request["log"]).unlink(missing_ok=True)
        self.stop()
        return self._ask(request)

    def _start(self):
        self.scratch = Path(tempfile.mkdtemp(prefix="mel", dir="/tmp" if Path("/tmp").is_dir() else None))
        reading, writing = os.pipe()
        home = {"ENGINE_HOME": str(self.scratch), "ENGINE_ANSWERS": str(writing)}
        with (self.scratch / "log").open("w") as log:
            self.process = subprocess.Popen(
                # By name, so that what it pickles for the workers can be imported there.
                [sys.executable, "-c", "from tests.flower.host import start; start()"],
                cwd=ROOT,
                env=environment(self.scratch) | home,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                pass_fds=[writing],
                start_new_session=True,
            )
        os.close(writing)
        self.answers = os.fdopen(reading)

    def stop(self):
        """End the engine and whatever it left behind."""
        if self.process is None:
            return
        end(self.process)
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.answers.close()
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.process = None


@dataclass
class Run:
    """The scenarios of one API (`tests.flower.scenarios`): played when they are first asked for."""

    engine: Engine
    app: str
    path: Path

    def _played(self, scenario):
        if not (self.path / f"{scenario}.json").exists():
            variables = {"LAB_OUT": self.path, "LAB_SCENARIO": scenario}
            self.engine.play(self.app, self.path, spoils=scenario in SPOILING, **variables)

    def result(self, scenario):
        self._played(scenario)
        return json.loads((self.path / f"{scenario}.json").read_text())

    def records(self, scenario):
        return [CycleRecord.from_dict(r) for r in self.result(scenario)["records"]]

    def weights(self, scenario):
        self._played(scenario)
        with np.load(self.path / f"{scenario}.npz") as data:
            return [data[key] for key in data.files]

    def calls(self, scenario):
        """Cycle and learner of every training that took place."""
        self._played(scenario)
        files = (self.path / "calls").glob(f"{scenario}.*.*")
        return sorted(tuple(int(x) for x in file.name.split(".")[1:]) for file in files)


def row(record, k):
    """Return what a cycle's record says of one learner."""
    (found,) = [r for r in record.learners if r.learner == str(k)]
    return found
