"""The virtual learner: trains for tau_k epochs on d_k samples, through either of Flower's APIs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import Client, NumPyClient
from flwr.clientapp import ClientApp

from flwr_mel.clientapp import Assignment, MelMod
from mel_simulation.scenario import job
from mel_simulation.scenario.config import RunConfig
from mel_simulation.scenario.network import Weights


def capability(context: Context, cycle: int) -> dict[str, Any]:
    """Declare what this learner can do in the coming cycle."""
    config, learner = _identity(context)
    return job.capability(config, learner, cycle)


def work(
    weights: Weights, task: Assignment, asked: Mapping[str, Any], context: Context
) -> tuple[Weights, int, dict[str, float]]:
    """Do a task; refuse other data than the server has, because on a cluster each machine loads its own."""
    config, learner = _identity(context)
    there = asked["train-samples"]
    if config.mode == "fl" and (here := len(job.dataset_of(config).train_y)) != there:
        raise ValueError(
            f"the server has {there} training samples, this machine {here}: give both the same data-dir"
        )
    weights = [np.asarray(w, dtype=np.float32) for w in weights]  # Flower's FedAdam makes float64 of them
    new, samples, loss = job.learn(config, weights, task, learner, int(asked["batch-size"]))
    return new, samples, {"loss": loss}


def _identity(context: Context) -> tuple[RunConfig, int]:
    """Return the configuration and the learner's number."""
    return RunConfig.parse(context.run_config), int(context.node_config["partition-id"])


class Learner(NumPyClient):
    """The learner in the classic API."""

    def __init__(self, context: Context) -> None:
        self.context_ = context

    def fit(self, parameters: Weights, config: dict[str, Any]) -> tuple[Weights, int, dict[str, Any]]:
        """Train as the server asks."""
        weights, samples, metrics = work(parameters, Assignment.from_config(config), config, self.context_)
        return weights, samples, dict(metrics)


def client_fn(context: Context) -> Client:
    """Make the learner of the classic API."""
    return Learner(context).to_client()


def train_by_message(message: Message, context: Context, call_next: Callable[..., Message]) -> Message:
    """Answer train messages of the Message API; those of the classic API go on to `client_fn`."""
    if not (message.has_content() and "arrays" in message.content.array_records):
        return call_next(message, context)
    weights = message.content.array_records["arrays"].to_numpy_ndarrays()
    asked = message.content.config_records["config"]
    new, samples, metrics = work(weights, Assignment.from_message(message), asked, context)
    content = {
        "arrays": ArrayRecord(new),
        "metrics": MetricRecord({"num-examples": samples, **metrics}),
    }
    return Message(RecordDict(content), reply_to=message)  # type: ignore[arg-type]


def configured(
    values: dict[str, Any], message: Message, context: Context, call_next: Callable[..., Message]
) -> Message:
    """Add the run configuration to the context, which `run_simulation` leaves empty."""
    ids, own = (context.run_id, context.node_id), (context.node_config, context.state)
    return call_next(message, Context(*ids, *own, values))


def client_app(config: RunConfig | None = None) -> ClientApp:
    """Make the app; without a configuration it takes Flower's run config."""
    first = [] if config is None else [partial(configured, config.as_dict())]
    return ClientApp(client_fn=client_fn, mods=[*first, MelMod(capability), train_by_message])


app = client_app()
