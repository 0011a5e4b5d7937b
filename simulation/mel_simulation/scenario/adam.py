"""Flower's FedAdam as a function: a step from a model towards an average."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.strategy import FedAdam

from mel_simulation.scenario.config import ADAM
from mel_simulation.scenario.network import Weights

#: From the number of the step, the model and the average to the new model.
Step = Callable[[int, Weights, Weights], Weights]


def adam(eta: float) -> Step:
    """Return the steps of one training.

    Parameters
    ----------
    eta : float
        Length of a step.
    """
    strategies: list[FedAdam] = []

    def step(number: int, model: Weights, average: Weights) -> Weights:
        if not strategies:
            strategies.append(
                FedAdam(
                    initial_parameters=ndarrays_to_parameters(model),
                    fit_metrics_aggregation_fn=lambda _: {},  # Flower warns if there is none
                    eta=eta,
                    **ADAM,
                )
            )
        [strategy] = strategies
        strategy.current_weights = model
        result: Any = (None, FitRes(Status(Code.OK, ""), ndarrays_to_parameters(average), 1, {}))
        new, _ = strategy.aggregate_fit(number, [result], [])
        assert new is not None
        return [w.astype(was.dtype) for w, was in zip(parameters_to_ndarrays(new), model, strict=True)]

    return step
