"""Ray for sweeps and the arena: many computations side by side."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from flwr_mel._text import message

#: Called with the phase, the number of finished tasks, and the number of all.
Show: TypeAlias = Callable[[str, int, int], None]
#: Returns the tasks that are missing by now, the number of finished tasks, and the number of all.
Left: TypeAlias = Callable[[], tuple[Sequence[Any], int, int]]

_TICK_S = 0.5


class TaskError(RuntimeError):
    """A task could not be computed; the message says which and why."""


def end_on_sigterm() -> None:
    """Let SIGTERM end the command as Ctrl-C does."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


def side_by_side(
    compute: Callable[..., Any],
    left: Left,
    keep: Callable[[Any, Any], None],
    show: Show,
    workers: int = 0,
    address: str = "",
    shared: Sequence[Any] = (),
) -> None:
    """Compute tasks as Ray tasks until none is left. Without anything to do, Ray is not started.

    Parameters
    ----------
    compute : callable
        Called in a worker with a task, then with what is shared.
    left : callable
        Asked before each step: finished tasks may add others. A task has a `key`.
    keep : callable
        Called with each finished task and its outcome.
    show : callable
        Shows the progress.
    workers : int
        Tasks at a time; 0: one per CPU.
    address : str
        An existing cluster; empty: ``RAY_ADDRESS``, or Ray on this machine.
    shared : sequence
        Large objects, kept in Ray's object store once per machine.
    """
    tasks, done, total = left()
    if not tasks:
        return
    show("starting Ray", done, total)
    import ray  # noqa: PLC0415 (slow)

    mine: dict[str, Any] = {"address": address} if address else {"num_cpus": workers or None}
    ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, **mine)
    end_on_sigterm()  # Ray replaces the handler when it starts
    try:
        remote, places = ray.remote(num_cpus=1)(compute), [ray.put(each) for each in shared]
        slots = workers or int(ray.cluster_resources().get("CPU", 1))  # type: ignore[no-untyped-call]
        running: dict[Any, Any] = {}
        while tasks:
            show("computing", done, total)
            waiting = [task for task in tasks if task not in running.values()]
            running |= {remote.remote(task, *places): task for task in waiting[: slots - len(running)]}
            ready: list[Any] = []
            while not ready:
                ready, _ = ray.wait(list(running), timeout=_TICK_S)
            task = running.pop(ready[0])
            try:
                outcome = ray.get(ready[0])
            except ray.exceptions.RayError as error:
                raise TaskError(f"{task.key}: {message(getattr(error, 'cause', error))[:300]}") from None
            keep(task, outcome)
            tasks, done, total = left()
        show("done", done, total)
    finally:
        ray.shutdown()
