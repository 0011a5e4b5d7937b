"""For projects that call `start_client`: a client without a ClientApp, hence without mods."""

from __future__ import annotations

import logging
from time import perf_counter
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
    Status,
)

from flwr_mel import wire
from flwr_mel.clientapp.drawn import counting
from flwr_mel.clientapp.mod import MelMod, mel_mod
from flwr_mel.clientapp.watch import WatchedDict, current

log = logging.getLogger("flwr.mel")


class MelClient(Client):
    """Does for one classic client what `MelMod` does for a ClientApp.

    ``start_client(server_address=..., client=MelClient(client))``

    Parameters
    ----------
    client : Client or NumPyClient
        The project's own.
    mod : MelMod
        Says what this learner can do; what it reads from the node config must be given to it here.
    name : str, optional
        How the learner is called in every run.
    """

    def __init__(self, client: Client | NumPyClient, mod: MelMod = mel_mod, name: str | None = None) -> None:
        self._client = client.to_client()
        self._mod = mod
        node_config: dict[str, Any] = {} if name is None else {"name": name}
        self._context = Context(0, 0, node_config, RecordDict(), {})

    def get_properties(self, ins: GetPropertiesIns) -> GetPropertiesRes:
        """Answer the probe; anything else is for the project's client."""
        if wire.PROBE not in ins.config:
            return self._client.get_properties(ins)
        cycle = ins.config[wire.PROBE]
        coming = cycle if isinstance(cycle, int) else 1
        start = perf_counter()
        words = {wire.PROBE: coming, **self._mod.words(self._context, coming)}
        words[wire.ANSWER_SECONDS] = perf_counter() - start
        return GetPropertiesRes(Status(Code.OK, ""), words)

    def get_parameters(self, ins: GetParametersIns) -> GetParametersRes:
        """Leave it to the project's client."""
        return self._client.get_parameters(ins)

    def fit(self, ins: FitIns) -> FitRes:
        """Let the project's client train with the epochs of the task, and report."""
        if wire.CYCLE not in ins.config:
            return self._client.fit(ins)
        config = dict(ins.config)
        watch, problem = self._mod.begin(config)
        token = current.set(watch)
        start = perf_counter()
        try:
            with counting() as watch.loaders:
                result = self._client.fit(FitIns(ins.parameters, WatchedDict.over(config, watch)))
        finally:
            current.reset(token)
        seconds = perf_counter() - start
        try:
            report = self._mod.report(self._context, config, watch, seconds, result.num_examples, problem)
            result.metrics = {**result.metrics, **report}
        except Exception:
            log.exception("no report is attached to the reply")
        return result

    def evaluate(self, ins: EvaluateIns) -> EvaluateRes:
        """Leave it to the project's client."""
        return self._client.evaluate(ins)
