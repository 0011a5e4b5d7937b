"""For projects that call `start_client`: a client without a ClientApp and therefore without mods."""

from __future__ import annotations

import logging
from typing import Any

from flwr.app import Context, RecordDict
from flwr.client import Client, NumPyClient
from flwr.common import (
    Code,
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    GetParametersIns,
    GetParametersRes,
    GetPropertiesIns,
    GetPropertiesRes,
    Parameters,
    Status,
)

from flwr_mel import wire
from flwr_mel.clientapp.call import WatchedConfig, recorded
from flwr_mel.clientapp.mod import MelMod, mel_mod

log = logging.getLogger("flwr.mel")


class MelClient(Client):
    """Does for one classic client what `MelMod` does for a ClientApp.

    ``start_client(server_address=..., client=MelClient(client))``

    Parameters
    ----------
    client : Client or NumPyClient
        The project's own.
    mod : MelMod
        Describes this client. There is no node config here, so give it the capability.
    name : str, optional
        A label for logs and records.
    """

    def __init__(self, client: Client | NumPyClient, mod: MelMod = mel_mod, name: str | None = None) -> None:
        self._client = client.to_client()
        self._mod = mod
        node_config: dict[str, Any] = {} if name is None else {"name": name}
        self._context = Context(0, 0, node_config, RecordDict(), {})

    def get_properties(self, ins: GetPropertiesIns) -> GetPropertiesRes:
        """Answer a probe; anything else goes to the project's client."""
        if wire.PROBE not in ins.config:
            return self._client.get_properties(ins)
        cycle = ins.config[wire.PROBE]
        coming = cycle if isinstance(cycle, int) else 1
        words = {wire.PROBE: coming, **self._mod.words(self._context, coming)}
        return GetPropertiesRes(Status(Code.OK, ""), words)

    def get_parameters(self, ins: GetParametersIns) -> GetParametersRes:
        """Call the project's client."""
        return self._client.get_parameters(ins)

    def fit(self, ins: FitIns) -> FitRes:
        """Call the project's client with the epochs of the task, and report."""
        if wire.CYCLE not in ins.config:
            return self._client.fit(ins)
        try:
            call = self._mod.call(ins.config, self._context)
        except ValueError as reason:
            # An exception would end the process of `start_client`.
            return FitRes(Status(Code.FIT_NOT_IMPLEMENTED, str(reason)), Parameters([], ""), 0, {})
        key, changed = call.override(ins.config)
        call.config = WatchedConfig(changed, key)
        with recorded(call):
            result = self._client.fit(FitIns(ins.parameters, call.config))
        try:
            report = self._mod.report(self._context, ins.config, call, result.num_examples)
            result.metrics = {**result.metrics, **report}
        except Exception:
            log.exception("no report is attached to the reply")
        return result

    def evaluate(self, ins: EvaluateIns) -> EvaluateRes:
        """Call the project's client."""
        return self._client.evaluate(ins)
