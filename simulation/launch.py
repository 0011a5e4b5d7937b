"""Run the simulation through Flower's own engine: a SuperLink of our own, `flwr run`, its final status."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from simulation.flower_app import write_app, write_connection
from simulation.processes import end, orderly, undisturbed

_STARTED = re.compile(r"Successfully started run (\d+)")
_PATIENCE_S = 180.0
_SLOW_START = "The current node timed out during startup"


class LaunchError(RuntimeError):
    """Flower could not run the simulation; the message says why."""


@dataclass(frozen=True, slots=True)
class Engine:
    """How much of the machine the virtual learners may use.

    Parameters
    ----------
    learners : int
        Virtual nodes.
    cpus_per_learner : float
        CPUs each working learner takes: the number of actors is the machine's CPUs over this.
    ray_address : str
        An existing Ray cluster to join; empty: Ray on this machine.
    offline : bool
        The full data cannot be had: nobody needs to try again.
    """

    learners: int
    cpus_per_learner: float = 1.0
    ray_address: str = ""
    offline: bool = False

    def federation(self) -> str:
        """Return the options of `flwr run --federation-config`.

        Flower takes whole CPUs only. A fraction is had by telling Ray of more CPUs than the machine has.
        """
        nodes, cpus = f"num-supernodes={self.learners}", self.cpus_per_learner
        if float(cpus).is_integer():
            return f"{nodes} client-resources-num-cpus={int(cpus)}"
        actors = max(1, int((os.cpu_count() or 1) / cpus))
        return f"{nodes} client-resources-num-cpus=1 init-args-num-cpus={actors}"


class Running:
    """A simulation under way.

    Parameters
    ----------
    process : subprocess.Popen
        The streaming `flwr run`.
    log_path : Path
        Where its output goes.
    env : dict
        Environment of Flower's commands.
    """

    def __init__(self, process: subprocess.Popen[bytes], log_path: Path, env: dict[str, str]) -> None:
        self.process = process
        self.log_path = log_path
        self.env = env

    @property
    def run_id(self) -> str:
        """Flower's id, once it is known."""
        found = _STARTED.search(self.log_path.read_text(encoding="utf-8", errors="replace"))
        return found.group(1) if found else ""

    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def verdict(self) -> str:
        """Return "" if the run completed, else why not: `flwr run` itself always exits with 0."""
        if not self.run_id:
            return f"Flower did not start the run: {self._tail()}"
        command = [_tool("flwr"), "ls", "mel", "--run-id", self.run_id, "--format", "json"]
        said = "no answer"
        try:
            listing = subprocess.run(
                command, env=self.env, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
            )
            said = listing.stdout.strip() or listing.stderr.strip()
            run = json.loads(listing.stdout)["runs"][0]
        except (ValueError, KeyError, IndexError, subprocess.TimeoutExpired):
            return f"Flower does not know how the run ended: {said}"
        if run["status"] == "finished:completed":
            return ""
        return str(run.get("status-details") or run["status"])

    def _tail(self) -> str:
        lines = self.log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return " | ".join(lines[-5:]) or "no output"


@contextmanager
def running(
    config: Mapping[str, Any],
    engine: Engine,
    log_path: Path,
    serverapp: str = "simulation.server_app:app",
) -> Iterator[Running]:
    """Start the simulation; whatever happens, nothing of it is left running afterwards.

    Parameters
    ----------
    config : mapping
        Run configuration of the app.
    engine : Engine
        Nodes and actors.
    log_path : Path
        Gets Flower's output.
    serverapp : str
        Which server app.
    """
    # Ray's sockets need short paths, so this is not inside the run directory.
    scratch = Path(tempfile.mkdtemp(prefix="mel-"))
    port = free_port()
    env = _environment(scratch, engine)
    write_connection(Path(env["FLWR_HOME"]), port)
    app = write_app(scratch / "app", serverapp, config)
    superlink = _superlink(port, env, scratch / "superlink.log")
    client: subprocess.Popen[bytes] | None = None
    try:
        _wait_until_up(port, superlink, scratch / "superlink.log")
        command = [_tool("flwr"), "run", str(app), "mel", "--stream"]
        with log_path.open("wb") as log:
            client = subprocess.Popen(
                [*command, "--federation-config", engine.federation()],
                env=env,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        yield Running(client, log_path, env)
    finally:
        with undisturbed():
            for process in (client, superlink):
                if process is not None:
                    end(process)
            shutil.rmtree(scratch, ignore_errors=True)


def complete(
    config: Mapping[str, Any],
    engine: Engine,
    log_path: Path,
    watch: Callable[[Callable[[], bool]], None],
    serverapp: str = "simulation.server_app:app",
) -> str:
    """Run until the end and return the verdict; try a second time if Ray was too slow to start.

    Ray gives its own processes 30 seconds, which a busy machine may not grant. Nothing has been trained then.

    Parameters
    ----------
    config, engine, log_path, serverapp
        As for `running`.
    watch : callable
        Shows the run while the function it gets returns True.
    """
    for _ in range(2):
        with orderly(), running(config, engine, log_path, serverapp) as simulation:
            watch(simulation.alive)
            trouble = simulation.verdict()
        if not trouble or _SLOW_START not in log_path.read_text(encoding="utf-8", errors="replace"):
            break
    return trouble


def free_port() -> int:
    """Return a port on loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _environment(scratch: Path, engine: Engine) -> dict[str, str]:
    env = {
        **os.environ,
        "FLWR_HOME": str(scratch / "flwr"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        # The installed environment is used as it is; Flower would install the app's dependencies again.
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_TMPDIR": str(scratch / "ray"),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    }
    if engine.offline:
        env["FLWR_MEL_OFFLINE"] = "1"
    if engine.ray_address:
        env["RAY_ADDRESS"] = engine.ray_address
    (scratch / "ray").mkdir()
    return env


def _superlink(port: int, env: dict[str, str], log_path: Path) -> subprocess.Popen[bytes]:
    with log_path.open("wb") as log:
        return subprocess.Popen(
            [
                *(_tool("flower-superlink"), "--insecure", "--simulation", "--isolation", "subprocess"),
                *("--host", "127.0.0.1", "--port", str(port), "--disable-runtime-dependency-installation"),
            ],
            env=env,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _wait_until_up(port: int, process: subprocess.Popen[bytes], log_path: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with suppress(URLError, OSError), urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
            if answer.status == 200:
                return
        time.sleep(0.2)
    tail = log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-5:]
    raise LaunchError(f"Flower's SuperLink did not start: {' | '.join(tail) or 'no output'}")


def _tool(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise LaunchError(f"{name} is not installed; try: pip install 'flwr-mel[simulation]'")
    return found
