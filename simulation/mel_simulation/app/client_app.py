"""The virtual learner: trains for tau_k epochs on d_k samples, through either of Flower's APIs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import Client, NumPyClient
from flwr.clientapp import ClientApp

from flwr_mel.clientapp import Assignment, MelMod
from mel_simulation.scenario.config import RunConfig
from mel_simulation.scenario.fleet import VirtualFleet
from mel_simulation.scenario.job import dataset_of, local_indices
from mel_simulation.scenario.learning import learn
from mel_simulation.scenario.network import Weights


def capability(context: Context, cycle: int) -> dict[str, Any]:
    """Say what this learner can do in the coming cycle."""
    config, learner, learners = _identity(context)
    held = len(local_indices(config, learner, learners)) if config.mode == "fl" else None
    return VirtualFleet(learners, config).words(learner, cycle, held)


def work(
    weights: Weights, task: Assignment, asked: Mapping[str, Any], context: Context
) -> tuple[Weights, int, dict[str, float]]:
    """Do a task."""
    config, learner, learners = _identity(context)
    _check_data(asked, config)
    new, samples, loss = learn(config, weights, task, learner, learners, batch=int(asked["batch-size"]))
    return new, samples, {"loss": loss}


def _check_data(asked: Mapping[str, Any], config: RunConfig) -> None:
    """Refuse to learn from other data than the server has: on a cluster each machine loads its own."""
    server = asked.get("train-samples")
    mine = len(dataset_of(config).train_y) if config.mode == "fl" else server
    if server not in (None, mine):
        raise ValueError(
            f"the server has {server} training samples, this machine {mine}: give both the same data-dir"
        )


def _identity(context: Context) -> tuple[RunConfig, int, int]:
    """Return configuration, learner and K."""
    config = _config(tuple(sorted(context.run_config.items())))
    learners = config.learners or int(context.node_config["num-partitions"])
    return config, int(context.node_config["partition-id"]), learners


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


def tell(
    values: dict[str, Any], message: Message, context: Context, call_next: Callable[..., Message]
) -> Message:
    """Bring the configuration, which a run without a SuperLink does not; the node's own context stays."""
    ids, own = (context.run_id, context.node_id), (context.node_config, context.state)
    return call_next(message, Context(*ids, *own, values))


def client_app(config: RunConfig | None = None) -> ClientApp:
    """Make the app.

    Parameters
    ----------
    config : RunConfig, optional
        Of the run; by default what Flower says.
    """
    told = [] if config is None else [partial(tell, config.as_dict())]
    return ClientApp(client_fn=client_fn, mods=[*told, MelMod(capability), train_by_message])


app = client_app()
