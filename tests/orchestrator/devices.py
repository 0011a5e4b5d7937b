"""Devices that work as real ones do: a project of its own, a speed, a link, and a mod that reports."""

from dataclasses import dataclass, field

import numpy as np

from flwr_mel import wire
from flwr_mel.orchestrator import Orchestrator, Returned, Settings


@dataclass
class Device:
    """A learner; `follows` is what its app reads of a task: "both", "epochs", "samples" or "nothing"."""

    speed: float = 1.0
    samples: int = 100
    epochs: int = 2
    fixed_s: float = 0.0
    warm_up_s: float = 0.0
    link_s: float = 0.0
    follows: str = "both"
    batch: int = 0
    simulated: bool = True
    calls: int = 0
    noise: float = 0.0
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def work(self, task):
        """Do a task; return the report, the app's own count and the seconds."""
        self.calls += 1
        tells_epochs, tells_samples = self.follows in ("both", "epochs"), self.follows in ("both", "samples")
        epochs = task.epochs if tells_epochs and not task.free else self.epochs
        used = min(task.samples, self.samples) if tells_samples and not task.free else self.samples
        seconds = self.fixed_s + epochs * used / (1000 * self.speed)
        seconds += self.warm_up_s if self.calls == 1 else 0.0
        seconds *= float(np.exp(self.rng.normal(0, self.noise))) if self.noise else 1.0
        said = {wire.TRAIN_SECONDS: seconds, wire.EPOCHS_READ: wire.YES if tells_epochs else wire.NO}
        if tells_epochs:
            said |= {
                wire.EPOCHS_DONE: epochs, wire.EPOCHS_KEY: "local-epochs", wire.OWN_EPOCHS: self.epochs
            }  # fmt: skip
        elif tells_samples:
            said[wire.EPOCHS_DONE] = epochs  # counted at the loader
        claim = -(-used // self.batch) if self.batch else used
        said |= {wire.SAMPLES_USED: used if tells_samples else claim}
        said |= {wire.SAMPLES_FROM: wire.TASK if tells_samples else wire.REPLY}
        if tells_samples:
            said[wire.SAMPLES_HELD] = self.samples
        if self.simulated:
            said[wire.SIMULATED] = 1
        return said, claim, epochs, used, seconds + self.link_s


def brain_of(devices, **settings):
    brain = Orchestrator(Settings(**settings))
    brain.strangers([f"n{k}" for k in range(len(devices))])
    brain.hear_all({f"n{k}": {wire.PROBE: 1, wire.LEARNER: str(k)} for k in range(len(devices))})
    return brain


def cycle(brain, devices, number):
    """Let one cycle pass; return its record, and who did what: {k: (epochs, samples, seconds)}."""
    plan = brain.plan(number, [f"n{k}" for k in range(len(devices))])
    used, reports, trips, claims, did = {}, {}, {}, {}, {}
    for task in plan.tasks:
        k = int(task.node[1:])
        reports[task.node], claims[task.node], epochs, samples, trips[task.node] = devices[k].work(task)
        used[task.node] = claims[task.node] if task.free else task.samples
        did[k] = (epochs, samples, trips[task.node])
    brain.settle(Returned(used, {}, reports, trips, claims=claims))
    brain.close()
    return brain.records[-1], did
