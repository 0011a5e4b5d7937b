"""What one virtual learner does with its task, whoever brings it the task."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flwr_mel.clientapp import Assignment
from mel_simulation.scenario.config import RunConfig
from mel_simulation.scenario.job import batch_size, dataset_of, local_indices
from mel_simulation.scenario.network import Weights, train


def learn(
    config: RunConfig,
    weights: Weights,
    task: Assignment,
    learner: int,
    learners: int,
    *,
    batch: int | None = None,
    proximal: float = 0.0,
) -> tuple[Weights, int, float]:
    """Do tau_k epochs of SGD over the shard (PL) or over a random part of the own data (FL).

    Parameters
    ----------
    config : RunConfig
        The run.
    weights : list of ndarray
        The global model; left as it is.
    task : Assignment
        Epochs, samples, seed, and in PL the shard.
    learner, learners : int
        Which of how many.
    batch : int, optional
        Of the SGD; by default the configuration's.
    proximal : float
        mu of FedProx.

    Returns
    -------
    weights, samples, loss
        The new model, how many samples made it, and the loss over the last epoch.
    """
    x, y = task.shard if task.shard is not None else _own(config, task, learner, learners)
    new, loss = train(
        weights,
        x,
        y,
        task.epochs,
        batch=batch or batch_size(config),
        lr=config.learning_rate,
        rng=task.rng(),
        proximal=proximal,
    )
    return new, len(y), loss


def _own(
    config: RunConfig, task: Assignment, learner: int, learners: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    data, held = dataset_of(config), local_indices(config, learner, learners)
    mine = held[task.choose(len(held))]
    return data.train_x[mine], data.train_y[mine]
