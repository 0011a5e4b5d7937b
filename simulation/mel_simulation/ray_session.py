"""Ray for sweeps and the arena: many computations side by side."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

#: Called with the phase, the number of finished parts, and the number of all.
Show: TypeAlias = Callable[[str, int, int], None]


def end_on_sigterm() -> None:
    """Let SIGTERM end the command as Ctrl-C does."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


@contextmanager
def ray_session(workers: int, address: str) -> Iterator[Any]:
    """Start Ray, or join a cluster, and yield the module; stop what was started.

    Parameters
    ----------
    workers : int
        CPUs of Ray on this machine; 0: as many as there are.
    address : str
        An existing cluster; empty: ``RAY_ADDRESS``, or Ray on this machine.
    """
    import ray  # noqa: PLC0415

    mine: dict[str, Any] = {"address": address} if address else {"num_cpus": workers or None}
    ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, **mine)
    end_on_sigterm()  # Ray replaces the handler when it starts
    try:
        yield ray
    finally:
        ray.shutdown()
