"""A client proxy that remembers why its client failed and how long it took.

The classic API reports failures without saying whose they are; this one stands between the server and the
real proxy and keeps that knowledge.
"""

from __future__ import annotations

from time import monotonic, time
from typing import Any

from flwr.common import Code, FitIns, FitRes
from flwr.server.client_proxy import ClientProxy


class TaskProxy(ClientProxy):
    """Trains under the cycle's deadline, remembers how it failed and what it took; passes on the rest.

    Parameters
    ----------
    client : ClientProxy
        The real one.
    deadline_s : float, optional
        When its reply is late.
    """

    def __init__(self, client: ClientProxy, deadline_s: float | None) -> None:
        super().__init__(client.cid)
        self.client = client
        self.properties = client.properties
        self.deadline_s = deadline_s
        self.failure = ""
        self.late = False
        self.round_trip_s: float | None = None
        self.sent_at: float | None = None
        self.received_at: float | None = None

    def __getattr__(self, name: str) -> Any:
        """Give what only the real proxy has, such as ``node_id``, which Flower's workflows read."""
        if name == "client":  # not there yet, while being copied
            raise AttributeError(name)
        return getattr(self.client, name)

    def fit(self, ins: FitIns, timeout: float | None, group_id: int | None) -> FitRes:
        """Train, within the shorter of the server's timeout and our deadline."""
        limits = [t for t in (timeout, self.deadline_s) if t is not None]
        limit = min(limits) if limits else None
        start, self.sent_at = monotonic(), time()
        try:
            result = self.client.fit(ins, limit, group_id)
        except Exception as error:
            self.late = limit is not None and monotonic() - start >= limit
            self.failure = "no reply in time" if self.late else str(error)
            raise
        self.round_trip_s = monotonic() - start
        self.received_at = self.sent_at + self.round_trip_s
        if result.status.code is not Code.OK:
            self.failure = result.status.message or str(result.status.code)
        return result

    def get_properties(self, ins: Any, timeout: float | None, group_id: int | None) -> Any:
        """Pass on."""
        return self.client.get_properties(ins, timeout, group_id)

    def get_parameters(self, ins: Any, timeout: float | None, group_id: int | None) -> Any:
        """Pass on."""
        return self.client.get_parameters(ins, timeout, group_id)

    def evaluate(self, ins: Any, timeout: float | None, group_id: int | None) -> Any:
        """Pass on."""
        return self.client.evaluate(ins, timeout, group_id)

    def reconnect(self, ins: Any, timeout: float | None, group_id: int | None) -> Any:
        """Pass on."""
        return self.client.reconnect(ins, timeout, group_id)
