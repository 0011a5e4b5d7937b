"""Rounds on a scripted clock: clients whose true costs are known, with noise and late or lost replies."""

from dataclasses import dataclass

import numpy as np

from flwr_mel import wire
from flwr_mel.cycle.options import Rounds
from flwr_mel.cycle.state import State
from tests.cycle.tools import App, Run, declared


def fleet_of(slowness, *, epochs=1, held=500, c2=1e-3, fixed=0.05, **more):
    """Build clients that are so many times slower than a first one; `fixed` is the c0 of that one."""
    return [
        App(own=epochs, held=int(n), pace=c2 * slow, fixed_s=fixed * slow, simulated=False, **more)
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
        costs = declared((app.pace, app.c1, app.fixed_s, 0.0, 0.0, 0.0)) | {wire.MAX_SAMPLES: app.held}
        app.rng, app.capability = rng, costs if declares else {}
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
    each = [max(app.takes(app.held, app.own * app.held) for app in fleet) for _ in range(rounds)]
    return rounds * sum(app.own * app.held for app in fleet) / sum(each)
