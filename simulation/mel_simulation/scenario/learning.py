"""The work of one virtual learner, in the Flower app and in sweeps."""

from __future__ import annotations

from flwr_mel.clientapp import Assignment
from mel_simulation.scenario.config import RunConfig
from mel_simulation.scenario.job import batch_size, dataset_of, local_indices
from mel_simulation.scenario.network import Weights, train


def learn(
    config: RunConfig,
    weights: Weights,
    task: Assignment,
    learner: int,
    *,
    batch: int | None = None,
) -> tuple[Weights, int, float]:
    """Do tau_k epochs of SGD over the shard (PL) or over a random part of the own data (FL).

    Parameters
    ----------
    config : RunConfig
        The run; `learners` is K.
    weights : list of ndarray
        The global model; left as it is.
    task : Assignment
        Epochs, samples, seed, and in PL the shard.
    learner : int
        From 0.
    batch : int, optional
        Mini-batch of the SGD; by default the configuration's.

    Returns
    -------
    weights, samples, loss
        The new model, the number of samples it was trained on, and the loss over the last epoch.
    """
    if task.shard is not None:
        x, y = task.shard
    else:
        data, held = dataset_of(config), local_indices(config, learner)
        mine = held[task.choose(len(held))]
        x, y = data.train_x[mine], data.train_y[mine]
    size = batch or batch_size(config)
    new, loss = train(weights, x, y, task.epochs, batch=size, lr=config.learning_rate, rng=task.rng())
    return new, len(y), loss
