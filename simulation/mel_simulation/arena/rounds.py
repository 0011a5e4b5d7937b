"""What rivals that go round by round have in common: gathering replies, averaging them."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from flwr_mel._validate import FloatArray, IntArray
from flwr_mel.allocation.bisection import largest_each
from flwr_mel.cycle.average import Work, blend, weighted_average
from flwr_mel.cycle.options import Average
from mel_simulation.arena.world import Arrival, Job, World
from mel_simulation.scenario.network import Weights


def gather(
    world: World, jobs: Sequence[Job], until_s: float = inf, enough: int | None = None
) -> list[Arrival]:
    """Wait for jobs; those that are not back in time are called off.

    Parameters
    ----------
    world : World
        Where they run.
    jobs : sequence of Job
        The round's.
    until_s : float
        The deadline, on the world's clock.
    enough : int, optional
        How many will do; by default all.
    """
    wanted = len(jobs) if enough is None else min(enough, len(jobs))
    back: list[Arrival] = []
    while len(back) < wanted and not world.over:
        arrival = world.wait(until_s)
        if arrival is None:
            break
        back.append(arrival)
    for job in jobs:
        world.call_off(job)
    # By number, not by time of arrival: the sum of floats depends on the order.
    return sorted(back, key=lambda arrival: arrival.job.number)


def average(arrivals: Sequence[Arrival], shares: Sequence[float] | FloatArray | IntArray) -> Weights:
    """Return the weighted mean of what came back."""
    return weighted_average([arrival.weights for arrival in arrivals], [float(s) for s in shares])


def blended(world: World, arrivals: Sequence[Arrival], rule: Average) -> Weights:
    """Return the present model moved by what came back, averaged by one of the product's rules.

    Parameters
    ----------
    world : World
        All began with its model.
    arrivals : sequence of Arrival
        What came back.
    rule : Average
        The paper's or FedNova's.
    """
    works = [Work(a.job.epochs, len(a.job.rows), int(world.held[a.job.learner])) for a in arrivals]
    mix = blend(rule, works)
    whole = sum(mix.weights)
    return moved(
        world.model, arrivals, [w / whole * f for w, f in zip(mix.weights, mix.factors, strict=True)]
    )


def moved(model: Weights, arrivals: Sequence[Arrival], scale: FloatArray | Sequence[float]) -> Weights:
    """Return a model moved by scaled changes, in double precision."""
    new: Weights = []
    for i, w in enumerate(model):
        change = np.zeros(w.shape)
        for s, arrival in zip(scale, arrivals, strict=True):
            change += float(s) * (arrival.weights[i].astype(np.float64) - arrival.start[i])
        new.append((w + change).astype(w.dtype))
    return new


def held_by(world: World, arrivals: Sequence[Arrival]) -> IntArray:
    """Return n_k of the learners that came back."""
    return world.held[[a.job.learner for a in arrivals]]


def epoch_seconds(world: World, epochs: int = 1) -> FloatArray:
    """Return how long each learner takes for some epochs on all its data."""
    return world.seconds(np.full(len(world), epochs, dtype=np.int64), world.held)


def fill(world: World, seconds: float, most: int, *label: int, proximal: float = 0.0) -> list[Job]:
    """Give each learner what fits into a time: epochs on all its data, or one on as many samples as fit.

    Parameters
    ----------
    world : World
        Where.
    seconds : float
        The time.
    most : int
        Most epochs of a learner.
    *label : int
        By which samples are drawn where not all fit: the round's number.
    proximal : float
        mu of FedProx.
    """
    fits = np.zeros(len(world), dtype=np.int64)
    for epochs in range(1, most + 1):
        fits[epoch_seconds(world, epochs) <= seconds] = epochs
    once = np.ones(len(world), dtype=np.int64)
    some = largest_each(0 * once, world.held, lambda samples: world.seconds(once, samples) <= seconds)
    jobs = []
    for k, (whole, part) in enumerate(zip(fits, some, strict=True)):
        if whole:
            jobs.append(world.send(k, int(whole), proximal=proximal))
        elif part:
            jobs.append(world.send(k, 1, world.choose(k, int(part), *label), proximal=proximal))
    return jobs
