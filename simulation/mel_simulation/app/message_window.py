"""Hand messages to Flower's engine a few at a time.

For every node the engine looks through all messages that are not answered yet, so the messages of 1,000
nodes at once cost a million looks every tenth of a second, and the learners wait. A window keeps the cost per
learner flat.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from flwr_mel import wire
from flwr_mel.serverapp.strategy import MelStrategy

_LEAST, _PER_CPU, _PAUSE_S = 32, 4, 0.02


class Windowed:
    """A grid that sends the next message when an earlier one is answered.

    Parameters
    ----------
    grid : Grid
        Flower's.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def through(self, wrap: Callable[[Grid], Grid]) -> Windowed:
        """Return the same window over a wrapped grid, e.g. one that times the messages.

        Parameters
        ----------
        wrap : callable
            Takes Flower's grid and returns what to send through.
        """
        return Windowed(wrap(self._grid))

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send all and return the replies that come in time, as `Grid.send_and_receive` does."""
        end = None if timeout is None else time.monotonic() + timeout
        waiting, open_ids, replies = list(messages)[::-1], set[str](), list[Message]()
        window = max(_LEAST, _PER_CPU * _cpus())
        while (waiting or open_ids) and (end is None or time.monotonic() < end):
            batch = [waiting.pop() for _ in range(min(window - len(open_ids), len(waiting)))]
            open_ids.update(self._grid.push_messages(batch))
            came = list(self._grid.pull_messages(open_ids)) if open_ids else []
            replies += came
            open_ids -= {reply.metadata.reply_to_message_id for reply in came}
            if not came:
                time.sleep(_PAUSE_S)
        return replies


def introduce(strategy: MelStrategy, cycle: int, grid: Grid) -> None:
    """Ask everybody what it can do, before the strategy asks all at once.

    Parameters
    ----------
    strategy : MelStrategy
        Told the answers; whoever does not answer is asked again by it.
    cycle : int
        The coming one.
    grid : Grid
        The way to the nodes.
    """
    probes = []
    for node in grid.get_node_ids():
        question = RecordDict({wire.RECORD: ConfigRecord({wire.PROBE: cycle})})
        probes.append(Message(question, dst_node_id=node, message_type=MessageType.TRAIN))
    for reply in grid.send_and_receive(probes):
        if reply.has_content() and wire.RECORD in reply.content.config_records:
            words = dict(reply.content.config_records[wire.RECORD])
            strategy.orchestrator.hear(str(reply.metadata.src_node_id), words)


def _cpus() -> int:
    """Return the CPUs of the whole cluster, once Ray is up."""
    here = os.cpu_count() or 1
    try:
        import ray  # noqa: PLC0415

        if not ray.is_initialized():
            return here
        return max(here, int(ray.cluster_resources().get("CPU", 0)))  # type: ignore[no-untyped-call]
    except Exception:  # Ray is just starting or stopping
        return here
