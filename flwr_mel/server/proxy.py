"""Client proxies that remember why their client failed, and ask instead of training.

The classic API reports failures without saying whose they are; these stand between the server and the real
proxy and keep that knowledge.
"""

from __future__ import annotations

from time import monotonic
from typing import Any

from flwr.common import Code, FitIns, FitRes, GetPropertiesIns, Parameters, Status
from flwr.server.client_proxy import ClientProxy

from flwr_mel import wire


class _Delegating(ClientProxy):
    """Everything but `fit` goes to the real proxy unchanged."""

    def __init__(self, client: ClientProxy) -> None:
        super().__init__(client.cid)
        self.client = client
        self.properties = client.properties

    def get_properties(self, ins: Any, timeout: float | None, group_id: int | None) -> Any:
        return self.client.get_properties(ins, timeout, group_id)

    def get_parameters(self, ins: Any, timeout: float | None, group_id: int | None) -> Any:
        return self.client.get_parameters(ins, timeout, group_id)

    def evaluate(self, ins: Any, timeout: float | None, group_id: int | None) -> Any:
        return self.client.evaluate(ins, timeout, group_id)

    def reconnect(self, ins: Any, timeout: float | None, group_id: int | None) -> Any:
        return self.client.reconnect(ins, timeout, group_id)


class TaskProxy(_Delegating):
    """Trains under the cycle's deadline and remembers how it failed."""

    def __init__(self, client: ClientProxy, deadline_s: float | None) -> None:
        super().__init__(client)
        self.deadline_s = deadline_s
        self.failure = ""
        self.late = False

    def fit(self, ins: FitIns, timeout: float | None, group_id: int | None) -> FitRes:
        """Train, within the shorter of the server's timeout and our deadline."""
        limits = [t for t in (timeout, self.deadline_s) if t is not None]
        limit = min(limits) if limits else None
        start = monotonic()
        try:
            result = self.client.fit(ins, limit, group_id)
        except Exception as error:
            self.late = limit is not None and monotonic() - start >= limit
            self.failure = "no reply in time" if self.late else str(error)
            raise
        if result.status.code is not Code.OK:
            self.failure = result.status.message or str(result.status.code)
        return result


class AskingProxy(_Delegating):
    """Asks what the client can do, in the place of a training; needs no phase of its own."""

    def __init__(self, client: ClientProxy, cycle: int, timeout_s: float) -> None:
        super().__init__(client)
        self.cycle = cycle
        self.timeout_s = timeout_s

    def fit(self, ins: FitIns, timeout: float | None, group_id: int | None) -> FitRes:  # noqa: ARG002
        """Ask; the answer rides in the metrics of an empty result, which the strategy takes out again."""
        try:
            ask = GetPropertiesIns({wire.PROBE: self.cycle})
            properties = self.client.get_properties(ask, self.timeout_s, group_id).properties
        except Exception:  # silence is no failure here: the client had no task
            properties = {}
        return FitRes(Status(Code.OK, ""), Parameters([], "numpy.ndarray"), 0, dict(properties))
