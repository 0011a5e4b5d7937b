"""What the tests of slow learners share: fleets with one of another speed, and virtual cycles."""

from flwr_mel import wire
from flwr_mel.orchestrator import Orchestrator, Returned, Settings, Stragglers

T = 10.0


def words(name, speed=1.0, held=100, **more):
    """One that does 165 epochs on a hundred samples in T, times its speed."""
    costs = (T / 1.001 / 165 / 100 / speed, 0.0, 1e-3, 1e-4, 0.0, 0.0)
    return {
        wire.LEARNER: name,
        wire.MAX_SAMPLES: held,
        **dict(zip(wire.COEFFICIENTS, costs, strict=True)),
        **more,
    }


def brain(slow=0.0, learners=10, **options):
    """Ten learners, and one of another speed."""
    defaults = {"cycle_time_s": T, "min_samples": 100, "stragglers": "span"}
    made = Orchestrator(Settings(**(defaults | options)))
    for k in range(learners):
        made.hear(f"n{k}", words(f"l{k}"))
    if slow:
        made.hear("slow", words("slow", slow))
    return made


def virtual_cycle(made, cycle):
    """Plan and settle a cycle as a simulation does: what is over by the virtual clock comes back."""
    tasks = made.plan(cycle, list(made.state.learners)).tasks
    now = {t.node: t for t in tasks}
    over = set(made.due())
    flights = {x.node: x for x in made.state.flights.values()}
    back = {node: x for node, x in flights.items() if node in over and x.cycle < cycle}
    made.arrive({node: {} for node in back}, {})
    spans = made.settings.stragglers is Stragglers.SPAN
    used = {node: t.samples for node, t in now.items() if node in over or not spans}
    moved = {node: x.samples for node, x in back.items()}
    made.settle(Returned(used, {}, {}, moved=moved, open=set(now) - set(used)))
    made.close()
    return made.records[-1]


def row_of(record, name):
    (row,) = [row for row in record.learners if row.learner == name]
    return row
