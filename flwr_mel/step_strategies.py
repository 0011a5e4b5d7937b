"""`SlopeStep` for both of Flower's APIs: a server step that finds its own length, around any average."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common import FitIns, FitRes, Parameters, Scalar, ndarrays_to_parameters
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.serverapp import Grid

from flwr_mel._npy import read_npy
from flwr_mel._validate import Phrase, complain
from flwr_mel.around import Around, ClassicAround, MessageAround
from flwr_mel.cycle.step import Clients, Facts, Slope, step, undo
from flwr_mel.cycle.updates import Arrays
from flwr_mel.wrapped import averages, weight_key

log = logging.getLogger("flwr.mel")


class SlopeStep(Around):
    """Steps the model by what the wrapped strategy's average says, with Adam and a length that finds itself.

    There is no learning rate to choose: see `flwr_mel.cycle.step`. Arrays with fewer than two dimensions,
    counters and BatchNorm's statistics are averaged as the wrapped strategy does.

    Parameters
    ----------
    strategy : Strategy
        A strategy of the same API that averages: FedAvg, FedProx, FedMedian, Krum, a DP wrapper around one of
        these, or one of your own. Not one with a step of its own, such as FedAdam.
    """

    def __init__(self, strategy: Any) -> None:
        if not averages(strategy):
            got = Phrase(f"a {type(strategy).__name__}")
            raise complain("strategy", "a strategy that averages", got, "Wrap FedAvg, FedMedian or the like.")
        super().__init__(strategy)
        #: Kept in checkpoints.
        self.state = Slope()
        #: What the last round's step was; None before the first.
        self.facts: Facts | None = None
        self._model: Arrays = {}
        self._steps: float | None = None

    def summary(self) -> None:
        """Log this strategy, then the settings of the wrapped one."""
        log.info("\t├──> SlopeStep around %s: no step to choose", type(self.strategy).__name__)
        if callable(inner := getattr(self.strategy, "summary", None)):
            inner()

    def describe(self) -> str:
        """Return the words for the round's line in the log; "" before the first step."""
        return "" if self.facts is None else self.facts.describe()

    def observe(self, steps: float) -> None:
        """Receive, before an aggregation, how many local steps (samples) the coming average stands for.

        `MelStrategy` calls it with FedNova's effective steps, and logs `describe()` in its own line. Without
        it, each client counts as if it did one epoch of its examples.

        Parameters
        ----------
        steps : float
            tau_eff.
        """
        self._steps = steps

    def _stepped(self, average: Arrays, clients: Clients) -> dict[str, Any]:
        """Return the new model."""
        steps, total = self._steps, sum(weight for weight, _ in clients.values())
        if steps is None:
            steps = sum(weight * weight for weight, _ in clients.values()) / total if total > 0 else 1.0
        self.state, model, self.facts = step(self.state, self._model, average, steps, clients)
        if self._steps is None:
            log.info("\t└──> %s", self.facts.describe())
        self._model, self._steps = {}, None
        return model

    def _undone(self) -> dict[str, Any]:
        """Return the model without the last step."""
        self.state, model, self.facts = undo(self.state, self._model)
        self._model, self._steps = {}, None
        return model


class MessageSlopeStep(SlopeStep, MessageAround):  # noqa: D101 - the docstring is the base class's
    __doc__ = SlopeStep.__doc__

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Keep the model; leave the rest to the wrapped strategy."""
        self._model = _views(arrays)
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Let the wrapped strategy average, then step."""
        replies = list(replies)
        average, metrics = super().aggregate_train(server_round, replies)
        if average is None:
            return None, metrics
        clients: dict[str, tuple[float, Arrays]] = {}
        key = weight_key(self)
        for reply in (x for x in replies if x.has_content()):
            weights: list[Any] = [x[key] for x in reply.content.metric_records.values() if key in x]
            for weight, record in zip(weights, reply.content.array_records.values(), strict=False):
                clients[str(reply.metadata.src_node_id)] = float(weight), _views(record)
        return _record(self._stepped(_views(average), clients)), metrics

    def undo(self) -> ArrayRecord:
        """Return the model without the last step: no reply of this round has finite values."""
        return _record(self._undone())


class ClassicSlopeStep(SlopeStep, ClassicAround):  # noqa: D101 - the docstring is the base class's
    __doc__ = SlopeStep.__doc__

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """Keep the model; leave the rest to the wrapped strategy."""
        self._model = _named(parameters)
        return super().configure_fit(server_round, parameters, client_manager)

    def aggregate_fit(
        self, server_round: int, results: list[tuple[ClientProxy, FitRes]], failures: Any
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Let the wrapped strategy average, then step."""
        average, metrics = super().aggregate_fit(server_round, results, failures)
        if average is None:
            return None, metrics
        clients = {client.cid: (float(x.num_examples), _named(x.parameters)) for client, x in results}
        return _parameters(self._stepped(_named(average), clients)), metrics

    def undo(self) -> Parameters:
        """Return the model without the last step: no result of this round has finite values."""
        return _parameters(self._undone())


def _views(record: ArrayRecord) -> dict[str, Any]:
    """Return views of the arrays."""
    return {name: read_npy(array.data) for name, array in record.items()}


def _record(model: Arrays) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(x)) for name, x in model.items()})


def _named(parameters: Parameters) -> dict[str, Any]:
    """Return views of the arrays, by their position."""
    return {str(i): read_npy(data) for i, data in enumerate(parameters.tensors)}


def _parameters(model: Arrays) -> Parameters:
    return ndarrays_to_parameters([np.asarray(x) for x in model.values()])
