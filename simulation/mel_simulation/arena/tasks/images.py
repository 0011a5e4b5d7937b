"""MNIST and its like with the paper's perceptron."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from flwr_mel._validate import IntArray
from flwr_mel.costs import Workload
from flwr_mel.paper import PAPER_SAMPLES
from mel_simulation.arena.tasks.task import TEST_SAMPLES, Groups, first_of
from mel_simulation.scenario.data import Dataset, embedded, load
from mel_simulation.scenario.network import LAYERS, Weights, evaluate, initial_weights, train

_LEARNING_RATE = 0.04


@dataclass(frozen=True, slots=True, eq=False)
class Perceptron:
    """The paper's network on images of 28 by 28 bytes.

    Parameters
    ----------
    data : Dataset
        All of it.
    rows : int array
        Which training samples are used.
    batch : int
        Of the SGD.
    """

    data: Dataset
    rows: IntArray
    batch: int

    @property
    def labels(self) -> Groups:
        """Labels of the training samples."""
        return self.data.train_y[self.rows]

    @property
    def notice(self) -> str:
        """What a reader must know about the data."""
        return self.data.notice

    @property
    def workload(self) -> Workload:
        """All samples together cost what the paper's 60,000 do, so that times mean what they mean there."""
        base = Workload.mlp(LAYERS, ship_data=False)
        cost = PAPER_SAMPLES / len(self.rows)
        return replace(base, operations_per_sample=base.operations_per_sample * cost)

    def initial(self, seed: int) -> Weights:
        """Draw a model."""
        return initial_weights(seed, LAYERS)

    def train(
        self, weights: Weights, rows: IntArray, epochs: int, rng: np.random.Generator, proximal: float
    ) -> tuple[Weights, float]:
        """Train on some rows."""
        mine = self.rows[rows]
        x, y = self.data.train_x[mine], self.data.train_y[mine]
        return train(weights, x, y, epochs, batch=self.batch, lr=_LEARNING_RATE, rng=rng, proximal=proximal)

    def accuracy(self, weights: Weights, rows: IntArray | None = None) -> float:
        """Return the accuracy on the test set, or on some training rows."""
        if rows is not None:
            mine = self.rows[rows]
            return evaluate(weights, self.data.train_x[mine], self.data.train_y[mine])[1]
        some = first_of(len(self.data.test_y), TEST_SAMPLES)
        return evaluate(weights, self.data.test_x[some], self.data.test_y[some])[1]


def perceptron(name: str, data_dir: str, samples: int) -> Perceptron:
    """Return the task.

    Parameters
    ----------
    name : str
        ``digits`` (embedded), ``mnist`` or ``fashion-mnist``.
    data_dir : str
        Directory of idx files, or of directories with the names of the data sets.
    samples : int
        Training samples that are used; 0: all.
    """
    if name == "digits":
        data = embedded()
    else:
        where = Path(data_dir) / name if data_dir and (Path(data_dir) / name).is_dir() else Path(data_dir)
        data = load(name, where if data_dir else None, offline_ok=False)
    return Perceptron(data, first_of(len(data.train_y), samples), 16 if data.embedded else 64)
