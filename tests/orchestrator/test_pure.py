"""A cycle is a function: the same state and inputs give the same state, tasks and record, and nothing else.

The room of these functions knows no Flower, no clock and no environment, and compares no prose.
"""

import ast
import copy
from dataclasses import replace
from pathlib import Path

import pytest

import flwr_mel.orchestrator
from flwr_mel import wire
from flwr_mel.learning import Learning
from flwr_mel.orchestrator import Settings, Stopping
from flwr_mel.orchestrator.cycle import close, plan, settle
from flwr_mel.orchestrator.doubts import Doubt, Why
from flwr_mel.orchestrator.hearing import hear, meet, strangers, wait_for
from flwr_mel.orchestrator.returned import Returned
from flwr_mel.orchestrator.state import State
from flwr_mel.records import Outcome

COSTS = dict(zip(wire.COEFFICIENTS, (1e-3, 1e-3, 0.1, 1e-4, 0.0, 0.1), strict=True))
NODES = ("a", "b", "c")
SETTINGS = Settings(cycle_time_s=2.0, total_samples=100, stopping=Stopping(cycles=3), seed=5)


def words(name, **more):
    return {wire.LEARNER: name, wire.MAX_SAMPLES: 100, **COSTS, **more}


def met(settings=SETTINGS):
    answers = {node: words(node.upper()) for node in NODES}
    return hear(meet(State(), NODES), settings, answers)


class Watch:
    """Calls functions and sees to it that they leave their arguments as they are and repeat themselves."""

    def __call__(self, function, *args):
        before = copy.deepcopy(args)
        first = function(*args)
        assert args == before
        assert copy.deepcopy(first) == function(*before)
        return first


@pytest.mark.parametrize("learning", [None, Learning()])
def test_every_step_of_a_cycle_is_a_function(learning):
    watch, settings = Watch(), replace(SETTINGS, learning=learning)
    state = watch(meet, State(), NODES)
    assert strangers(state, NODES) == list(NODES)
    state, awaited = watch(wait_for, state, NODES)
    assert awaited == list(NODES)
    state = watch(hear, state, settings, {node: words(node.upper()) for node in NODES})
    for cycle in (1, 2, 3):
        state = watch(meet, state, NODES, ("d", *NODES))
        before = copy.deepcopy(state)
        state, planned, record = plan(state, settings, cycle, NODES)
        again = plan(before, settings, cycle, NODES)
        assert before == meet(before, NODES, ("d", *NODES))  # as it was
        assert [vars_of(t) for t in planned.tasks] == [vars_of(t) for t in again[1].tasks]
        assert (state, record) == (again[0], again[2])
        used = {task.node: task.samples for task in planned.tasks if task.node != "b"}
        late = {"b": (Outcome.LATE, "no reply in time")}
        reports = {node: {wire.TRAIN_SECONDS: 1.0, **words("other")} for node in used}
        back = Returned(used, late, reports, dict.fromkeys(used, 1.5))
        state, record = watch(settle, state, settings, record, back)
        state, record = watch(close, state, settings, record)
        assert record.cycle == state.cycles_done == cycle
    assert state.stopped.reason == "3 cycles done"


def vars_of(task):
    return (task.node, task.learner, task.cycle, task.epochs, task.samples, task.seed)


def test_a_snapshot_gives_the_state_back():
    state, _, record = plan(met(), SETTINGS, 1, NODES)
    late = dict.fromkeys(NODES, (Outcome.LATE, "no reply in time"))
    state, record = settle(state, SETTINGS, record, Returned(failed=late))
    state, _ = close(state, SETTINGS, record)
    back = State.restored(state.snapshot())
    assert back.snapshot() == state.snapshot()
    heard = hear(meet(back, ("x",)), SETTINGS, {"x": words("B")})
    assert heard.learners["x"].estimate == state.learners["b"].estimate


def test_reasons_are_values_with_words():
    unanswered = hear(meet(State(), ["a"]), SETTINGS, {"a": None}).learners["a"]
    assert unanswered.doubt == Doubt(Why.UNANSWERED)
    silent = hear(meet(State(), ["a"]), SETTINGS, {"a": {}}).learners["a"]
    assert silent.doubt == Doubt(Why.SILENT)
    bad = hear(meet(State(), ["a"]), SETTINGS, {"a": words("A", **{wire.MAX_SAMPLES: -1})}).learners["a"]
    assert bad.doubt.why is Why.REFUSED
    assert str(bad.doubt).startswith("its capabilities are refused: mel-max-samples must be")
    federated = replace(SETTINGS, total_samples=None)
    some = hear(meet(State(), NODES), federated, {"a": words("A"), "b": COSTS, "c": None})
    _, _, record = plan(some, federated, 1, NODES)
    reasons = {row.node: row.reason for row in record.learners}
    assert "does not say how many samples it holds" in reasons["b"]
    assert "did not answer when it was asked" in reasons["c"]
    assert [doubt.of_settings for doubt in (Doubt(Why.NO_TOTAL), Doubt(Why.SILENT))] == [True, False]


FORBIDDEN = {"flwr", "os", "time", "datetime", "pathlib", "subprocess", "socket", "random", "threading"}


def modules():
    return sorted(Path(flwr_mel.orchestrator.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("path", modules(), ids=lambda path: path.name)
def test_the_room_looks_at_nothing_outside(path):
    tree = ast.parse(path.read_text())
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            assert node.func.attr not in ("startswith", "endswith"), (
                f"prose is compared in line {node.lineno}"
            )
    assert not imported & FORBIDDEN
    if path.name != "telling.py":
        assert "logging" not in imported
