"""Drives `plan` and `settle` with scripted clients, without Flower."""

import math
from dataclasses import dataclass, field

import numpy as np

from flwr_mel import wire
from flwr_mel.cycle.options import Options
from flwr_mel.cycle.plan import plan
from flwr_mel.cycle.settle import Reply, settle
from flwr_mel.cycle.state import State, with_answers, with_nodes

MODEL = {"w": np.zeros((2, 3), np.float32), "b": np.zeros(3, np.float32)}
LOST = math.inf
#: c2, c1, c0 in seconds, g2, g1, g0 in joules.
COSTS = (1e-3, 1e-3, 0.1, 1e-4, 0.0, 0.1)


def declared(costs=COSTS):
    """Return costs in the keys of the wire."""
    return dict(zip(wire.COEFFICIENTS, costs, strict=True))


@dataclass
class App:
    """What a project's client does with its task.

    `own` epochs of its own, in the config if `named`; it `reads` its epochs (None: not observed), `chooses`
    its samples, draws them from a counted `loader`, or stops after `max_steps` steps of 32 samples. A further
    pass over the data, `passes`, evaluates the trained model.

    A task takes `pace` for each sample that is drawn, `c1` for each sample and `fixed_s`, times noise, times
    what the script says: it maps (round, client) to a factor; LOST: no reply comes. The first task takes
    `start_s` more, to load libraries and data.
    """

    own: int = 1
    held: int = 600
    pace: float = 1e-3
    fixed_s: float = 0.01
    named: bool = True
    reads: bool | None = True
    follows: bool = True
    chooses: bool = True
    loader: bool = False
    max_steps: int | None = None
    passes: int = 0
    modded: bool = True
    simulated: bool = True
    capability: dict = field(default_factory=dict)
    c1: float = 0.0
    start_s: float = 0.0
    noise: float = 0.0
    script: dict = field(default_factory=dict)
    rng: np.random.Generator | None = None

    def about(self, k):
        """What its mod answers to a probe."""
        if not self.modded:
            return {}
        words = {wire.MODDED: 1, wire.LEARNER: str(k), **self.capability}
        return words | ({wire.SIMULATED: 1, wire.PARTITION: k} if self.simulated else {})

    def does(self, task):
        """Return epochs, samples and samples drawn."""
        told = not task.baseline
        epochs = task.epochs if told and self.reads is not False and self.follows else self.own
        samples = min(task.samples, self.held) if told and self.chooses else self.held
        drawn = 32 * self.max_steps if self.max_steps else (epochs + self.passes) * samples
        return epochs, samples, drawn

    def seconds(self, k, task):
        _, samples, drawn = self.does(task)
        start_s = self.start_s if task.cycle == 1 else 0.0
        return start_s + self.takes(samples, drawn) * self.script.get((task.cycle, k), 1.0)

    def takes(self, samples, drawn):
        seconds = self.pace * drawn + self.c1 * samples + self.fixed_s
        return seconds * float(np.exp(self.rng.normal(0, self.noise))) if self.noise else seconds

    def reply(self, k, task, model):
        _, samples, drawn = self.does(task)
        seconds = self.seconds(k, task)
        facts = {
            wire.TRAIN_SECONDS: seconds,
            wire.OWN_EPOCHS: self.own if self.named else None,
            wire.EPOCHS_READ: None if self.reads is None else int(self.reads),
            wire.SAMPLES_USED: samples if self.chooses else None,
            wire.SAMPLES_HELD: self.held if self.chooses else None,
            wire.SAMPLES_DRAWN: drawn if self.loader else None,
        }
        report = {key: x for key, x in facts.items() if x is not None} if self.modded else {}
        arrays = {name: x + np.asarray(k + 1, x.dtype) for name, x in model.items()}
        return Reply(arrays, samples, self.about(k) | report, seconds)


class Run:
    """A training of scripted clients; node ids are "1000" and up."""

    def __init__(self, apps, model=MODEL, **options):
        self.apps, self.model, self.options = list(apps), model, Options(**options)
        self.state, self.records, self.tasks = State(), [], []

    @property
    def nodes(self):
        return [str(1000 + k) for k in range(len(self.apps))]

    def round(self, *, only=None, lost=(), replies=None):
        """Run one round; `only` these clients are sampled, and of the `lost` and late ones no reply comes."""
        sampled = [str(1000 + k) for k in (range(len(self.apps)) if only is None else only)]
        self.state = with_nodes(self.state, self.nodes)
        new = [node for node in self.nodes if not self.state.of(node).identity.answered]
        answers = {node: self._app(node).about(int(node) - 1000) for node in new}
        self.state = with_answers(self.state, self.options, answers)
        cycle = self.state.cycle + 1
        self.state, self.tasks, record = plan(self.state, self.options, cycle, sampled, len(self.apps))
        simulated = any(self.state.of(task.node).identity.simulated for task in self.tasks)
        deadline_s = self.options.deadline_s(record.cycle_time_s, simulated=simulated) or math.inf
        came, took = {}, [0.0]
        for task in self.tasks:
            k = int(task.node) - 1000
            reply = self.apps[k].reply(k, task, self.model)
            reply = (replies or {}).get(task.node, reply)
            late = k in lost or (reply.round_trip_s or 0.0) > deadline_s
            took.append(deadline_s if late else reply.round_trip_s or 0.0)
            came |= {} if late else {task.node: reply}
        came |= replies or {}
        self.waited_s = max(x for x in took if x < math.inf)
        self.state, record, self.updates = settle(
            self.state, self.options, record, came, self.model, self.waited_s
        )
        self.records.append(record)
        return record

    def rounds(self, n, **how):
        for _ in range(n):
            self.round(**how)
        return self.records

    def row_of_each_round(self, k):
        return [self.row(k, record) for record in self.records]

    def _app(self, node):
        return self.apps[int(node) - 1000]

    def learner(self, k):
        return self.state.of(str(1000 + k))

    def row(self, k, record=None):
        rows = (record or self.records[-1]).learners
        return next(row for row in rows if row.node == str(1000 + k))
