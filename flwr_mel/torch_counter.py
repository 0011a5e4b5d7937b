"""Counts the operations of a torch model's training with torch's own counter. This file loads torch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from flwr_mel._validate import complain


def tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors in a tensor, a sequence, a mapping, or what models return of these.

    Parameters
    ----------
    value : object
        Input or output of a model.
    """
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [tensor for part in value for tensor in tensors(part)]
    return []


def operations(model: torch.nn.Module, batch: Any) -> float:
    """Count the operations of one forward and backward pass, for each sample of the batch.

    The model is left as it was: gradients, buffers, modes.

    Parameters
    ----------
    model : torch.nn.Module
        To be trained.
    batch : tensor, tuple or mapping of tensors
        What the model is called with.
    """
    samples = batch_size(batch)
    counter = FlopCounterMode(display=False)
    with _plain_kernels(), _evaluating(model), torch.enable_grad(), counter:
        if isinstance(batch, Mapping):
            output = model(**batch)
        else:
            output = model(*batch) if isinstance(batch, tuple) else model(batch)
        wanted = [p for p in model.parameters() if p.requires_grad]
        results = [t for t in tensors(output) if t.requires_grad]
        if not wanted or not results:
            raise complain("model", "a module with parameters to train that its output depends on", model)
        torch.autograd.grad(sum(t.sum() for t in results), wanted, allow_unused=True)  # type: ignore[arg-type]
    total = counter.get_total_flops()
    if total == 0:
        raise complain("model", "a module with products that torch's counter knows", model, "Count by hand.")
    return total / samples


def batch_size(batch: Any) -> int:
    """Return how many samples a batch has: the first dimension of its first tensor.

    Parameters
    ----------
    batch : tensor, tuple or mapping of tensors
        What the model is called with.
    """
    found = tensors(batch)
    if not found or found[0].ndim == 0 or len(found[0]) == 0:
        raise complain(
            "sample",
            "a batch: a tensor, or a tuple or mapping of tensors, samples first",
            batch,
        )
    return len(found[0])


@contextmanager
def _plain_kernels() -> Iterator[None]:
    """Switch off fused kernels (LSTM in oneDNN and cuDNN, attention), which the counter does not see."""
    with ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch speaks of TF32 when these are switched
        stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        yield


@contextmanager
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    """No dropout, no running statistics: the products are the same, and BatchNorm takes a single sample."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
