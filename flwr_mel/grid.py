"""What passes through Flower's Grid: tasks whose replies are timed, and probes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import monotonic, sleep
from typing import Any

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from flwr_mel import wire
from flwr_mel._text import last_error, printable
from flwr_mel.cycle.reports import Words
from flwr_mel.cycle.settle import ERRORS, Kind
from flwr_mel.probes import Probes, pause_s


class TimedGrid(Grid):
    """A grid that notes when each reply came, and stops waiting at a deadline.

    Parameters
    ----------
    grid : Grid
        Carries the messages.
    """

    def __init__(self, grid: Grid) -> None:
        self._carrier = grid
        self.deadline_s: float | None = None
        #: Seconds from sending the latest messages to their replies, by message id.
        self.took_s: dict[str, float] = {}

    def __getattr__(self, name: str) -> Any:
        """Return what only the grid below has."""
        if name == "_carrier":  # not there yet, while being copied
            raise AttributeError(name)
        return getattr(self._carrier, name)

    def set_run(self, run: Any) -> None:
        """Pass on."""
        self._carrier.set_run(run)

    @property
    def run(self) -> Any:
        """Pass on."""
        return self._carrier.run

    def create_message(self, *given: Any, **more: Any) -> Message:
        """Pass on."""
        return self._carrier.create_message(*given, **more)

    def get_node_ids(self) -> Iterable[int]:
        """Pass on."""
        return self._carrier.get_node_ids()

    def get_nodes(self) -> Any:
        """Pass on: Grid's own method has the ids of the nodes only."""
        return self._carrier.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Pass on."""
        return self._carrier.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Pass on."""
        return self._carrier.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and wait for the replies, at most until the timeout or the deadline."""
        limits = [t for t in (timeout, self.deadline_s) if t is not None]
        start = monotonic()
        open_ids = {pushed for pushed in self.push_messages(messages) if pushed}  # None: not pushed
        self.took_s, replies = {}, []
        while open_ids:
            for reply in self.pull_messages(open_ids):
                answered = reply.metadata.reply_to_message_id
                self.took_s[answered] = monotonic() - start
                open_ids.discard(answered)
                replies.append(reply)
            waited = monotonic() - start
            left = min(limits) - waited if limits else float("inf")
            if left <= 0 or not open_ids:
                break
            sleep(min(pause_s(waited), left))
        return replies


class GridProbes(Probes):
    """Probes as train messages without a model: the mod answers them without calling the app."""

    def __init__(self) -> None:
        super().__init__()
        self.grid: Grid | None = None
        self._node_of: dict[str, str] = {}

    def send(self, nodes: Sequence[str], cycle: int, timeout_s: float) -> None:
        """Push one message per node."""
        probes = {
            node: Message(
                RecordDict({wire.RECORD: ConfigRecord({wire.PROBE: cycle})}),
                dst_node_id=int(node),
                message_type=MessageType.TRAIN,
                ttl=timeout_s,
            )
            for node in nodes
        }
        if self.grid is not None:
            list(self.grid.push_messages(probes.values()))
        self._node_of |= {probe.metadata.message_id: node for node, probe in probes.items()}

    def collect(self) -> dict[str, Words | None]:
        """Pull what is there."""
        came: dict[str, Words | None] = {}
        self._node_of = {probe: node for probe, node in self._node_of.items() if node in self.open}
        if self.grid is None or not self._node_of:
            return came
        for reply in self.grid.pull_messages(list(self._node_of)):
            node = self._node_of.get(reply.metadata.reply_to_message_id)
            if node is not None and (reply.has_error() or str(reply.metadata.src_node_id) == node):
                came[node] = _answer(reply)
        return came


def _answer(reply: Message) -> Words | None:
    """Return the words of an answer; what came instead of one is the problem."""
    if not reply.has_error():
        return words_of(reply)
    if ERRORS.get(reply.error.code, Kind.FAILED) is not Kind.FAILED:
        return None
    reason = printable(last_error(reply.error.reason or ""), 200)
    return {wire.PROBLEM: f"it has no mel_mod: the probe failed with {reason}"}


def words_of(reply: Message) -> dict[str, object]:
    """Return what the mod attached to a reply."""
    record = reply.content.config_records.get(wire.RECORD) if reply.has_content() else None
    return {} if record is None else dict(record)
