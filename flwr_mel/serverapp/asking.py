"""Questions to nodes that run beside the training, so that they need no phase of their own."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from time import monotonic, sleep

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from flwr_mel import wire
from flwr_mel.flower.patience import Patience
from flwr_mel.flower.reasons import brief, unanswered
from flwr_mel.serverapp.replies import is_from, report_of
from flwr_mel.serverapp.timing import pause_s

Answer = dict[str, object] | None
_LONGEST_PAUSE_S = 1.0


class Questions:
    """Asks nodes what they can do in a cycle.

    A question is a train message that carries nothing but the probe: it reaches every app, and the mod
    answers it without calling the app.

    Parameters
    ----------
    patience : Patience
        How long to wait for answers.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._open: dict[str, str] = {}
        self._asked: dict[str, float] = {}
        #: Seconds from the questions to the answers that were returned last.
        self.took_s: dict[str, float] = {}

    def forget(self, connected: Collection[str]) -> None:
        """Expect nothing any more of nodes that are not there."""
        self._open = {question: node for question, node in self._open.items() if node in connected}
        self._asked = {node: at for node, at in self._asked.items() if node in connected}

    def ask(self, nodes: Iterable[str], cycle: int, grid: Grid) -> None:
        """Send the question; returns at once. Whoever has not answered the last one is not asked again.

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
            now = monotonic()
            list(grid.push_messages(probes.values()))
            self._open |= {probe.metadata.message_id: node for node, probe in probes.items()}
            self._asked |= dict.fromkeys(probes, now)

    def _probe(self, node: int, cycle: int) -> Message:
        content = RecordDict({wire.RECORD: ConfigRecord({wire.PROBE: cycle})})
        # With a time limit: a node that lost the question, as by a restart, is to be asked again.
        ttl = self._patience.timeout_s
        return Message(content, dst_node_id=node, message_type=MessageType.TRAIN, ttl=ttl)

    def answers(self, grid: Grid, awaited: Collection[str] = ()) -> dict[str, Answer]:
        """Return the answers that are there; None for nodes that have none.

        Parameters
        ----------
        grid : Grid
            The way to the nodes.
        awaited : collection of str
            Nodes to wait for.
        """
        heard: dict[str, Answer] = {}
        self.took_s = {}
        start, needed = monotonic(), set(awaited)
        while self._open:
            looked = monotonic()
            for reply in grid.pull_messages(list(self._open)):
                node = self._open.get(reply.metadata.reply_to_message_id)
                if node is not None and is_from(reply, node):
                    del self._open[reply.metadata.reply_to_message_id]
                    heard[node] = report_of(reply)
                    # Only while somebody waits is it known when an answer came.
                    if needed:
                        self.took_s[node] = monotonic() - self._asked.pop(node, looked)
                    if reply.has_error():  # it has no mod, or it is not there
                        why = reply.error.reason or ""
                        heard[node] = None if unanswered(why) else {wire.PROBLEM: brief(why)}
            missing = needed.intersection(self._open.values())
            patience = self._patience.seconds(needed=bool(missing), others=bool(self._open))
            if monotonic() - start >= patience:
                return heard | dict.fromkeys(missing)
            now = monotonic()
            pause = min(pause_s(now - start, now - looked), _LONGEST_PAUSE_S)
            sleep(max(min(pause, start + patience - now), 0.0))
        return heard
