"""What a run configuration comes to: data, learners, the allocation of a cycle, and one learner's work.

Everything is a function of the configuration and the cycle alone, so that server, clients and a resumed run
agree without messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from flwr_mel import wire
from flwr_mel._files import atomically
from flwr_mel._validate import IntArray, complain
from flwr_mel.allocation import AllocationProblem, allocate
from flwr_mel.clientapp import Assignment, describe
from flwr_mel.costs import Workload
from flwr_mel.cycle.options import Average, Shards
from flwr_mel.paper import PAPER_LAYERS, PAPER_SAMPLES, PaperFleet, least_batch
from flwr_mel.solvers.rate import LEAST, best_round
from flwr_mel.tools.fleetfile import Fleet, Learner, Relative, read_fleet
from mel_simulation.scenario.config import RATE, RunConfig
from mel_simulation.scenario.data import Dataset, cache_dir, load
from mel_simulation.scenario.network import Weights, train
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
    return config.min_samples or least_batch(total_samples(config), config.learners)


def batch_size(config: RunConfig) -> int:
    """Return the mini-batch of the learners' SGD."""
    return config.batch_size or (16 if dataset_of(config).embedded else 64)


def workload_of(config: RunConfig) -> Workload:
    """Return the workload of the cost model.

    Each sample of the embedded subset is costed as several of the paper's, so that T and E mean what they
    mean in the paper.
    """
    data = dataset_of(config)
    cost = PAPER_SAMPLES / len(data.train_y) if data.embedded else 1.0
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
    name = sha256(f"parts {learners} {alpha!r} {seed}".encode() + labels).hexdigest()[:24]
    path = cache_dir() / "partitions" / f"{name}.npz"
    if path.exists():
        with np.load(path) as kept:
            return list(kept.values())
    parts = partition(np.frombuffer(labels, np.uint8), learners, alpha or None, seed)
    with suppress(OSError):
        atomically(path, lambda file: np.savez(file, *parts), "wb")
    return parts


@lru_cache(maxsize=4)
def learners_of(config: RunConfig, cycle: int) -> tuple[Learner, ...]:
    """Return the learners of a cycle, counted from 1; in FL none takes more samples than it holds."""
    if config.fleet:
        learners = _from_file(config.fleet, config.learners)
    else:
        fleet = PaperFleet(config.seed, config.learners, config.energy, config.energy_spread)
        learners = tuple(fleet.devices(cycle))
    if config.mode == "pl":
        return learners
    held = [len(local_indices(config, k)) for k in range(len(learners))]
    return tuple(
        replace(x, max_samples=n if x.max_samples is None else min(n, x.max_samples))
        for x, n in zip(learners, held, strict=True)
    )


@lru_cache(maxsize=4)
def _from_file(path: str, learners: int) -> tuple[Learner, ...]:
    """Read a fleet file; an unnamed learner is called device-<number>."""
    fleet = read_fleet(Path(path))
    if len(fleet) != learners:
        remedy = f"With `flwr run` start it with num-supernodes={len(fleet)}."
        raise complain("learners", f"{len(fleet)}, as many as {path} has", learners, remedy)
    fleet.coefficients()  # refuses learners that are relative to a machine
    named = zip(fleet.learners, fleet.names, strict=True)
    return tuple(replace(x, name=name) for x, name in named if not isinstance(x, Relative))


def names_of(config: RunConfig) -> list[str]:
    """Return what the learners are called."""
    return [learner.name for learner in learners_of(config, 1)]


def capability(config: RunConfig, learner: int, cycle: int) -> dict[str, Any]:
    """Return what a learner declares before a cycle."""
    return describe(learners_of(config, cycle)[learner])


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


def settings_of(config: RunConfig) -> dict[str, Any]:
    """Return the keywords of `MelStrategy`, which are also those of `Options`: costs, limits and weights."""
    data = dataset_of(config)
    if config.scheme == RATE:
        planned: dict[str, Any] = {"cycle_time_s": "best", "solver": config.rate()}
    else:
        scheme = config.scheme_object()
        planned = {"cycle_time_s": config.cycle_time, "solver": scheme.solver, "staleness": scheme.staleness}
        planned["total_samples"] = total_samples(config)
    return planned | {
        "average": Average.NOVA if config.scheme == RATE else Average.SAMPLES,
        "min_samples": min_samples(config),
        "workload": workload_of(config),
        "shards": Shards((data.train_x, data.train_y)) if config.mode == "pl" else None,
        "seed": config.seed,
    }


def answers(config: RunConfig, cycle: int) -> dict[str, dict[str, Any]]:
    """Return what all learners of Flower's engine answer before a cycle, by node: the learner's number."""
    return {
        str(k): {wire.MODDED: 1, wire.SIMULATED: 1, wire.PARTITION: k, **capability(config, k, cycle)}
        for k in range(config.learners)
    }


def check_feasible(config: RunConfig) -> None:
    """Raise `Infeasible` if the first cycle has no allocation."""
    problem = problem_of(config, 1)
    if config.scheme != RATE:
        allocate(problem, config.scheme_object().solver)
        return
    most = problem.max_samples
    if config.mode == "pl":
        most = np.minimum(most, len(dataset_of(config).train_y) // len(problem))
    limits, least = problem.energy_limit_j, problem.min_samples
    best_round(problem.coefficients, limits, max_samples=most, min_samples=least, objective=config.rate())


def learn(
    config: RunConfig, weights: Weights, task: Assignment, learner: int, batch: int
) -> tuple[Weights, int, float]:
    """Do tau_k epochs of SGD over the shard (PL) or over a random part of the own data (FL).

    Returns
    -------
    weights, samples, loss
        The new model, the number of samples it was trained on, and the loss over the last epoch.
    """
    if task.shard is not None:
        x, y = task.shard
    else:
        data, held = dataset_of(config), local_indices(config, learner)
        mine = held[task.choose(len(held))]
        x, y = data.train_x[mine], data.train_y[mine]
    new, loss = train(weights, x, y, task.epochs, batch=batch, lr=config.learning_rate, rng=task.rng())
    return new, len(y), loss
