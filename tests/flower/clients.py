"""What the simulated learners do, in both APIs: honest work, and every kind of misbehaviour."""

import os
import time
from dataclasses import replace

import numpy as np
from flwr.app import ConfigRecord

from flwr_mel import Device, wire
from flwr_mel.clientapp import Assignment, MelMod, describe
from tests.flower import lab
from tests.waiting import PATIENCE_S

REAL = ("federated", "parallelized")
EQUAL = ("plain", "equal")
#: Faults of the cycle 2 of scenario "faults", by learner.
RAISES, NAN, SHAPE, LIES, METRICS, MANY, BYTES, NOTHING = 0, 1, 2, 3, 4, 5, 6, 14
#: What the learner reports of itself after cycle 1 of scenario "faults".
SAYS_NAN, SAYS_NEGATIVE, SAYS_ABSURD, SAYS_TEXT, ASKED_IN_VAIN, TOO_FAST = range(8, 14)
#: Has no energy in scenario "slow-idle" and takes its time to say so again.
IDLE = 5
#: Its mod is broken: the whole report is junk.
GARBAGE = 15
JUNK = {"mel-train-seconds": "soon", "mel-cpu-hz": b"\xff", "mel-max-samples": -(10**9), "mel-learner": ""}


def capability(context, cycle):
    """What a learner says of itself."""
    k, name = int(context.node_config["partition-id"]), lab.scenario()
    if name in EQUAL:
        return Device(1e9, 2e7, 0.2, max_samples=60)
    # Where one hangs, only time is scarce, so that to be late means less work.
    device = lab.device(k, cycle)
    words = describe(replace(device, energy_limit_j=None) if name == "hang" else device)
    if name == "stop-battery" and k == 4:
        words[wire.BATTERY_J] = 8.0 - 3.0 * cycle
    if name == "slow-idle" and k == IDLE:
        words[wire.ENERGY_LIMIT_J] = 1e-6
        if cycle == 2:
            answer_late()
    if name == "faults" and cycle == 2:
        words |= {
            SAYS_NAN: {wire.CPU_HZ: float("nan")},
            SAYS_NEGATIVE: {wire.RATE_BPS: -5.0},
            SAYS_ABSURD: {wire.ENERGY_LIMIT_J: 1e300},
            SAYS_TEXT: {wire.CPU_HZ: "fast", wire.LEARNER: b"\x00\xff"},
        }.get(k, {})
        if k == ASKED_IN_VAIN:
            raise RuntimeError("no idea")
    if name == "faults" and k == TOO_FAST:
        words |= dict.fromkeys(wire.COEFFICIENTS, 1e-15)
    return words


def answer_late():
    """Answer while the others train in cycle 3, or when nobody does, and tell which it was."""
    training, patience_s = [], PATIENCE_S
    while not training and patience_s > 0:
        training = list((lab.out() / "calls").glob("slow-idle.3.*"))
        time.sleep(0.05)
        patience_s -= 0.05
    (lab.out() / "slow-idle.answer").write_text("in cycle 3" if training else "gave up")


class MaybeMod(MelMod):
    """flwr_mel's mod, which some learners of some scenarios do not have."""

    def __call__(self, message, context, call_next):
        if lab.scenario() in ("silent", "default") and int(context.node_config["partition-id"]) < 3:
            return call_next(message, context)
        reply = super().__call__(message, context, call_next)
        if lab.scenario() == "faults" and int(context.node_config["partition-id"]) == GARBAGE:
            trained = bool(reply.content.array_records)
            for name in {wire.RECORD, "fitres.metrics"} & set(reply.content) if trained else ():
                reply.content[name] = ConfigRecord({**reply.content[name], **JUNK})
        return reply


def only_in(name, mod):
    """Let another mod take part in one scenario only."""

    def maybe(message, context, call_next):
        return mod(message, context, call_next) if lab.scenario() == name else call_next(message, context)

    return maybe


def work(k, config, weights):
    """Train; return arrays, number of samples and metrics."""
    name = lab.scenario()
    assigned = Assignment.from_config(config) if wire.EPOCHS in config else None
    note_call(name, k, assigned)
    if name in EQUAL:
        x, y = lab.digits()
        rows = np.arange(60) + 60 * k
        rng = np.random.default_rng([k, int(config["server-round"])])
        return lab.train(weights, x[rows], y[rows], int(config["local-epochs"]), rng), 60, {"who": k}
    if name in REAL:
        return real_work(name, k, assigned, weights)
    if name == "BatchNorm":
        rows = lab.rows_of(k)[assigned.choose(len(lab.rows_of(k)))]
        x, y = (array[rows] for array in lab.digits())
        return lab.train_normed(weights, x, y, assigned.epochs, assigned.rng()), len(x), {"loss": 1.0}
    if name == "all-fail":
        raise RuntimeError("everybody fails")
    if name == "all-fail-later" and assigned.cycle == 2:
        raise RuntimeError("everybody fails")
    if name == "hang" and k == 3 and assigned.cycle == 1:
        hang(name)
    if name == "dies" and k == 0:
        os._exit(1)
    step = 0.01 if assigned is None or assigned.epochs else 0.0  # it reads its epochs
    moved = [w + np.float32(step * (1 + k)) for w in weights]
    samples = assigned.samples if assigned else 1
    if name == "faults" and assigned.cycle == 2:
        return fault(k, moved, samples)
    return moved, samples, {"loss": 1.0}


def hang(name):
    """Hold on until the training is over."""
    while not (lab.out() / f"{name}.json").exists():
        time.sleep(0.1)


def real_work(name, k, assigned, weights):
    if assigned.shard is not None:
        x, y, rows = assigned.shard
        facts = {f"bytes-{i}": array.nbytes for i, array in enumerate(assigned.shard)}
        np.savez(lab.out() / f"shard-{assigned.cycle}-{k}.npz", rows=rows, kinds=[x.dtype.str, y.dtype.str])
    else:
        own = lab.rows_of(k)
        rows, facts = own[assigned.choose(len(own))], {}
        x, y = (array[rows] for array in lab.digits())
    assert len(x) == assigned.samples
    return lab.train(weights, x, y, assigned.epochs, assigned.rng()), len(x), facts


def fault(k, moved, samples):
    metrics = {"loss": 1.0}
    if k == RAISES:
        raise RuntimeError("broken on purpose")
    if k == NAN:
        moved[0][0, 0] = np.nan
    if k == SHAPE:
        moved[0] = moved[0][:, 1:]
    if k == LIES:
        samples *= 10
    if k == METRICS:
        metrics = {"quite": 2.0, "other": 3.0}
    if k == MANY:
        moved = [*moved, np.zeros(3, np.float32)]
    if k == BYTES:
        moved[1] = np.zeros(200_000, np.float32)
    if k == NOTHING:
        samples = 0
    return moved, samples, metrics


def note_call(name, k, assigned):
    """Leave a trace of every training, so that the tests see who was given work."""
    cycle = assigned.cycle if assigned else 0
    (lab.out() / "calls" / f"{name}.{cycle}.{k}").touch()
