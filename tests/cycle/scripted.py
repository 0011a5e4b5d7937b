"""Rounds on a scripted clock: clients whose true costs are known, with noise and late or lost replies."""

import math
from dataclasses import dataclass, field

import numpy as np

from flwr_mel import wire
from flwr_mel.cycle.options import Rounds
from flwr_mel.cycle.state import State
from tests.cycle.tools import App, Run, declared

LOST = math.inf


@dataclass
class Timed(App):
    """A client whose tasks take c2 tau d + c1 d + c0 seconds, times noise, times what the script says.

    `pace` is c2 and `fixed_s` is c0. `script` maps (round, client) to a factor; LOST: no reply comes.
    """

    c1: float = 0.0
    noise: float = 0.0
    script: dict = field(default_factory=dict)
    simulated: bool = False
    rng: np.random.Generator | None = None

    def seconds(self, k, task):
        epochs, samples, _ = self.does(task)
        return self.takes(epochs, samples) * self.script.get((task.cycle, k), 1.0)

    def takes(self, epochs, samples):
        factor = np.exp(self.rng.normal(0, self.noise))
        return float((self.pace * epochs * samples + self.c1 * samples + self.fixed_s) * factor)

    def declares(self):
        """Return what a client declares that knows its costs."""
        return declared((self.pace, self.c1, self.fixed_s, 0.0, 0.0, 0.0)) | {wire.MAX_SAMPLES: self.held}


def fleet_of(slowness, *, epochs=1, held=500, c2=1e-3, fixed=0.05, **more):
    """Build clients that are so many times slower than a first one; `fixed` is the c0 of that one."""
    return [
        Timed(own=epochs, held=int(n), pace=c2 * slow, fixed_s=fixed * slow, **more)
        for slow, n in zip(slowness, np.broadcast_to(held, len(slowness)), strict=True)
    ]


@dataclass(frozen=True)
class RoundLog:
    """One round: T (0 in a baseline round), how long it took, and the work of each client (0: no task)."""

    planned_s: float
    actual_s: float
    work: np.ndarray
    samples: np.ndarray
    state: State


def run_rounds(fleet, rounds, *, seed=0, slack=None, participation=None, declares=False, state=None, **more):
    """Drive the fleet through rounds.

    `participation(round, rng)` returns the clients of a round; all by default. `state`: of an earlier run.
    Further keywords are those of `MelStrategy`.
    """
    rng = np.random.default_rng(seed)
    for app in fleet:
        app.rng, app.capability = rng, app.declares() if declares else {}
    run = Run(fleet, rounds=Rounds(deadline_slack=slack), **more)
    run.state = state or run.state
    logs = []
    for _ in range(rounds):
        only = None if participation is None else participation(run.state.cycle + 1, rng)
        record = run.round(only=only)
        work, samples = np.zeros((2, len(fleet)), dtype=np.int64)
        for task in run.tasks:
            k = int(task.node) - 1000
            epochs, samples[k], _ = fleet[k].does(task)
            work[k] = epochs * samples[k]
        logs.append(RoundLog(record.cycle_time_s, run.waited_s, work, samples, run.state))
    return logs


def unwrapped(fleet, rounds, *, seed=0):
    """Return work per second of the project's own rounds, without planning."""
    rng = np.random.default_rng(seed)
    for app in fleet:
        app.rng = rng
    each = [max(app.takes(app.own, app.held) for app in fleet) for _ in range(rounds)]
    return rounds * sum(app.own * app.held for app in fleet) / sum(each)
