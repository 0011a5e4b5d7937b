"""What passes through Flower's Grid: tasks whose replies are timed, and probes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from time import monotonic, sleep
from typing import Any

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from flwr_mel import wire
from flwr_mel._text import last_error, printable
from flwr_mel.cycle.measure import Words

#: Flower's error code for a message that outlived its time to live.
EXPIRED = 3
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _PAUSE = 0.02, 1.0, 0.02


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


def pause_s(waited: float) -> float:
    """Return how long to wait before looking for replies again: a fiftieth of the time waited so far."""
    return min(max(_PAUSE * waited, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)


class Probes:
    """Questions to clients about their capability, which they answer during the training.

    A probe is a train message without a model: the mod answers it without calling the app.
    """

    def __init__(self) -> None:
        #: Nodes whose answers are still to come, with the id of the probe.
        self.open: dict[str, str] = {}

    def ask(self, nodes: Collection[str], cycle: int, grid: Grid, timeout_s: float) -> None:
        """Send probes and return at once; a client with an open probe is not asked again.

        Parameters
        ----------
        nodes : collection of str
            The clients.
        cycle : int
            The coming round.
        grid : Grid
            Carries the messages.
        timeout_s : float
            After which a probe expires.
        """
        probes = {
            node: Message(
                RecordDict({wire.RECORD: ConfigRecord({wire.PROBE: cycle})}),
                dst_node_id=int(node),
                message_type=MessageType.TRAIN,
                ttl=timeout_s,
            )
            for node in nodes
            if node not in self.open
        }
        if probes:
            list(grid.push_messages(probes.values()))
            self.open |= {node: probe.metadata.message_id for node, probe in probes.items()}

    def answers(self, grid: Grid, awaited: Collection[str], timeout_s: float) -> dict[str, Words | None]:
        """Return the answers that came; None for an awaited client that did not answer.

        Parameters
        ----------
        grid : Grid
            Carries the messages.
        awaited : collection of str
            Clients to wait for.
        timeout_s : float
            How long.
        """
        came: dict[str, Words | None] = {}
        start = monotonic()
        while self.open:
            node_of = {probe: node for node, probe in self.open.items()}
            for reply in grid.pull_messages(list(node_of)):
                node = node_of.get(reply.metadata.reply_to_message_id)
                if node is not None and (reply.has_error() or str(reply.metadata.src_node_id) == node):
                    del self.open[node]
                    came[node] = _answer(reply)
            missing = [node for node in awaited if node in self.open]
            waited = monotonic() - start
            if not missing or waited >= timeout_s:
                for node in missing:
                    del self.open[node]
                return came | dict.fromkeys(missing)
            sleep(min(pause_s(waited), timeout_s - waited))
        return came


def _answer(reply: Message) -> Words | None:
    """Return the words of an answer; what came instead of one is the problem."""
    if not reply.has_error():
        return words_of(reply)
    if reply.error.code == EXPIRED:
        return None
    reason = printable(last_error(reply.error.reason or ""), 200)
    return {wire.PROBLEM: f"it has no mel_mod: the probe failed with {reason}"}


def words_of(reply: Message) -> dict[str, object]:
    """Return what the mod attached to a reply."""
    record = reply.content.config_records.get(wire.RECORD) if reply.has_content() else None
    return {} if record is None else dict(record)
