"""Rounds on a scripted clock: `plan` and `settle` with clients whose true costs are known, without Flower."""

from dataclasses import dataclass, field

import numpy as np

from flwr_mel import wire
from flwr_mel.cycle.options import Options, Rounds
from flwr_mel.cycle.plan import plan
from flwr_mel.cycle.settle import Reply, settle
from flwr_mel.cycle.state import State, with_answers, with_nodes

LOST = float("inf")
MODEL = {"w": np.zeros(1, dtype=np.float32)}


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
        """Build clients that are so many times slower than a first one; `fixed` is the c0 of that one."""
        slow = np.asarray(slowness, dtype=float)
        n = np.broadcast_to(held, slow.shape).astype(np.int64)
        e = np.broadcast_to(epochs, slow.shape).astype(np.int64)
        return cls(c2 * slow, fixed * slow, e, n, **more)

    def __len__(self):
        return len(self.c2)

    def takes(self, round_, k, epochs, samples, rng):
        factor = np.exp(rng.normal(0, self.noise)) * self.script.get((round_, k), 1.0)
        return float((self.c2[k] * epochs * samples + self.c1 * samples + self.c0[k]) * factor)

    def costs(self):
        """Return what a client declares that knows its costs."""
        zero = np.zeros(len(self))
        return np.column_stack((self.c2, zero + self.c1, self.c0, zero, zero, zero))


@dataclass(frozen=True)
class RoundLog:
    """One round: T (0 in a baseline round), how long it took, and what each client did (0: no task)."""

    planned_s: float
    actual_s: float
    epochs: np.ndarray
    samples: np.ndarray
    state: State

    @property
    def work(self):
        return self.epochs * self.samples


def run_rounds(
    fleet, rounds, *, seed=0, slack=None, participation=None, declared=None, state=None, **keywords
):
    """Drive the fleet through rounds.

    `participation(round, rng)` returns the clients of a round; all by default. `declared`: costs, one row of
    six per client. `state`: of an earlier run. `keywords` are those of `MelStrategy`.
    """
    rng = np.random.default_rng(seed)
    options = Options(rounds=Rounds(deadline_slack=slack), **keywords)
    nodes = [str(k) for k in range(len(fleet))]
    state = with_nodes(State() if state is None else state, nodes)
    state = with_answers(state, options, {node: _words(fleet, int(node), declared) for node in nodes})
    logs = []
    for _ in range(rounds):
        number = state.cycle + 1
        here = nodes if participation is None else [str(k) for k in participation(number, rng)]
        state, tasks, record = plan(state, options, number, here, len(nodes))
        deadline_s = options.deadline_s(record.cycle_time_s) or LOST
        epochs, samples = np.zeros((2, len(fleet)), dtype=np.int64)
        replies, took = {}, [0.0]
        for task in tasks:
            k = int(task.node)
            epochs[k] = fleet.epochs[k] if task.baseline else task.epochs
            samples[k] = fleet.held[k] if task.baseline else task.samples
            seconds = fleet.takes(number, k, int(epochs[k]), int(samples[k]), rng)
            took.append(min(seconds, deadline_s) if deadline_s < LOST or seconds < LOST else 0.0)
            if seconds <= deadline_s and seconds < LOST:
                words = _words(fleet, k, declared) | {
                    wire.TRAIN_SECONDS: seconds,
                    wire.SAMPLES_USED: int(samples[k]),
                    wire.EPOCHS_READ: 1,
                }
                replies[task.node] = Reply(MODEL, int(samples[k]), words, seconds)
        state, record, _ = settle(state, options, record, replies, MODEL, max(took))
        logs.append(RoundLog(record.cycle_time_s, max(took), epochs, samples, state))
    return logs


def unwrapped(fleet, rounds, *, seed=0):
    """Return work per second of the project's own rounds, without planning."""
    rng = np.random.default_rng(seed)
    own = [(k, int(fleet.epochs[k]), int(fleet.held[k])) for k in range(len(fleet))]
    each = [[fleet.takes(0, *task, rng) for task in own] for _ in range(rounds)]
    return rounds * int((fleet.epochs * fleet.held).sum()) / float(np.max(each, axis=1).sum())


def _words(fleet, k, declared):
    """Return what a client's mod reports."""
    words = {wire.MODDED: 1, wire.OWN_EPOCHS: int(fleet.epochs[k]), wire.SAMPLES_HELD: int(fleet.held[k])}
    if declared is not None:
        words |= {wire.MAX_SAMPLES: int(fleet.held[k])}
        words |= dict(zip(wire.COEFFICIENTS, map(float, declared[k]), strict=True))
    return words
