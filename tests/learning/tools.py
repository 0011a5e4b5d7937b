"""What these tests share: a brain that learns, and a cycle whose true times are known."""

import numpy as np

from flwr_mel import wire
from flwr_mel.learning import Learning, LogFilter
from flwr_mel.orchestrator import Orchestrator, Returned, Settings

COSTS = (1e-3, 1e-3, 0.1, 1e-4, 0.0, 0.1)
DEFAULT = Learning()


def words(k=0, costs=COSTS, **more):
    said = {} if costs is None else dict(zip(wire.COEFFICIENTS, costs, strict=True))
    return {wire.LEARNER: str(k), wire.MAX_SAMPLES: 1000, **said, **more}


def made(learners=4, learning=DEFAULT, **options):
    defaults = {"cycle_time_s": 10.0, "total_samples": 1000, "staleness": 3}
    brain = Orchestrator(Settings(learning=learning, **(defaults | options)))
    for k in range(learners):
        brain.hear(f"n{k}", words(k))
    return brain


def work(brain, cycle, factor=lambda cycle, k: (1.0, 1.0), rows=None, *, clock=True, claim=None):
    """Let one cycle pass; true times are the declared ones times `factor`. Return tasks and real seconds."""
    plan = brain.plan(cycle, list(brain.state.learners))
    reports, trips = {}, {}
    for task in plan.tasks:
        compute, link = factor(cycle, int(task.node[1:]))
        train = compute * COSTS[0] * task.epochs * task.samples
        trips[task.node] = train + link * (COSTS[1] * task.samples + COSTS[2])
        said = train if claim is None else claim
        reports[task.node] = {wire.TRAIN_SECONDS: said}
    brain.settle(Returned({t.node: t.samples for t in plan.tasks}, {}, reports, trips if clock else {}))
    record = brain.record
    brain.close()
    return {row.node: row for row in record.learners}, trips


def settled(mean=0.0, sd=0.05, n=40, seed=0):
    rng = np.random.default_rng(seed)
    x = LogFilter(0.04, 0.01)
    for _ in range(n):
        x.observe(mean + rng.normal(0, sd), 0.02, 40)
    return x
