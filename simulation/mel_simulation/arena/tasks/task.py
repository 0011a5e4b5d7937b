"""A task: samples with labels, and a model that is trained on some of them and judged on others.

A task has `labels` (by which learners' data differ), `workload`, `batch`, `notice` and the methods `initial`,
`train` and `accuracy`. `TorchTask` has them for any small torch module.
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
#: Inputs and wanted outputs, ready for a module and for the cross-entropy of its outputs.
Samples: TypeAlias = tuple[torch.Tensor, torch.Tensor]
#: Test samples by which models are judged: they are looked at several times per round.
TEST_SAMPLES = 2000


@dataclass(frozen=True, slots=True, eq=False)
class TorchTask:
    """A task for a small torch module without buffers: plain SGD by autograd on one thread.

    Parameters
    ----------
    build : callable
        Returns the module; its weights are drawn by torch's generator.
    training, test : tuple of two tensors
        Samples.
    labels : int array
        By which learners' data differ.
    batch, lr : int, float
        Of the SGD.
    """

    build: Callable[[], torch.nn.Module]
    training: Samples
    test: Samples
    labels: Groups
    batch: int
    lr: float
    #: What a reader must know about the data.
    notice = ""

    @property
    def workload(self) -> Workload:
        """What a sample and the model cost."""
        return Workload.from_torch(self.build(), self.training[0][:1], ship_data=False)

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
        with single_thread():
            for _ in range(epochs):
                loss_sum = 0.0
                order = torch.from_numpy(rows[rng.permutation(len(rows))])
                for some in torch.split(order, self.batch):
                    x, y = (t.index_select(0, some) for t in self.training)
                    loss = torch.nn.functional.cross_entropy(model(x).flatten(0, -2), y.flatten())
                    slopes = torch.autograd.grad(loss, parameters)
                    step = self.lr * len(y) / self.batch
                    pull = step * proximal / (1 + step * proximal)
                    with torch.no_grad():
                        for p, slope, anchor in zip(parameters, slopes, anchors, strict=True):
                            p.add_(slope, alpha=-step)
                            if proximal:
                                p.lerp_(anchor, pull)
                    loss_sum += loss.item() * len(y)
        return _weights(model), loss_sum / len(rows)

    def accuracy(self, weights: Weights, rows: IntArray | None = None) -> float:
        """Return the accuracy on the test set, or on some training rows."""
        samples = self.test if rows is None else [t[torch.from_numpy(rows)] for t in self.training]
        model, right = self._load(weights), 0
        with single_thread(), torch.inference_mode():
            for x, wanted in zip(*(torch.split(t, 500) for t in samples), strict=True):
                right += int((model(x).argmax(-1) == wanted).sum().item())
        return right / samples[1].numel()

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
