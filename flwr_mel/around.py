"""A strategy around another one, which does everything, in each of Flower's APIs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common import EvaluateIns, FitIns, Parameters, Scalar
from flwr.server import strategy as classic
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.serverapp import Grid
from flwr.serverapp import strategy as message


class Around:
    """What both APIs share.

    Parameters
    ----------
    strategy : Strategy
        The wrapped one.
    """

    def __init__(self, strategy: Any) -> None:
        self.strategy = strategy

    def __getattr__(self, name: str) -> Any:
        """Return what only the wrapped strategy has."""
        if name.startswith("__") or "strategy" not in self.__dict__:  # or not there yet, while being copied
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.strategy, name)


class MessageAround(Around, message.Strategy):
    """Message API: all but `summary`."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Pass on."""
        return self.strategy.configure_train(server_round, arrays, config, grid)  # type: ignore[no-any-return]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Pass on."""
        return self.strategy.aggregate_train(server_round, replies)  # type: ignore[no-any-return]

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Pass on."""
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)  # type: ignore[no-any-return]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Pass on."""
        return self.strategy.aggregate_evaluate(server_round, replies)  # type: ignore[no-any-return]


class ClassicAround(Around, classic.Strategy):
    """Classic API."""

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters | None:
        """Pass on."""
        return self.strategy.initialize_parameters(client_manager)  # type: ignore[no-any-return]

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """Pass on."""
        return self.strategy.configure_fit(server_round, parameters, client_manager)  # type: ignore[no-any-return]

    def aggregate_fit(
        self, server_round: int, results: Any, failures: Any
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Pass on."""
        return self.strategy.aggregate_fit(server_round, results, failures)  # type: ignore[no-any-return]

    def evaluate(self, server_round: int, parameters: Parameters) -> tuple[float, dict[str, Scalar]] | None:
        """Pass on."""
        return self.strategy.evaluate(server_round, parameters)  # type: ignore[no-any-return]

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        """Pass on."""
        return self.strategy.configure_evaluate(server_round, parameters, client_manager)  # type: ignore[no-any-return]

    def aggregate_evaluate(
        self, server_round: int, results: Any, failures: Any
    ) -> tuple[float | None, dict[str, Scalar]]:
        """Pass on."""
        return self.strategy.aggregate_evaluate(server_round, results, failures)  # type: ignore[no-any-return]
