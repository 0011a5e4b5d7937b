"""Questions to clients that run beside the training, so that they need no phase of their own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic

from flwr.common import Code, GetPropertiesIns, Scalar
from flwr.server.client_proxy import ClientProxy

from flwr_mel import wire
from flwr_mel.flower.patience import Patience
from flwr_mel.flower.reasons import brief, unanswered

Answer = dict[str, Scalar] | None
_AT_ONCE = 64


class Questions:
    """Asks clients what they can do in a cycle.

    Parameters
    ----------
    patience : Patience
        How long to wait for answers.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._open: set[str] = set()
        self._answers: SimpleQueue[tuple[str, Answer, float]] = SimpleQueue()
        #: Seconds from the questions to the answers that were returned last.
        self.took_s: dict[str, float] = {}

    def forget(self, connected: Collection[str]) -> None:
        """Expect nothing any more of clients that are not there."""
        self._open.intersection_update(connected)

    def ask(self, clients: Sequence[ClientProxy], cycle: int) -> None:
        """Send the question; returns at once. Whoever has not answered the last one is not asked again.

        Parameters
        ----------
        clients : sequence of ClientProxy
            Whom to ask, in parallel.
        cycle : int
            Which cycle it is about.
        """
        waiting: SimpleQueue[ClientProxy] = SimpleQueue()
        new = [client for client in clients if client.cid not in self._open]
        for client in new:
            waiting.put(client)
        self._open |= {client.cid for client in new}

        def work() -> None:
            while True:
                try:
                    client = waiting.get_nowait()
                except Empty:
                    return
                asked = monotonic()
                answer = self._answer(client, cycle)
                self._answers.put((client.cid, answer, monotonic() - asked))

        # Daemons: a client that never answers must not keep the finished program alive.
        for _ in range(min(len(new), _AT_ONCE)):
            Thread(target=work, daemon=True).start()

    def _answer(self, client: ClientProxy, cycle: int) -> Answer:
        try:
            ins = GetPropertiesIns({wire.PROBE: cycle})
            # With a time limit, or clients that never answer would hold all threads for ever.
            result = client.get_properties(ins, timeout=self._patience.timeout_s, group_id=cycle)
        except Exception as error:  # it has no mod, or it is not there
            return None if unanswered(str(error)) else {wire.PROBLEM: brief(str(error))}
        return result.properties if result.status.code is Code.OK else {}  # it has no mod

    def answers(self, awaited: Collection[str] = ()) -> dict[str, Answer]:
        """Return the answers that are there; None for clients that have none.

        Parameters
        ----------
        awaited : collection of str
            Clients to wait for.
        """
        heard: dict[str, Answer] = {}
        self.took_s = {}
        start, missing = monotonic(), self._open.intersection(awaited)
        while True:
            patience = self._patience.seconds(needed=bool(missing), others=bool(self._open))
            try:
                cid, answer, took_s = self._answers.get(timeout=max(start + patience - monotonic(), 0.0))
            except Empty:
                return heard | dict.fromkeys(missing)
            if cid in self._open:  # or else it is not there any more
                heard[cid], self.took_s[cid] = answer, took_s
                self._open.remove(cid)
                missing.discard(cid)
