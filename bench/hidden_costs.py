"""What happens to a fleet behind the planner's back: seeded traces of true costs, for `bench.learning`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from flwr_mel.orchestrator import Task

FloatArray = npt.NDArray[np.float64]

LEARNERS, CYCLE_S = 8, 10.0
NOISE = {"compute": 0.06, "link": 0.15}


class Truth(Protocol):
    """What tasks really take, whoever says so."""

    @property
    def declared(self) -> FloatArray:
        """c2, c1, c0 of each learner."""

    @property
    def cycles(self) -> int:
        """How long it is."""

    @property
    def cycle_s(self) -> float:
        """T."""

    def costs(self, cycle: int, k: int, margin: float = 0.0) -> list[float]:
        """Return the true mean costs, or a quantile of them."""

    def seconds(self, cycle: int, k: int, task: Task) -> tuple[float, float]:
        """Return what training and the link really take."""


@dataclass(frozen=True)
class Trace:
    """The truth: log-factors on the declared costs, per cycle and learner, without and with the noise."""

    declared: FloatArray
    compute: FloatArray
    link: FloatArray
    noisy_compute: FloatArray
    noisy_link: FloatArray

    @property
    def cycles(self) -> int:
        """How long it is."""
        return len(self.compute)

    @property
    def cycle_s(self) -> float:
        """T."""
        return CYCLE_S

    def costs(self, cycle: int, k: int, margin: float = 0.0) -> list[float]:
        """Return the true mean costs, or a quantile of them."""
        c2, c1, c0 = self.declared[k]
        compute = math.exp(self.compute[cycle, k] + margin * NOISE["compute"])
        link = math.exp(self.link[cycle, k] + margin * NOISE["link"])
        return [c2 * compute, c1 * link, c0 * link]

    def seconds(self, cycle: int, k: int, task: Task) -> tuple[float, float]:
        """Return what training and the link really take."""
        c2, c1, c0 = self.declared[k]
        train = c2 * task.epochs * task.samples * math.exp(self.noisy_compute[cycle, k])
        return train, (c1 * task.samples + c0) * math.exp(self.noisy_link[cycle, k])


def _steady(_: np.random.Generator, compute: FloatArray, link: FloatArray) -> None:
    """Declared values are off, but constantly so."""


def _drift(rng: np.random.Generator, compute: FloatArray, link: FloatArray) -> None:
    compute += np.cumsum(rng.normal(0, 0.03, compute.shape), axis=0)
    link += np.cumsum(rng.normal(0, 0.03, link.shape), axis=0)


def _throttling(rng: np.random.Generator, compute: FloatArray, _: FloatArray) -> None:
    for k in range(compute.shape[1]):
        start = int(rng.integers(10, len(compute) // 2))
        compute[start : start + int(rng.integers(10, 20)), k] += math.log(2)


def _link_changes(rng: np.random.Generator, _: FloatArray, link: FloatArray) -> None:
    for k in range(link.shape[1]):
        start = int(rng.integers(10, len(link) // 2))
        link[start : start + int(rng.integers(10, 20)), k] += math.log(3)


def _faster(rng: np.random.Generator, compute: FloatArray, _: FloatArray) -> None:
    for k in range(0, compute.shape[1], 2):
        compute[int(rng.integers(10, len(compute) // 2)) :, k] -= math.log(2)


def _outliers(rng: np.random.Generator, compute: FloatArray, _: FloatArray) -> None:
    compute += math.log(3) * (rng.random(compute.shape) < 0.02)


def _bursts(rng: np.random.Generator, compute: FloatArray, _: FloatArray) -> None:
    for k in range(compute.shape[1]):
        start = int(rng.geometric(1 / 14))
        while start < len(compute):
            length = int(rng.integers(1, 5))
            compute[start : start + length, k] += math.log(rng.uniform(1.5, 3))
            start += length + int(rng.geometric(1 / 14))


def _spikes(rng: np.random.Generator, compute: FloatArray, _: FloatArray) -> None:
    compute += math.log(4) * (rng.random(compute.shape) < 0.04)


Change = Callable[[np.random.Generator, FloatArray, FloatArray], None]
SCENARIOS: dict[str, tuple[Change, ...]] = {
    "steady": (_steady,),
    "drift": (_drift,),
    "throttling": (_throttling,),
    "link changes": (_link_changes,),
    "faster devices": (_faster,),
    "single outliers": (_outliers,),
    "bursts": (_bursts,),
    "spikes": (_spikes,),
    "all of these": (_drift, _throttling, _link_changes, _faster, _outliers),
}


def trace(changes: Sequence[Change], cycles: int, rng: np.random.Generator) -> Trace:
    """Draw a fleet and what becomes of it.

    Parameters
    ----------
    changes : sequence of callables
        What happens; single outliers are noise, not truth.
    cycles : int
        How long.
    rng : numpy Generator
        One seed, one trace.
    """
    spread = np.exp(rng.normal(0, 0.5, (LEARNERS, 2)))
    declared = np.column_stack((5e-4 * spread[:, 0], 2e-3 * spread[:, 1], 0.5 * spread[:, 1]))
    off = rng.normal(0, 0.2, (2, LEARNERS))
    compute, link = np.tile(off[0], (cycles, 1)), np.tile(off[1], (cycles, 1))
    odd = np.zeros_like(compute)
    for change in changes:
        change(rng, odd if change in (_outliers, _spikes) else compute, link)
    return Trace(
        declared,
        compute,
        link,
        compute + odd + rng.normal(0, NOISE["compute"], compute.shape),
        link + rng.normal(0, NOISE["link"], link.shape),
    )
