"""No test here downloads or shares a cache with other tests; runs that several tests look at."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from mel_simulation.scenario import job

from tests.simulation.cluster import Cluster
from tests.simulation.tools import CYCLES, command
from tests.waiting import PATIENCE_S


@pytest.fixture(autouse=True)
def _offline(tmp_path, monkeypatch):
    monkeypatch.setenv("FLWR_MEL_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("FLWR_MEL_OFFLINE", "1")
    job._partitions.cache_clear()


@pytest.fixture
def no_engine(monkeypatch):
    """A command that would start Flower's engine fails."""
    monkeypatch.setattr("mel_simulation.cli.running.engine", None)


@pytest.fixture(scope="session")
def space(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="session")
def env(space) -> dict[str, str]:
    """The environment of commands."""
    free = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "FLWR_"))}
    return {**free, "FLWR_MEL_OFFLINE": "1", "FLWR_MEL_DATA": str(space / "cache")}


@pytest.fixture(scope="session")
def call(env):
    """Run a command; it must succeed."""

    def called(*args: object, **more: str) -> str:
        done = subprocess.run(
            command(*args),
            env={**env, **more},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return called


@pytest.fixture(scope="package")
def cluster(env) -> Iterator[Cluster]:
    """Two Ray nodes on this machine."""
    made = Cluster(env)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def play(space, engine):
    """Run the app on the engine that all tests share; return the run directory."""

    def played(name: str, **config: object) -> Path:
        words = {key.replace("_", "-"): value for key, value in config.items()}
        offline = {"FLWR_MEL_OFFLINE": "1", "FLWR_MEL_DATA": space / "cache"}
        words["run-dir"] = str(space / name)
        engine.play("tests.simulation.app", space, config=words, **offline)
        return space / name

    return played


@pytest.fixture(scope="session")
def straight(play) -> Path:
    """The run that others are compared with: Message API, not interrupted."""
    return play("straight", cycles=CYCLES)
