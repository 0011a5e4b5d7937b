"""Start Ray with no more than we need, or join a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

_SLOW_START = "timed out during startup"
#: Read by Ray when it starts its processes: no reports home, no metrics, no GPU settings.
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
}
_PRELOAD = "RAY_preload_python_modules"
#: The Ray whose processes we know. Flower asks for one version; any other starts as it likes.
_KNOWN = "2.55."
#: What it starts for people who look at a cluster or let it grow, without a setting against it: each a Python
#: process that imports Ray, and it waits for the last.
_FOR_OTHERS = ("start_monitor", "start_log_monitor", "start_api_server")
#: What its raylet starts and waits for, by the option with the command, and the ports that they tell it.
_AGENTS = {
    "--dashboard_agent_command": ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port"),
    "--runtime_env_agent_command": ("runtime_env_agent_port",),
}


def import_ray(preload: str = "") -> Any:
    """Return the module, with our settings.

    Parameters
    ----------
    preload : str
        A module that Ray's workers import as soon as they are there. A task could not do it for actors: a
        worker that did a task never becomes one.
    """
    for key, value in SETTINGS.items():
        os.environ.setdefault(key, value)
    if preload:
        os.environ[_PRELOAD] = preload
    return import_module("ray")


def start_ray(cpus: float, address: str, scratch: str) -> Any:
    """Return the module, connected.

    Parameters
    ----------
    cpus : float
        Of Ray on this machine. 0: as many as there are.
    address : str
        An existing cluster; empty: Ray on this machine.
    scratch : str
        Directory of Ray's own files, with a short name: its sockets may have 107 characters.
    """
    ray = import_ray()
    common = {"log_to_driver": False, "logging_level": "error"}
    if address:
        ray.init(address=address, **common)
        return ray
    own = {"num_cpus": cpus or os.cpu_count(), "include_dashboard": False, "_temp_dir": scratch}
    with _bare(ray):
        try:
            ray.init(address="local", **own, **common)
        except Exception as error:
            # Ray gives its own processes 30 s, which a busy machine may not grant.
            if _SLOW_START not in str(error):
                raise
            ray.shutdown()
            ray.init(address="local", **own, **common)
    return ray


@contextmanager
def _bare(ray: Any) -> Iterator[None]:
    """Keep Ray from starting what only others need."""
    node, services = import_module("ray._private.node").Node, import_module("ray._private.services")
    ours: dict[tuple[Any, str], Any] = {}
    if ray.__version__.startswith(_KNOWN) and sys.platform != "win32":
        ours = {(node, name): _nothing for name in _FOR_OTHERS}
        ours[services, "start_ray_process"] = partial(_start, services.start_ray_process)
    before = {place: getattr(*place) for place in ours}
    for place, value in ours.items():
        setattr(*place, value)
    try:
        yield
    finally:
        for place, value in before.items():
            setattr(*place, value)


def _nothing(*_: Any, **__: Any) -> None:
    """Stand in for the start of a process."""


def _start(start: Any, command: list[str], *args: Any, **named: Any) -> Any:
    """Start one of Ray's processes; a raylet with idle agents."""
    options = dict(word.split("=", 1) for word in command if "=" in word)
    if _AGENTS.keys() <= options.keys():
        for option, ports in _AGENTS.items():
            files = [f"{options['--session_dir']}/{port}_{options['--node_id']}" for port in ports]
            idle = [sys.executable, "-I", "-S", str(Path(__file__).with_name("idle_agent.py")), *files]
            place = command.index(f"{option}={options[option]}")
            command[place] = f"{option}={subprocess.list2cmdline(idle)}"
    return start(command, *args, **named)
