"""What a run configuration comes to: data, workload, partitions, the allocation problem of a cycle."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from flwr_mel._files import atomically
from flwr_mel._validate import IntArray, complain
from flwr_mel.allocation import AllocationProblem, allocate
from flwr_mel.clientapp import describe
from flwr_mel.costs import Workload
from flwr_mel.paper import PAPER_LAYERS, PAPER_SAMPLES, least_batch
from flwr_mel.solvers.rate import LEAST, best_round
from flwr_mel.tools.fleetfile import Fleet, Learner
from mel_simulation.scenario.config import RATE, RunConfig
from mel_simulation.scenario.data import Dataset, cache_dir, load
from mel_simulation.scenario.fleet import devices
from mel_simulation.scenario.partition import partition

#: Data that this process has, by name and directory. The workers of a sweep get those of the command.
loaded: dict[tuple[str, str], Dataset] = {}


def dataset_of(config: RunConfig) -> Dataset:
    """Return the data of a run, read once per process."""
    key = config.dataset, config.data_dir
    if key not in loaded:
        loaded[key] = load(config.dataset, Path(config.data_dir) if config.data_dir else None)
    return loaded[key]


def total_samples(config: RunConfig) -> int:
    """Return d: as configured, or all training data, in FL half of them."""
    everything = len(dataset_of(config).train_y)
    if config.samples > everything:
        raise complain("samples", f"at most the {everything} training samples", config.samples)
    return config.samples or (everything if config.mode == "pl" else max(1, everything // 2))


def min_samples(config: RunConfig) -> int:
    """Return d_l: 100 per 60,000 samples unless given, and at most half an equal share; with rate 16."""
    if config.scheme == RATE:
        return config.min_samples or LEAST
    return config.min_samples or least_batch(total_samples(config), config.learners or 1)


def batch_size(config: RunConfig) -> int:
    """Return the mini-batch of the learners' SGD."""
    return config.batch_size or (16 if dataset_of(config).embedded else 64)


def workload_of(config: RunConfig) -> Workload:
    """Return the workload of the cost model.

    Each sample of the embedded subset is costed as several of the paper's, so that T and E mean what they
    mean in the paper.
    """
    data = dataset_of(config)
    cost = config.sample_cost or (PAPER_SAMPLES / len(data.train_y) if data.embedded else 1.0)
    base = Workload.mlp(PAPER_LAYERS, ship_data=config.mode == "pl")
    return replace(
        base,
        operations_per_sample=base.operations_per_sample * cost,
        data_compression=base.data_compression * cost,
    )


def local_indices(config: RunConfig, learner: int) -> IntArray:
    """Return which training samples a learner of the federated scenario holds."""
    labels = dataset_of(config).train_y
    return _partitions(labels.tobytes(), config.learners, config.alpha, config.seed)[learner]


@lru_cache(maxsize=2)
def _partitions(labels: bytes, learners: int, alpha: float, seed: int) -> list[IntArray]:
    """Split the data, or read the split that another process left in the cache.

    flwr-datasets takes seconds to import, in every actor.
    """
    name = sha256(f"{learners} {alpha!r} {seed}".encode() + labels).hexdigest()[:24]
    path = cache_dir() / "partitions" / f"{name}.npz"
    with suppress(OSError, ValueError, KeyError, BadZipFile), np.load(path, allow_pickle=False) as kept:
        return np.split(kept["order"], kept["ends"])
    parts = partition(np.frombuffer(labels, np.uint8), learners, alpha or None, seed)
    ends = np.cumsum([len(part) for part in parts])[:-1]
    arrays: dict[str, Any] = {"order": np.concatenate(parts), "ends": ends}
    with suppress(OSError):
        atomically(path, lambda file: np.savez(file, **arrays), "wb")
    return parts


@lru_cache(maxsize=4)
def learners_of(config: RunConfig, cycle: int) -> tuple[Learner, ...]:
    """Return the learners of a cycle; in FL none takes more samples than it holds."""
    learners = devices(config, cycle)
    if config.mode == "pl":
        return learners
    limited = []
    for k, learner in enumerate(learners):
        held, most = len(local_indices(config, k)), learner.max_samples
        limited.append(replace(learner, max_samples=held if most is None else min(held, most)))
    return tuple(limited)


def capability(config: RunConfig, learner: int, cycle: int) -> dict[str, Any]:
    """Return what a learner declares before a cycle."""
    return describe(learners_of(config, cycle)[learner])


def check_feasible(config: RunConfig) -> None:
    """Raise `Infeasible` if the first cycle has no allocation."""
    problem = problem_of(config, 1)
    if config.scheme == RATE:
        best_round(
            problem.coefficients,
            problem.energy_limit_j,
            max_samples=problem.max_samples,
            min_samples=problem.min_samples,
            objective=config.rate(),
        )
    else:
        allocate(problem, config.scheme_object().solver)


def problem_of(config: RunConfig, cycle: int, order: Sequence[int] | None = None) -> AllocationProblem:
    """Return the allocation problem of a cycle, which does not depend on training.

    Parameters
    ----------
    config : RunConfig
        The run; `learners` is K.
    cycle : int
        From 1.
    order : sequence of int, optional
        Of the learners; by default that of the fleet.
    """
    learners = learners_of(config, cycle)
    fleet = Fleet(learners if order is None else [learners[k] for k in order])
    return fleet.problem(
        workload=workload_of(config),
        cycle_time_s=config.cycle_time,
        total_samples=total_samples(config),
        staleness=0 if config.scheme == RATE else config.scheme_object().staleness,
        min_samples=min_samples(config),
    )
