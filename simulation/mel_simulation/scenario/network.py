"""The paper's network, a 784-300-124-60-10 ReLU perceptron, with a hand-written training loop.

For a network of this size, autograd and an optimizer take longer than the matrix products. The loop here does
the same arithmetic (a test compares) with preallocated buffers on one thread:

* Activations are stored as ``(features, batch)``. The weights then keep the order of ``torch.nn.Linear``,
  ``(out, in)``, and the softmax runs over the first axis, which torch vectorises.
* The bias is the last column of the weight matrix and meets a row of ones. One product gives ``W h + b``, and
  one ``addmm_`` adds the gradient of both to the weights without ever storing it.
* Pixels that are zero in the whole shard are left out: they add nothing to the sums and their weights have
  gradient zero. In a shard of 3,000 digits that is 140 of the 784.

The result is a function of the arguments alone, to the last bit, however many processes run; another
processor model or another build of torch may round differently.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from flwr_mel.paper import PAPER_LAYERS

LAYERS = PAPER_LAYERS
BATCH = 64
LEARNING_RATE = 0.04

Weights: TypeAlias = list[npt.NDArray[np.float32]]
Bytes: TypeAlias = npt.NDArray[np.uint8]

_EVALUATE_CHUNK = 2048  # 6 MB of floats at a time
_ALIGN = 16  # floats in a 64-byte line

_relu_backward = torch.ops.aten.threshold_backward.grad_input


@contextmanager
def single_thread() -> Iterator[None]:
    """Run torch on one thread inside the block and restore the number of threads afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def initial_weights(seed: int, layers: Sequence[int] = LAYERS) -> Weights:
    """Draw weights by He's rule: normal with variance 2/fan-in, biases zero.

    Parameters
    ----------
    seed : int
        Seed of the draw, at least 0.
    layers : sequence of int
        Layer widths from input to output.

    Returns
    -------
    list of ndarray
        ``[W1, b1, W2, b2, ...]`` in float32, ``W`` of shape (out, in) as in ``torch.nn.Linear``.
    """
    generator = torch.Generator().manual_seed(seed)
    weights: Weights = []
    for fan_in, fan_out in pairwise(layers):
        draw = torch.randn((fan_out, fan_in), generator=generator) * (2 / fan_in) ** 0.5
        weights += [draw.numpy(), np.zeros(fan_out, dtype=np.float32)]
    return weights


def train(
    weights: Weights,
    x: Bytes,
    y: Bytes,
    epochs: int,
    *,
    batch: int = BATCH,
    lr: float = LEARNING_RATE,
    rng: np.random.Generator,
    proximal: float = 0.0,
) -> tuple[Weights, float]:
    """Train by plain mini-batch SGD on the cross-entropy.

    Every epoch goes once through all samples in a fresh order. The step of the last mini-batch is scaled by
    its share n/batch: at full rate a tail of one or two samples throws the model off by several points.

    Parameters
    ----------
    weights : list of ndarray
        ``[W1, b1, W2, b2, ...]``; left as they are.
    x : ndarray of uint8, shape (n, features)
        Pixels; the network sees x/255.
    y : ndarray of uint8, shape (n,)
        Labels.
    epochs : int
        Passes over the samples, at least 1.
    batch : int
        Samples per step.
    lr : float
        Learning rate.
    rng : numpy.random.Generator
        Source of the sample order.
    proximal : float
        mu of FedProx: every step is followed by the proximal map of mu/2 times the squared distance from the
        weights at the start.

    Returns
    -------
    weights : list of ndarray
        The trained weights, new arrays.
    loss : float
        Mean cross-entropy over the last epoch, each sample taken just before the step it is part of.
    """
    # Divided by the full batch also where the last one is short: this *is* the scaling by n/batch.
    step = -lr / batch
    n = len(x)
    with single_thread(), torch.inference_mode():
        active = np.flatnonzero(x.max(axis=0))
        pixels = _pixels(x, active)
        layers = _load(weights, active, pixels.shape[1])
        anchors = [w.clone() for w in layers] if proximal else []
        pull = lr * proximal / (1 + lr * proximal)
        labels = torch.from_numpy(np.eye(len(weights[-1]), dtype=np.float32)[:, y])
        logits = torch.empty_like(labels)
        batches = {size: _Batch.of(layers, size) for size in {min(batch, n), n % batch} - {0}}
        for _ in range(epochs):
            order = torch.from_numpy(rng.permutation(n))
            target = labels.index_select(1, order)
            parts = zip(*(torch.split(t, batch, -1) for t in (order, target, logits)), strict=True)
            for rows, wanted, seen in parts:
                memory = batches[len(rows)]
                torch.index_select(pixels, 0, rows, out=memory.pixels)
                seen.copy_(_step(memory, wanted, step))
                for w, anchor in zip(layers, anchors, strict=False):
                    w.lerp_(anchor, pull)
        loss = (torch.logsumexp(logits, 0) - (logits * target).sum(0)).double().mean().item()
        return _unload(layers, weights, active), loss


def evaluate(weights: Weights, x: Bytes, y: Bytes) -> tuple[float, float]:
    """Measure a model on samples.

    Parameters
    ----------
    weights : list of ndarray
        ``[W1, b1, W2, b2, ...]``.
    x : ndarray of uint8, shape (n, features)
        Pixels.
    y : ndarray of uint8, shape (n,)
        Labels.

    Returns
    -------
    loss : float
        Mean cross-entropy.
    accuracy : float
        Share of samples whose largest output is the label's, from 0 to 1.
    """
    loss, right = 0.0, 0
    with single_thread(), torch.inference_mode():
        tensors = [torch.tensor(w) for w in weights]
        for start in range(0, len(x), _EVALUATE_CHUNK):
            part = slice(start, start + _EVALUATE_CHUNK)
            h = torch.from_numpy(x[part].astype(np.float32)).div_(255)
            labels = torch.from_numpy(y[part].astype(np.int64))
            for i in range(0, len(tensors), 2):
                h = h.relu_() if i else h
                h = torch.addmm(tensors[i + 1], h, tensors[i].t())
            loss += torch.nn.functional.cross_entropy(h, labels, reduction="none").double().sum().item()
            right += int((h.argmax(1) == labels).sum().item())
    return loss / len(x), right / len(x)


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer's weights and its memory for a mini-batch; every view is made once."""

    weight: torch.Tensor  # (out, in + 1), the bias last
    body_t: torch.Tensor  # the same without the bias, transposed
    input: torch.Tensor  # (in + 1, size), ones last
    input_t: torch.Tensor
    output: torch.Tensor  # (out, size), the next layer's input without its ones
    delta: torch.Tensor  # (out, size), derivative of the summed loss by the output before the ReLU


@dataclass(frozen=True, slots=True)
class _Batch:
    """Memory of one mini-batch."""

    pixels: torch.Tensor  # (size, pixels) in bytes, as gathered
    layers: list[_Layer]

    @classmethod
    def of(cls, weights: Sequence[torch.Tensor], size: int) -> _Batch:
        width = weights[0].shape[1]
        h = torch.empty((size, width)).t()
        layers = []
        for w in weights:
            following = torch.ones((len(w) + 1, size))
            delta = torch.empty((len(w), size))
            layers.append(_Layer(w, w[:, :-1].t(), h, h.t(), following[:-1], delta))
            h = following
        return cls(torch.empty((size, width), dtype=torch.uint8), layers)


def _step(batch: _Batch, target: torch.Tensor, step: float) -> torch.Tensor:
    """Do one forward pass, one backward pass and the update ``W += step * delta h'``; return the logits."""
    *hidden, top = batch.layers
    batch.layers[0].input_t.copy_(batch.pixels).mul_(1 / 255)
    for layer in hidden:
        torch.mm(layer.weight, layer.input, out=layer.output).relu_()
    torch.mm(top.weight, top.input, out=top.output)
    torch.softmax(top.output, 0, out=top.delta).sub_(target)
    above = top
    for layer in reversed(hidden):
        # The delta below needs the weights before their update.
        torch.mm(above.body_t, above.delta, out=layer.delta)
        _relu_backward(layer.delta, layer.output, 0, grad_input=layer.delta)
        above.weight.addmm_(above.delta, above.input_t, alpha=step)
        above = layer
    above.weight.addmm_(above.delta, above.input_t, alpha=step)
    return top.output


def _pixels(x: Bytes, active: npt.NDArray[np.intp]) -> torch.Tensor:
    """Return the active pixels, a column of 255 (the ones of the bias), and zeros up to a full line.

    They stay bytes, and each mini-batch is turned into floats on its own: a float copy of the shard costs
    more in fresh memory than it saves.
    """
    used = len(active)
    pixels = np.zeros((len(x), -(-(used + 1) // _ALIGN) * _ALIGN), dtype=np.uint8)
    pixels[:, :used] = np.take(x, active, axis=1)
    pixels[:, used] = 255
    return torch.from_numpy(pixels)


def _load(weights: Weights, active: npt.NDArray[np.intp], width: int) -> list[torch.Tensor]:
    """Join each W and b into one matrix; the first keeps the active pixels only."""
    first = torch.zeros((len(weights[1]), width))
    first[:, : len(active)] = torch.from_numpy(weights[0][:, active])
    first[:, len(active)] = torch.tensor(weights[1])
    rest = [
        torch.from_numpy(np.column_stack((w, b))) for w, b in zip(weights[2::2], weights[3::2], strict=True)
    ]
    # Torch's own memory is aligned to 64 bytes, numpy's is not: the products round by alignment.
    return [first, *(w.clone() for w in rest)]


def _unload(layers: list[torch.Tensor], weights: Weights, active: npt.NDArray[np.intp]) -> Weights:
    """Undo `_load`; weights of pixels that were left out come from `weights`."""
    first = weights[0].copy()
    first[:, active] = layers[0][:, : len(active)].numpy()
    result: Weights = [first, layers[0][:, len(active)].numpy().copy()]
    for w in layers[1:]:
        result += [w[:, :-1].numpy().copy(), w[:, -1].numpy().copy()]
    return result
