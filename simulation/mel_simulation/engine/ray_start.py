"""Start Ray with no more than we need, or join a cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

_SLOW_START = "timed out during startup"
#: Read by Ray when it starts its processes: no reports home, no metrics, no GPU settings.
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
}
#: What Ray starts for people who look at a cluster or let it grow: Python processes that all import Ray, and
#: it waits for the last. There is no setting against them.
_FOR_OTHERS = ("start_monitor", "start_log_monitor", "start_api_server")


def import_ray(preload: str = "") -> Any:
    """Return the module, with our settings.

    Parameters
    ----------
    preload : str
        A module that Ray's workers are to import before they have anything to do.
    """
    for key, value in SETTINGS.items():
        os.environ.setdefault(key, value)
    if preload:
        os.environ["RAY_preload_python_modules"] = preload
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
    with _without(_FOR_OTHERS):
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
def _without(parts: tuple[str, ...]) -> Iterator[None]:
    """Keep Ray from starting some of its processes; a Ray that has other names for them starts them."""
    node = import_module("ray._private.node").Node
    own = {name: getattr(node, name) for name in parts if hasattr(node, name)}
    for name in own:
        setattr(node, name, lambda *_, **__: None)
    try:
        yield
    finally:
        for name, start in own.items():
            setattr(node, name, start)
