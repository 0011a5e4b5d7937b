"""Questions to nodes that run beside the training, so that they need no phase of their own."""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic, sleep

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from flwr_mel import wire
from flwr_mel.serverapp.replies import is_from, report_of

Answer = dict[str, object] | None
_PAUSE_S = 0.1


class Questions:
    """Asks nodes what they can do in a cycle.

    A question is a train message that carries nothing but the probe: it reaches every app, and the mod
    answers it without calling the app.

    Parameters
    ----------
    timeout_s : float
        How long a node may take to answer. It is waited for once: a node that did not answer is asked
        again, but not waited for.
    """

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._open: dict[str, str] = {}
        self._mute: set[str] = set()

    def ask(self, nodes: Iterable[str], cycle: int, grid: Grid) -> None:
        """Send the question; returns at once.

        Parameters
        ----------
        nodes : iterable of str
            Whom to ask.
        cycle : int
            Which cycle it is about.
        grid : Grid
            The way to the nodes.
        """
        pending = set(self._open.values())
        probes = {node: self._probe(int(node), cycle) for node in nodes if node not in pending}
        if probes:
            list(grid.push_messages(probes.values()))
            self._open |= {probe.metadata.message_id: node for node, probe in probes.items()}

    def _probe(self, node: int, cycle: int) -> Message:
        content = RecordDict({wire.RECORD: ConfigRecord({wire.PROBE: cycle})})
        return Message(content, dst_node_id=node, message_type=MessageType.TRAIN)

    def answers(self, grid: Grid) -> dict[str, Answer]:
        """Wait for what is still open; None for nodes that did not answer.

        Parameters
        ----------
        grid : Grid
            The way to the nodes.
        """
        heard: dict[str, Answer] = {}
        end = monotonic() + self.timeout_s
        while self._open:
            for reply in grid.pull_messages(list(self._open)):
                node = self._open.get(reply.metadata.reply_to_message_id)
                if node is not None and is_from(reply, node):
                    del self._open[reply.metadata.reply_to_message_id]
                    heard[node] = None if reply.has_error() else report_of(reply)
                    self._mute.discard(node)
            waited_for = set(self._open.values()) - self._mute
            if not waited_for:
                break
            if monotonic() > end:
                self._mute |= waited_for
                heard |= dict.fromkeys(waited_for)
                break
            sleep(_PAUSE_S)
        return heard
