"""Rounds on a scripted clock: clients with known costs, real estimates, real allocations, no Flower."""

from dataclasses import dataclass, field

import numpy as np

from flwr_mel.allocation import AllocationProblem, Infeasible, allocate
from flwr_mel.allocation.capacity import Capacities
from flwr_mel.costs import Coefficients
from flwr_mel.cycle.estimate import Estimate
from flwr_mel.cycle.options import Estimation
from flwr_mel.cycle.round_time import Pace, round_time
from flwr_mel.solvers import Exact

LEAST, MOST_EPOCHS = 32, 5
LOST = float("inf")


@dataclass(frozen=True)
class Fleet:
    """What tasks really take: c2 tau d + c1 d + c0 seconds, times noise, times what the script says.

    `script` maps (round, client) to a factor on that task's time; LOST: no reply comes.
    """

    c2: np.ndarray
    c0: np.ndarray
    epochs: np.ndarray
    held: np.ndarray
    noise: float = 0.0
    c1: float = 0.0
    script: dict = field(default_factory=dict)

    @classmethod
    def of(cls, slowness, *, epochs=1, held=500, c2=1e-3, fixed=0.05, **more):
        """Build clients that are so many times slower than the first; `fixed` is c0 of the first one."""
        slow = np.asarray(slowness, dtype=float)
        n = np.broadcast_to(held, slow.shape).astype(np.int64)
        e = np.broadcast_to(epochs, slow.shape).astype(np.int64)
        return cls(c2 * slow, fixed * slow, e, n, **more)

    def __len__(self):
        return len(self.c2)

    def seconds(self, k, epochs, samples):
        return float(self.c2[k] * epochs * samples + self.c1 * samples + self.c0[k])

    def takes(self, round_, k, epochs, samples, rng):
        factor = np.exp(rng.normal(0, self.noise)) if self.noise else 1.0
        return self.seconds(k, epochs, samples) * factor * self.script.get((round_, k), 1.0)


@dataclass(frozen=True)
class RoundLog:
    """One round: T (0 in a baseline round), how long it took, and what each client did (0: no task)."""

    planned_s: float
    actual_s: float
    clients: tuple
    epochs: np.ndarray
    samples: np.ndarray
    missed: tuple = ()
    baseline_s: float = 0.0

    @property
    def work(self):
        return self.epochs * self.samples


def run_rounds(
    fleet,
    rounds,
    *,
    seed=0,
    cycle_time_s=None,
    slack=0.25,
    participation=None,
    declared=None,
    options=None,
    **limits,
):
    """Drive the fleet through rounds; the first one of clients without declared costs is the baseline.

    `participation(round, rng)` returns the clients of a round; all by default. `declared`: costs, one row of
    six per client. `options`: the estimation, by default the one that `MelStrategy` uses.
    """
    rng = np.random.default_rng(seed)
    options = options or (Estimation(on_time=0.5) if cycle_time_s is None else Estimation())
    learns = None if declared is not None and options is None else options
    estimates = (
        {} if declared is None else {k: Estimate.declared(tuple(c), learns) for k, c in enumerate(declared)}
    )
    baselines, pace, logs = {}, Pace(), []
    for number in range(1, rounds + 1):
        here = list(range(len(fleet))) if participation is None else sorted(participation(number, rng))
        known = [k for k in here if k in estimates]
        epochs, samples = np.zeros((2, len(fleet)), dtype=np.int64)
        time_s = cycle_time_s or 0.0
        if known:
            at = np.array(known)
            costs = Coefficients(*np.array([estimates[k].costs() for k in known]).T)
            if cycle_time_s is None:
                expected = Coefficients(*np.array([estimates[k].costs(expected=True) for k in known]).T)
                wanted = round_time(
                    expected,
                    fleet.epochs[at],
                    fleet.held[at],
                    min_samples=LEAST,
                    max_epochs=_most(fleet, limits),
                )
                time_s, pace = pace.next(wanted)
            epochs[at], samples[at] = _allocated(costs, fleet, at, time_s, cycle_time_s is None, limits)
        took, missed = [0.0], []
        for k in here:
            first = k not in estimates
            if first:
                epochs[k], samples[k] = fleet.epochs[k], fleet.held[k]
            if not samples[k]:
                estimates[k] = estimates[k].rested(learns)
                continue
            seconds = fleet.takes(number, k, int(epochs[k]), int(samples[k]), rng)
            if first and seconds < LOST:
                baselines[k] = seconds
                estimates[k] = Estimate.measured(int(epochs[k]), int(samples[k]), seconds, options)
            elif not first and (seconds <= time_s * (1 + slack) or (seconds < LOST and cycle_time_s is None)):
                estimates[k] = estimates[k].observe(int(epochs[k]), int(samples[k]), seconds, learns)
            else:
                missed.append(k)
                if not first:
                    estimates[k] = estimates[k].missed(learns)
            took.append(seconds if seconds < LOST else time_s * (1 + slack))
        logs.append(RoundLog(time_s, max(took), tuple(here), epochs, samples, tuple(missed)))
    return logs


def unwrapped(fleet, rounds, *, seed=0):
    """Return work and seconds of the project's own rounds, without planning."""
    rng = np.random.default_rng(seed)
    each = [
        [fleet.takes(0, k, int(fleet.epochs[k]), int(fleet.held[k]), rng) for k in range(len(fleet))]
        for _ in range(rounds)
    ]
    return rounds * int((fleet.epochs * fleet.held).sum()), float(np.max(each, axis=1).sum())


def _most(fleet, limits):
    return limits.get("max_epochs") or MOST_EPOCHS * int(fleet.epochs.max())


def _allocated(costs, fleet, at, time_s, derived, limits):
    """Return epochs and samples of one verified allocation."""
    held = fleet.held[at]
    needed = costs.time_s(np.ones_like(held), np.minimum(LEAST, held))
    deadlines = np.maximum(needed, time_s) if derived else np.full(len(at), time_s)
    most = _most(fleet, limits)
    problem = AllocationProblem(
        costs,
        deadlines,
        total_samples=int(held.sum()),
        staleness=most,
        min_samples=LEAST,
        max_samples=held,
        max_epochs=most,
    )
    total = min(int(held.sum()), int(Capacities.of(problem).at(1).sum()))
    if not total:
        return np.zeros((2, len(at)), dtype=np.int64)
    try:
        solution = allocate(problem.replace(total_samples=total), Exact())
    except Infeasible:
        return np.zeros((2, len(at)), dtype=np.int64)
    return solution.epochs, solution.samples
