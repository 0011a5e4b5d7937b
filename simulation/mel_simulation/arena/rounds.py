"""What rivals are and have in common: going round by round, or keeping all busy, and averaging replies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import Protocol

import numpy as np

from flwr_mel._validate import FloatArray
from flwr_mel.allocation import Solution
from flwr_mel.allocation.bisection import largest_each
from flwr_mel.cycle.average import Work, blend, weighted_average
from flwr_mel.cycle.options import Average
from mel_simulation.arena.world import Arrival, Job, World
from mel_simulation.scenario.network import Weights


class Rival(Protocol):
    """A frozen dataclass whose fields are its hyper-parameters."""

    def run(self, world: World) -> None:
        """Send jobs, wait, publish models until `world.over`."""
        ...


def average(world: World, arrivals: Sequence[Arrival]) -> Weights:
    """Return the mean of what came back, weighted by what the learners hold."""
    held = [float(world.held[arrival.job.learner]) for arrival in arrivals]
    return weighted_average([arrival.weights for arrival in arrivals], held)


def rounds(world: World) -> Iterator[int]:
    """Count rounds from 1 until the bout is over."""
    number = 0
    while not world.over:
        number += 1
        yield number


def gather(
    world: World, jobs: Sequence[Job], *, least_s: float = 0.0, most_s: float = inf, enough: int = 0
) -> list[Arrival]:
    """Wait for the replies of a round; return them in the order of the jobs, none if the bout is over.

    Parameters
    ----------
    world : World
        Where.
    jobs : sequence of Job
        Sent just now; without any the bout passes idly.
    least_s, most_s : float
        How long the round lasts at least, and after which time jobs are called off.
    enough : int
        After how many replies the other jobs are called off; 0: all are awaited.
    """
    begin_s, wanted = world.now, min(enough or len(jobs), len(jobs))
    back: list[Arrival] = []
    while len(back) < wanted and (arrival := world.wait(begin_s + most_s)) is not None:
        back.append(arrival)
    for job in jobs:
        world.call_off(job)
    if not jobs:
        world.wait()
    elif world.now < begin_s + least_s and not world.over:
        world.wait(begin_s + least_s)
    # By number, not by time of arrival: sums of floats depend on the order.
    return [] if world.over else sorted(back, key=lambda arrival: arrival.job.number)


def keep_busy(world: World, epochs: int, proximal: float = 0.0) -> Iterator[Arrival]:
    """Return replies as they come; every learner gets its next job after its reply, until the bout is over.

    Parameters
    ----------
    world : World
        Where.
    epochs : int
        Of each job, on all that the learner holds.
    proximal : float
        mu of FedProx.
    """
    for k in range(len(world)):
        world.send(k, epochs, proximal=proximal)
    while (arrival := world.wait()) is not None:
        yield arrival
        world.send(arrival.job.learner, epochs, proximal=proximal)


def blended(world: World, arrivals: Sequence[Arrival], rule: Average) -> Weights:
    """Return the present model moved by what came back, averaged by one of the product's rules."""
    works = [Work(a.job.epochs, len(a.job.rows), int(world.held[a.job.learner])) for a in arrivals]
    mix = blend(rule, works)
    whole = sum(mix.weights)
    scale = [w / whole * f for w, f in zip(mix.weights, mix.factors, strict=True)]
    return moved(world.model, arrivals, scale)


def moved(model: Weights, arrivals: Sequence[Arrival], scale: Sequence[float]) -> Weights:
    """Return a model moved by scaled changes, in double precision."""
    new: Weights = []
    for i, w in enumerate(model):
        change = np.zeros(w.shape)
        for s, arrival in zip(scale, arrivals, strict=True):
            change += s * (arrival.weights[i].astype(np.float64) - arrival.job.start[i])
        new.append((w + change).astype(w.dtype))
    return new


def aged(world: World, arrival: Arrival, power: float) -> float:
    """Return how much an old start counts: (staleness + 1)^-power."""
    return float((1 + world.version - arrival.job.version) ** -power)


def epoch_seconds(world: World, epochs: int = 1) -> FloatArray:
    """Return how long each learner takes for some epochs on all its data."""
    return world.seconds(np.full(len(world), epochs), world.held)


def fill(world: World, seconds: float, most: int, number: int, proximal: float = 0.0) -> list[Job]:
    """Give each learner what fits into a time: epochs on all its data, or one on as many samples as fit.

    Parameters
    ----------
    world : World
        Where.
    seconds : float
        The time.
    most : int
        Most epochs of a learner.
    number : int
        Of the round, by which samples are drawn where not all fit.
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
            jobs.append(world.send(k, 1, world.choose(k, int(part), number), proximal=proximal))
    return jobs


def repeat(world: World, plan: Solution, rule: Average, *, least_s: float = 0.0) -> None:
    """Carry out one plan round after round, with other samples each time.

    Parameters
    ----------
    world : World
        Where.
    plan : Solution
        Epochs and samples of each learner.
    rule : Average
        By which the replies are averaged.
    least_s : float
        How long a round lasts at least.
    """
    for number in rounds(world):
        tasks = enumerate(zip(plan.epochs.tolist(), plan.samples.tolist(), strict=True))
        jobs = [world.send(k, tau, world.choose(k, d, number)) for k, (tau, d) in tasks if tau]
        if back := gather(world, jobs, least_s=least_s):
            world.publish(blended(world, back, rule))
