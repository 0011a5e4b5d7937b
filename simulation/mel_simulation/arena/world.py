"""The virtual world: learners with their costs and data, a clock, jobs in flight, and what has happened.

A rival sends jobs, waits for what comes back and publishes models; it never sees how the time passes. The
clock moves from event to event, so the order of arrivals is the cost model's and nothing else. Every move is
written into `World.log`, from which `mel_simulation.arena.audit` computes everything once more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

import numpy as np

from flwr_mel._validate import FloatArray, IntArray
from mel_simulation.arena.setting import Setting
from mel_simulation.scenario.network import Weights

#: Looks at the model per round of plain FedAvg.
_LOOKS = 10


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One learner's work: some epochs over some of its rows, from one version of the model.

    Parameters
    ----------
    number : int
        Counted from 0.
    learner, epochs : int
        Which learner, and how many epochs.
    rows : int array
        On what.
    version : int
        Of the model it begins with.
    sent_s, due_s : float
        From when to when the learner is busy, both links included.
    energy_j : float
        What it spends.
    proximal : float
        mu of FedProx.
    start : list of arrays
        The model it begins with.
    """

    number: int
    learner: int
    epochs: int
    rows: IntArray
    version: int
    sent_s: float
    due_s: float
    energy_j: float
    proximal: float
    start: Weights

    def spent_j(self, now: float) -> float:
        """Return what has been spent by now, evenly over its time."""
        return self.energy_j * min(1.0, (now - self.sent_s) / (self.due_s - self.sent_s))


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """What a learner brought back.

    Parameters
    ----------
    job : Job
        What it was asked.
    weights : list of arrays
        The model that it made.
    loss : float
        Mean over its last epoch.
    """

    job: Job
    weights: Weights
    loss: float


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the log."""

    what: str
    at_s: float
    job: int = -1
    learner: int = -1
    epochs: int = 0
    samples: int = 0
    version: int = 0
    energy_j: float = 0.0


class Look(NamedTuple):
    """The model as it was at a time."""

    at_s: float
    accuracy: float
    energy_j: float


class World:
    """A setting and a seed, with a clock.

    Parameters
    ----------
    setting : Setting
        Learners, data and task.
    seed : int
        Of places, data, weights and SGD. Rivals with the same seed meet the same world.
    until_s : float
        When to stop although the horizon is farther. Rivals do not see it: up to here nothing changes.
    """

    def __init__(self, setting: Setting, seed: int, until_s: float = inf) -> None:
        self.setting, self.seed = setting, seed
        self.task = setting.job
        self.parts = setting.parts(seed)
        self.held = np.array([len(part) for part in self.parts])
        self.costs = setting.coefficients(seed)
        #: Seconds that a joule takes at least.
        self.rest_s = 1 / setting.power_w if setting.throttled else 0.0
        self.model: Weights = self.task.initial(seed)
        #: How the server goes from its model to the one that a rival publishes: at once, or by a rule.
        self.server: Callable[[Weights, Weights], Weights] = lambda _, wanted: wanted
        self.version, self.now = 0, 0.0
        self.looks: list[Look] = []
        self.log: list[Event] = []
        #: One round of plain FedAvg with one epoch on all data: the unit of time of all settings.
        self.round_s = float(self.seconds(np.ones(len(self), dtype=np.int64), self.held).max())
        self.horizon_s = setting.rounds * self.round_s
        self._end_s = min(until_s, self.horizon_s)
        #: By number, in the order of sending.
        self._jobs: dict[int, Job] = {}
        self._sent, self._spent_j = 0, 0.0
        #: The version that was judged last, and its accuracy.
        self._judged, self._accuracy = -1, 0.0
        self._look(0.0)

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def over(self) -> bool:
        """Whether the time is up or the last target reached."""
        return self._done or self.now >= self._end_s

    @property
    def _done(self) -> bool:
        """Whether the last target is reached: nothing happens after the look that saw it."""
        return self.looks[-1].accuracy >= self.setting.targets[-1]

    def rng(self, *label: int) -> np.random.Generator:
        """Return a rival's own source of chance."""
        return np.random.default_rng([self.seed, 5, *label])

    def seconds(self, epochs: IntArray, samples: IntArray) -> FloatArray:
        """Return how long each learner would take; 0 where there is nothing to do."""
        rest_s = self.rest_s * self.costs.energy_j(epochs, samples)
        return np.maximum(self.costs.time_s(epochs, samples), rest_s)

    def send(self, learner: int, epochs: int, rows: IntArray | None = None, *, proximal: float = 0.0) -> Job:
        """Give a learner work, from the present model.

        Parameters
        ----------
        learner, epochs : int
            Which learner, and how many epochs.
        rows : int array, optional
            Which of the training samples, of its own; by default all that it holds.
        proximal : float
            mu of FedProx.
        """
        rows = self.parts[learner] if rows is None else rows
        tau, d = np.full(len(self), epochs), np.full(len(self), len(rows))
        factor = self.setting.factor(self.seed, self._sent)
        due_s = self.now + factor * float(self.seconds(tau, d)[learner])
        costs = factor * float(self.costs.energy_j(tau, d)[learner])
        job = Job(
            self._sent, learner, epochs, rows, self.version, self.now, due_s, costs, proximal, self.model
        )
        self._sent += 1
        self._jobs[job.number] = job
        self._note("send", job)
        return job

    def choose(self, learner: int, samples: int, *label: int) -> IntArray:
        """Return some rows of a learner, by chance, without repeats."""
        mine = self.parts[learner]
        if samples >= len(mine):
            return mine
        return np.sort(self.rng(learner, *label).choice(mine, samples, replace=False))

    def wait(self, until_s: float = inf) -> Arrival | None:
        """Let time pass until a learner is back; None if none is by then, or the bout is over."""
        until_s = min(until_s, self._end_s)
        job = min(self._jobs.values(), key=lambda job: (job.due_s, job.number), default=None)
        if job is None or job.due_s > until_s:
            self._pass(until_s)
            return None
        self._pass(job.due_s)
        if self.over:
            return None
        del self._jobs[job.number]
        self._spent_j += job.energy_j
        self._note("arrive", job)
        rng = np.random.default_rng([self.seed, 7, job.number])
        weights, loss = self.task.train(job.start, job.rows, job.epochs, rng, job.proximal)
        return Arrival(job, weights, loss)

    def call_off(self, job: Job) -> None:
        """Stop a job; what it has spent is spent."""
        if job.number in self._jobs:
            del self._jobs[job.number]
            spent = job.spent_j(self.now)
            self._spent_j += spent
            self._note("stop", replace(job, energy_j=spent))

    def publish(self, weights: Weights) -> None:
        """Make a new version of the model."""
        self.model, self.version = self.server(self.model, weights), self.version + 1
        self.log.append(Event("model", self.now, version=self.version))

    def reached(self, target: float) -> dict[str, float] | None:
        """Return time and energy to an accuracy; None: not reached."""
        look = next((look for look in self.looks if look.accuracy >= target), None)
        return None if look is None else {"time_s": look.at_s, "energy_j": look.energy_j}

    def energy_j(self, at_s: float | None = None) -> float:
        """Return what all have spent by a time, by default now."""
        now = self.now if at_s is None else at_s
        # In the order of sending: sums of floats depend on it.
        return self._spent_j + sum(job.spent_j(now) for job in self._jobs.values())

    def _pass(self, until_s: float) -> None:
        """Move the clock, looking at the model on the way."""
        step = self.round_s / _LOOKS
        while not self._done and len(self.looks) * step <= until_s:
            self._look(len(self.looks) * step)
        self.now = self.looks[-1].at_s if self._done else until_s

    def _look(self, at_s: float) -> None:
        if self._judged != self.version:
            self._judged, self._accuracy = self.version, self.task.accuracy(self.model)
        self.looks.append(Look(at_s, self._accuracy, self.energy_j(at_s)))

    def _note(self, what: str, job: Job) -> None:
        facts = (job.number, job.learner, job.epochs, len(job.rows), job.version, job.energy_j)
        self.log.append(Event(what, self.now, *facts))
