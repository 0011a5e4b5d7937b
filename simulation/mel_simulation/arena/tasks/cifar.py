"""CIFAR-10 with a small convolutional network: two layers of patches, about 56 thousand parameters.

Patches do not overlap (4 by 4 pixels, then 2 by 2 of these, as ConvNeXt begins and shrinks its images), so
that images are cut once and a convolution is a matrix product: a step of SGD takes a third of the time of
three strided layers of 3 by 3, and learns as much.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from flwr_mel._text import message
from mel_simulation.arena.tasks.task import TEST_SAMPLES, Samples, TorchTask, first_of
from mel_simulation.scenario.data import DataError, cache_dir, timeout

_BATCH, _LEARNING_RATE = 32, 0.1


class GroupNorm(torch.nn.Module):
    """Torch's GroupNorm of one group, for images whose channels come last.

    GroupNorm in place of BatchNorm keeps the average of models a model.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(channels))
        self.bias = torch.nn.Parameter(torch.zeros(channels))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Give each image zero mean and unit variance, then each channel its own scale and shift."""
        even = torch.nn.functional.layer_norm(images, images.shape[1:])
        return torch.addcmul(self.bias, even, self.weight)


def network() -> torch.nn.Module:
    """Return the network."""
    return torch.nn.Sequential(
        torch.nn.Linear(48, 32),
        GroupNorm(32),
        torch.nn.ReLU(),
        torch.nn.Flatten(2),  # four neighbours
        torch.nn.Linear(128, 64),
        GroupNorm(64),
        torch.nn.ReLU(),
        torch.nn.Flatten(1),
        torch.nn.Linear(1024, 44),
        torch.nn.ReLU(),
        torch.nn.Linear(44, 10),
    )


def cifar10(data_dir: str, samples: int) -> TorchTask:
    """Return the task.

    Parameters
    ----------
    data_dir : str
        Directory that holds torchvision's ``cifar-10-batches-py``; empty: the cache, or a download into it.
    samples : int
        Training samples that are used; 0: all.
    """
    training = _samples(data_dir, samples, train=True)
    test = _samples(data_dir, TEST_SAMPLES, train=False)
    return TorchTask(network, training, test, training[1].numpy(), _BATCH, _LEARNING_RATE)


def _samples(data_dir: str, samples: int, *, train: bool) -> Samples:
    x, y = _read(data_dir, train=train)
    rows = first_of(len(y), samples)
    return _patches(x[rows]), torch.from_numpy(y[rows])


def _read(data_dir: str, *, train: bool) -> tuple[np.ndarray, np.ndarray]:
    from torchvision.datasets import CIFAR10  # noqa: PLC0415

    root = Path(data_dir) if data_dir else cache_dir()
    try:
        with timeout():
            found = CIFAR10(str(root), train=train, download=not data_dir)
    except (RuntimeError, OSError) as error:
        raise DataError(
            f"cifar10 is not available: {message(error).rstrip('.')}. Put cifar-10-batches-py, as "
            "torchvision unpacks it, into a directory and give that one, or run once with internet access."
        ) from error
    return found.data, np.asarray(found.targets)


def _patches(images: np.ndarray) -> torch.Tensor:
    """Return 16 squares of 4 patches of 48 values each, about zero mean and unit variance."""
    pixels = torch.from_numpy(images).reshape(-1, 4, 2, 4, 4, 2, 4, 3).permute(0, 1, 4, 2, 5, 3, 6, 7)
    return pixels.reshape(-1, 16, 4, 48).float().div_(255).sub_(0.47).div_(0.25)
