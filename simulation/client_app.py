"""The virtual learner: trains for tau_k epochs on d_k samples, through either of Flower's APIs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import Client, NumPyClient
from flwr.clientapp import ClientApp

from flwr_mel.clientapp import Assignment, MelMod
from simulation.config import RunConfig
from simulation.fleet import VirtualFleet
from simulation.network import Weights, train
from simulation.task import dataset_of, local_indices


def capability(context: Context, cycle: int) -> dict[str, Any]:
    """Say what this learner can do in the coming cycle."""
    if "sweep" in context.run_config:
        return {}
    config, learner, learners = _identity(context)
    held = len(local_indices(config, learner, learners)) if config.mode == "fl" else None
    return VirtualFleet(learners, config).words(learner, cycle, held)


def work(
    weights: Weights, task: Assignment, asked: Mapping[str, Any], context: Context
) -> tuple[Weights, int, dict[str, float]]:
    """Do a task: tau_k epochs of SGD over the shard (PL) or over a random part of the own data (FL)."""
    config, learner, learners = _identity(context, asked)
    x, y = _samples(task, config, learner, learners)
    _check_data(asked, config)
    new, loss = train(
        weights,
        x,
        y,
        task.epochs,
        batch=int(asked["batch-size"]),
        lr=config.learning_rate,
        rng=task.rng(),
        proximal=float(asked.get("proximal", 0.0)),
    )
    return new, len(y), {"loss": loss}


def _samples(
    task: Assignment, config: RunConfig, learner: int, learners: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    if task.shard is not None:
        return task.shard[0], task.shard[1]
    data = dataset_of(config)
    held = local_indices(config, learner, learners)
    mine = held[task.choose(len(held))]
    return data.train_x[mine], data.train_y[mine]


def _check_data(asked: Mapping[str, Any], config: RunConfig) -> None:
    """Refuse to learn from other data than the server has: on a cluster each machine loads its own."""
    server = asked.get("train-samples")
    mine = len(dataset_of(config).train_y) if config.mode == "fl" else server
    if server not in (None, mine):
        raise ValueError(
            f"the server has {server} training samples, this machine {mine}: give both the same data-dir"
        )


def _identity(context: Context, asked: Mapping[str, Any] | None = None) -> tuple[RunConfig, int, int]:
    """Return configuration, learner and K; in a sweep each task says for whom the node stands."""
    if asked is not None and "cell" in asked:
        return _cell(asked["cell"]), int(asked["learner"]), int(asked["learners"])
    config = _config(tuple(sorted(context.run_config.items())))
    learners = config.learners or int(context.node_config["num-partitions"])
    return config, int(context.node_config["partition-id"]), learners


@lru_cache(maxsize=8)
def _cell(text: str) -> RunConfig:
    return RunConfig.parse(json.loads(text))


@lru_cache(maxsize=8)
def _config(items: tuple[tuple[str, Any], ...]) -> RunConfig:
    return RunConfig.parse(dict(items))


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
    """Answer the Message API's train messages; the classic API's go on to `client_fn`.

    One app serves both, so that a run chooses by its configuration.
    """
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


app = ClientApp(client_fn=client_fn, mods=[MelMod(capability), train_by_message])
