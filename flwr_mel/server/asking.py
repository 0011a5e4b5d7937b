"""Questions to clients that run beside the training, so that they need no phase of their own."""

from __future__ import annotations

from collections.abc import Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic

from flwr.common import Code, GetPropertiesIns, Scalar
from flwr.server.client_proxy import ClientProxy

from flwr_mel import wire

Answer = dict[str, Scalar] | None
_AT_ONCE = 64


class Questions:
    """Asks clients what they can do in a cycle.

    Parameters
    ----------
    timeout_s : float
        How long a client may take to answer. It is waited for once: a client that did not answer is asked
        again, but not waited for.
    """

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._open: set[str] = set()
        self._mute: set[str] = set()
        self._answers: SimpleQueue[tuple[str, Answer]] = SimpleQueue()

    def ask(self, clients: Sequence[ClientProxy], cycle: int) -> None:
        """Send the question; returns at once.

        Parameters
        ----------
        clients : sequence of ClientProxy
            Whom to ask, in parallel.
        cycle : int
            Which cycle it is about.
        """
        waiting: SimpleQueue[ClientProxy] = SimpleQueue()
        for client in clients:
            if client.cid not in self._open:
                waiting.put(client)
        self._open |= {client.cid for client in clients}

        def work() -> None:
            while True:
                try:
                    client = waiting.get_nowait()
                except Empty:
                    return
                self._answers.put((client.cid, self._answer(client, cycle)))

        # Daemons: a client that never answers must not keep the finished program alive.
        for _ in range(min(len(clients), _AT_ONCE)):
            Thread(target=work, daemon=True).start()

    def _answer(self, client: ClientProxy, cycle: int) -> Answer:
        try:
            ins = GetPropertiesIns({wire.PROBE: cycle})
            result = client.get_properties(ins, timeout=None, group_id=cycle)
        except Exception:
            return None  # it has no mod, or it is not there
        return result.properties if result.status.code is Code.OK else None

    def answers(self) -> dict[str, Answer]:
        """Wait for what is still open; None for clients that did not answer."""
        heard: dict[str, Answer] = {}
        end = monotonic() + self.timeout_s
        while self._open:
            waited_for = self._open - self._mute
            try:
                cid, answer = self._answers.get(timeout=max(end - monotonic(), 0) if waited_for else 0)
            except Empty:
                self._mute |= waited_for
                heard |= dict.fromkeys(waited_for)
                break
            heard[cid] = answer
            self._open.discard(cid)
            self._mute.discard(cid)
        return heard
