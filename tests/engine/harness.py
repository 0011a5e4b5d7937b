"""Flower's engine in a process of its own, so that Ray's noise and remains stay outside pytest."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from tests.processes import end

ROOT = Path(__file__).resolve().parents[2]
NODES = 20
#: Ray reports nothing home and collects no metrics.
SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_enable_metrics_collection": "0"}
#: Ray gives its own processes 30 seconds, which a busy machine may not grant; it is asked again then.
SLOW_START = "timed out during startup"


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
    """One engine for many apps (`tests.engine.host`), started when the first is played."""

    def __init__(self):
        self.process, self.plays = None, 0

    def play(self, app, directory, *, config=None, nodes=NODES, **variables):
        """Run a Flower app to its end and return its output, which is logged in the directory.

        The app is a module with `server_app` and `client_app`, or the path of one. So many of the engine's
        nodes are there. Server and clients see the run configuration and the environment variables.
        """
        self.plays += 1
        log = Path(directory) / f"log-{self.plays}"
        request = {"id": self.plays, "app": str(app), "config": config or {}, "nodes": nodes, "log": str(log)}
        request["environment"] = {key: str(value) for key, value in variables.items()}
        over = False
        try:
            trouble = self._ask(request)
            over = True
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
                [sys.executable, "-c", "from tests.engine.host import start; start()"],
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
