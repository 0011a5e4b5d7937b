"""Start the engine's process, follow it, and leave nothing of it behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr_mel._processes import end, orderly, undisturbed
from mel_simulation.engine.run_app import DONE, Order


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


class Running:
    """A simulation under way.

    Parameters
    ----------
    process : subprocess.Popen
        The engine's.
    scratch, log_path : Path
        Where it says how it goes, and where its output goes.
    """

    def __init__(self, process: subprocess.Popen[bytes], scratch: Path, log_path: Path) -> None:
        self.process = process
        self.scratch = scratch
        self.log_path = log_path

    @property
    def phase(self) -> str:
        """What is going on."""
        return _read(self.scratch / "phase") or "starting"

    @property
    def done(self) -> bool:
        """Whether all results are on disk; all that follows is tidying up."""
        return self.phase == DONE

    def alive(self) -> bool:
        """Whether there is more to come."""
        return self.process.poll() is None and not self.done

    def verdict(self) -> str:
        """Return "" if the run completed, else why not."""
        if self.done:
            return ""
        lines = _read(self.log_path).strip().splitlines()
        return _read(self.scratch / "trouble") or " | ".join(lines[-5:]) or "no output"


@contextmanager
def running(config: Mapping[str, Any], engine: Engine, log_path: Path) -> Iterator[Running]:
    """Start the simulation; whatever happens, nothing of it is left running afterwards.

    Parameters
    ----------
    config : mapping
        Run configuration of the app.
    engine : Engine
        Nodes and actors.
    log_path : Path
        Gets Flower's output.
    """
    # Ray's sockets need short paths, so this is not inside the run directory.
    scratch = Path(tempfile.mkdtemp(prefix="mel-"))
    order = Order(dict(config), engine.learners, engine.cpus_per_learner, engine.ray_address, str(scratch))
    simulation: Running | None = None
    try:
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "mel_simulation.engine.run_app", str(order.write())],
                env=_environment(engine),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        simulation = Running(process, scratch, log_path)
        yield simulation
    finally:
        with undisturbed():
            if simulation is not None:
                # Ray takes seconds to end in order, but only somebody else's cluster would miss it.
                end(simulation.process, politely=bool(engine.ray_address) or not simulation.done)
            shutil.rmtree(scratch, ignore_errors=True)


def complete(
    config: Mapping[str, Any], engine: Engine, log_path: Path, watch: Callable[[Running], None]
) -> str:
    """Run until the end and return the verdict.

    Parameters
    ----------
    config, engine, log_path
        As for `running`.
    watch : callable
        Shows the run while it is alive.
    """
    with orderly(), running(config, engine, log_path) as simulation:
        watch(simulation)
        return simulation.verdict()


def _environment(engine: Engine) -> dict[str, str]:
    env = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    # Each actor has one CPU's worth of work; more threads would only stand in each other's way.
    env.setdefault("OMP_NUM_THREADS", "1")
    if engine.offline:
        env["FLWR_MEL_OFFLINE"] = "1"
    return env


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
