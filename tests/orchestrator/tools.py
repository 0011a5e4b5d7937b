"""What these tests share: a brain with a few learners, and how a cycle ends well."""

from flwr_mel import wire
from flwr_mel.orchestrator import (
    Orchestrator,
    Returned,
    Settings,
)

MEASURED = dict(zip(wire.COEFFICIENTS, (1e-3, 1e-3, 0.1, 1e-4, 0.0, 0.1), strict=True))


def words(k=0, **more):
    return {wire.LEARNER: str(k), wire.MAX_SAMPLES: 100, **MEASURED, **more}


def made(learners=4, **options):
    defaults = {"cycle_time_s": 2.0, "total_samples": 100, "seed": 5}
    brain = Orchestrator(Settings(**(defaults | options)))
    for k in range(learners):
        brain.hear(f"n{k}", words(k))
    return brain


def nodes(brain):
    return list(brain.state.learners)


def finish(brain, plan, **metrics):
    brain.settle(Returned({task.node: task.samples for task in plan.tasks}, {}, {}))
    brain.observe(metrics)
    brain.close()
    return brain.records[-1]
