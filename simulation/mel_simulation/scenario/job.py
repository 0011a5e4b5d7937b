"""What both ends of the simulation derive from the run configuration: data, workload, partitions."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from flwr_mel._files import atomically
from flwr_mel._validate import complain
from flwr_mel.costs import Workload
from flwr_mel.paper import PAPER_SAMPLES, least_batch
from mel_simulation.scenario.config import LAYERS, RunConfig
from mel_simulation.scenario.data import Dataset, cache_dir, load
from mel_simulation.scenario.partition import partition

#: The stream of random numbers that splits rare labels.
_RARE = 77
#: Data that this process has, by name and directory.
_loaded: dict[tuple[str, str], Dataset] = {}


def _load(dataset: str, data_dir: str) -> Dataset:
    if (dataset, data_dir) not in _loaded:
        _loaded[dataset, data_dir] = load(dataset, Path(data_dir) if data_dir else None)
    return _loaded[dataset, data_dir]


def dataset_of(config: RunConfig) -> Dataset:
    """Return the data of a run, read once per process."""
    return _load(config.dataset, config.data_dir)


def lend(config: RunConfig, data: Dataset) -> None:
    """Let this process use data that another has read.

    Parameters
    ----------
    config : RunConfig
        Says which data they are.
    data : Dataset
        Perhaps in memory that processes share.
    """
    _loaded[config.dataset, config.data_dir] = data


def total_samples(config: RunConfig) -> int:
    """Return d: what the configuration asks for, or all training data, in FL half of them."""
    everything = len(dataset_of(config).train_y)
    if config.samples > everything:
        raise complain("samples", f"at most the {everything} training samples", config.samples)
    return config.samples or (everything if config.mode == "pl" else max(1, everything // 2))


def min_samples(config: RunConfig) -> int:
    """Return d_l: 100 per 60,000 samples unless given, and at most half an equal share."""
    return config.min_samples or least_batch(total_samples(config), config.learners or 1)


def batch_size(config: RunConfig) -> int:
    """Return the mini-batch of the learners' SGD."""
    return config.batch_size or (16 if dataset_of(config).embedded else 64)


def workload_of(config: RunConfig) -> Workload:
    """Return the cost model's view of the job.

    Each sample of the embedded subset is costed as several of the paper's, so that T and E mean what they
    mean in the paper.
    """
    data = dataset_of(config)
    cost = config.sample_cost or (PAPER_SAMPLES / len(data.train_y) if data.embedded else 1.0)
    base = Workload.mlp(LAYERS, ship_data=config.mode == "pl")
    return replace(
        base,
        operations_per_sample=base.operations_per_sample * cost,
        data_compression=base.data_compression * cost,
    )


@lru_cache(maxsize=2)
def _rare(key: tuple[str, str, int, int], learners: int) -> list[npt.NDArray[np.int64]]:
    """Split the data so that the last quarter of the learners alone hold the last labels."""
    dataset, data_dir, rare, seed = key
    labels = _load(dataset, data_dir).train_y
    classes, few = int(labels.max()) + 1, max(learners // 4, 1)
    if rare >= classes or few == learners:
        raise complain("rare_labels", f"fewer than the {classes} there are, and learners at least 2", rare)
    rng, last = np.random.default_rng([seed, _RARE]), labels >= classes - rare
    common, theirs = (rng.permutation(np.flatnonzero(rows)) for rows in (~last, last))
    return [*np.array_split(common, learners - few), *np.array_split(theirs, few)]


@lru_cache(maxsize=2)
def _partitions(config_key: tuple[str, str, float, int], learners: int) -> list[npt.NDArray[np.int64]]:
    """Split the data, or read the split that another process has left in the cache.

    The partitioners take seconds to import and to split among 1,000 learners, in every actor anew.
    """
    dataset, data_dir, alpha, seed = config_key
    labels = _load(dataset, data_dir).train_y
    about = f"{version('flwr-datasets')} {learners} {alpha!r} {seed}".encode()
    path = cache_dir() / "partitions" / f"{sha256(about + labels.tobytes()).hexdigest()[:24]}.npz"
    with suppress(OSError, ValueError, KeyError, BadZipFile), np.load(path, allow_pickle=False) as kept:
        return np.split(kept["order"], kept["ends"])
    parts = partition(labels, learners, alpha or None, seed)
    arrays: dict[str, Any] = {
        "order": np.concatenate(parts),
        "ends": np.cumsum([len(part) for part in parts])[:-1],
    }
    with suppress(OSError):
        atomically(path, lambda file: np.savez(file, **arrays), "wb")
    return parts


def local_indices(config: RunConfig, learner: int, learners: int) -> npt.NDArray[np.int64]:
    """Return which training samples a learner of the federated scenario holds."""
    if config.rare_labels:
        return _rare((config.dataset, config.data_dir, config.rare_labels, config.seed), learners)[learner]
    return _partitions((config.dataset, config.data_dir, config.alpha, config.seed), learners)[learner]
