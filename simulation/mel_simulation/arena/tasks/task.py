"""A task: samples with labels, and a model that is trained on some of them and judged on others.

A task has `labels` (by which learners' data differ), `workload`, `batch`, `notice` and the methods `initial`,
`train`, `evaluate` and `accuracy_on`. `TorchTask` has them for any small torch module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from flwr_mel._validate import IntArray
from flwr_mel.costs import Workload
from mel_simulation.scenario.network import Weights, single_thread

Groups: TypeAlias = npt.NDArray[np.integer]
#: Test samples by which models are judged: they are looked at several times per round.
TEST_SAMPLES = 2000


@dataclass(frozen=True, slots=True, eq=False)
class TorchTask:
    """A task for a small torch module without buffers: plain SGD by autograd on one thread.

    Parameters
    ----------
    build : callable
        Returns the module; its weights are drawn by torch's generator.
    train_x, train_y, test_x, test_y : tensors
        Ready for the module and for the cross-entropy of its outputs.
    labels : int array
        By which learners' data differ.
    workload : Workload
        What a sample and the model cost.
    batch, lr : int, float
        Of the SGD.
    notice : str
        What a reader must know about the data.
    """

    build: Callable[[], torch.nn.Module]
    train_x: torch.Tensor
    train_y: torch.Tensor
    test_x: torch.Tensor
    test_y: torch.Tensor
    labels: Groups
    workload: Workload
    batch: int
    lr: float
    notice: str = ""

    def initial(self, seed: int) -> Weights:
        """Draw a model."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return _weights(self.build())

    def train(
        self, weights: Weights, rows: IntArray, epochs: int, rng: np.random.Generator, proximal: float
    ) -> tuple[Weights, float]:
        """Train by SGD on some rows; return the new model and the mean loss over the last epoch.

        The step of a short last batch is scaled by its share.
        """
        model = self._load(weights)
        parameters: list[torch.Tensor] = list(model.parameters())
        anchors = [p.detach().clone() for p in parameters]
        loss_sum = 0.0
        with single_thread():
            for epoch in range(epochs):
                order = torch.from_numpy(rows[rng.permutation(len(rows))])
                parts = (
                    torch.split(t.index_select(0, order), self.batch) for t in (self.train_x, self.train_y)
                )
                for x, y in zip(*parts, strict=True):
                    loss = self._loss(model(x), y)
                    slopes = torch.autograd.grad(loss, parameters)
                    step = self.lr * len(y) / self.batch
                    with torch.no_grad():  # all parameters at once: they are small
                        torch._foreach_add_(parameters, slopes, alpha=-step)
                        if proximal:
                            torch._foreach_lerp_(parameters, anchors, step * proximal / (1 + step * proximal))
                    if epoch == epochs - 1:
                        loss_sum += loss.item() * len(y)
        return _weights(model), loss_sum / len(rows)

    def evaluate(self, weights: Weights) -> float:
        """Return the accuracy on the test set."""
        return self._accuracy(weights, self.test_x, self.test_y)

    def accuracy_on(self, weights: Weights, rows: IntArray) -> float:
        """Return the accuracy on some training rows."""
        mine = torch.from_numpy(rows)
        return self._accuracy(weights, self.train_x[mine], self.train_y[mine])

    def _accuracy(self, weights: Weights, x: torch.Tensor, y: torch.Tensor) -> float:
        model, right = self._load(weights), 0
        with single_thread(), torch.inference_mode():
            for some, wanted in zip(torch.split(x, 500), torch.split(y, 500), strict=True):
                right += int((model(some).argmax(-1) == wanted).sum().item())
        return right / y.numel()

    def _loss(self, out: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(out.flatten(0, -2), wanted.flatten())

    def _load(self, weights: Weights) -> torch.nn.Module:
        model = self.build()
        with torch.no_grad():
            for p, w in zip(model.parameters(), weights, strict=True):
                p.copy_(torch.from_numpy(w))
        return model


def _weights(model: torch.nn.Module) -> Weights:
    return [p.detach().numpy().copy() for p in model.parameters()]


def first_of(total: int, samples: int) -> IntArray:
    """Return which samples are used: all, or the first ones of an order that is always the same.

    Parameters
    ----------
    total, samples : int
        How many there are, how many are wanted (0: all).
    """
    if not samples or samples >= total:
        return np.arange(total)
    return np.sort(np.random.default_rng(0).permutation(total)[:samples])
