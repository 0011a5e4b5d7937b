"""What learners say of themselves, whatever it is."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_mel import Device, Workload, wire
from flwr_mel.clientapp import describe
from flwr_mel.devices import Measured
from flwr_mel.orchestrator import (
    Capability,
    Orchestrator,
    Returned,
    Settings,
)
from tests.orchestrator.tools import MEASURED, made, nodes, words


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, 1e300, "fast", b"\xff", True, [1.0], 10**400])
@pytest.mark.parametrize("key", [wire.CPU_HZ, wire.COEFFICIENTS[0], wire.ENERGY_LIMIT_J, wire.MAX_SAMPLES])
def test_impossible_words_leave_a_newcomer_out_and_an_acquaintance_as_it_was(key, bad):
    brain = made(2)
    brain.hear("n1", {**words(1), key: bad})
    brain.hear("new", {**words(9), key: bad})
    plan = brain.plan(1, [*nodes(brain)])
    if bad == 10**400 or not (key == wire.CPU_HZ and bad == 1e300):
        assert [task.learner for task in plan.tasks] == ["0", "1"]
    left = brain.record.learners[-1]
    assert left.learner == "9"
    assert "refused" in left.reason
    assert key in left.reason
    assert any(note.startswith("1: its capabilities are refused") for note in brain.record.notes)


ANYTHING = st.one_of(
    st.floats(),
    st.integers(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.booleans(),
    st.none(),
    st.lists(st.floats(), max_size=2),
)


@given(st.dictionaries(st.sampled_from((*wire.CAPABILITY_KEYS, wire.TRAIN_SECONDS, "other")), ANYTHING))
@settings(max_examples=200, deadline=None)
def test_nothing_a_learner_says_breaks_the_cycle(said):
    brain = made(3, workload=Workload.mlp((8, 4), ship_data=False), cycle_time_s=20.0, max_epochs=50)
    brain.hear("n2", said)
    brain.hear("new", said)
    plan = brain.plan(1, nodes(brain))
    assert {"0", "1"} <= {task.learner for task in plan.tasks}
    brain.settle(Returned({t.node: t.samples for t in plan.tasks}, {}, {"n0": said}))
    brain.close()


def test_silence_erases_nothing():
    brain = made(2)
    brain.hear("n1", None)
    brain.hear("n1", {})
    assert len(brain.plan(1, nodes(brain)).tasks) == 2


def test_limits_alone_update_what_is_known():
    brain = made(1)
    brain.hear("n0", {wire.LEARNER: "0", wire.MAX_SAMPLES: 7, wire.BATTERY_J: 3.0})
    known = brain.state.learners["n0"].capability
    assert (known.max_samples, known.battery_j, known.measured) == (7, 3.0, tuple(MEASURED.values()))


def test_the_default_profile_is_for_the_silent_and_keeps_the_limits_they_give():
    device = Device(1e9, 1e7, 0.1, max_samples=40)
    brain = made(0, default_profile=device, workload=Workload.mlp((8, 4), ship_data=False), max_epochs=9)
    brain.hear("a", None)
    brain.hear("b", {wire.LEARNER: "b", wire.MAX_SAMPLES: 30})
    brain.hear("c", {wire.LEARNER: "c", wire.CPU_HZ: -1.0})
    brain.plan(1, nodes(brain))
    given_out = {row.learner: row.samples for row in brain.record.learners}
    assert sum(given_out.values()) == 100
    assert max(given_out["a"], given_out["c"]) <= 40
    assert 0 < given_out["b"] <= 30
    assert any(note.startswith("c: its capabilities are refused") for note in brain.record.notes)


def test_physical_values_without_a_workload_are_the_users_mistake():
    brain = Orchestrator(Settings(cycle_time_s=1.0, total_samples=10))
    brain.hear("a", describe(Device(1e9, 1e7, 0.1), learner="a"))
    with pytest.raises(ValueError, match=r"learner 'a' gives physical values .* needs workload="):
        brain.plan(1, ["a"])
    mixed = made(2)
    mixed.hear("a", describe(Device(1e9, 1e7, 0.1), learner="a"))
    assert len(mixed.plan(1, nodes(mixed)).tasks) == 2
    assert "workload=" in mixed.record.learners[-1].reason


def test_federated_learning_without_a_total_needs_to_know_the_data():
    brain = Orchestrator(Settings(cycle_time_s=1.0))
    brain.hear("a", MEASURED)
    with pytest.raises(ValueError, match="total_samples= is not given"):
        brain.plan(1, ["a"])
    brain.hear("b", words("b"))
    plan = brain.plan(1, ["a", "b"])
    assert [(t.learner, t.samples) for t in plan.tasks] == [("b", 100)]


def test_a_learner_too_fast_for_exact_arithmetic_is_refused():
    brain = made(2, cycle_time_s=100.0)
    brain.hear("n1", words(1, **{wire.COEFFICIENTS[0]: 1e-15}))
    assert [t.learner for t in brain.plan(1, nodes(brain)).tasks] == ["0"]
    assert "too fast" in brain.record.learners[1].reason


def test_a_device_survives_the_words_of_the_wire():
    device = Device(
        2e9, 1e7, 0.3, energy_limit_j=4.0, max_samples=9, capacitance=2e-28, exponent=1.5, name="a"
    )
    assert Capability.parse(describe(device, battery_j=8.0), "?") == Capability(
        "a", device=device_without_limits(device), energy_limit_j=4.0, max_samples=9, battery_j=8.0
    )
    measured = Measured(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, max_samples=3, name="m")
    parsed = Capability.parse(describe(measured), "?")
    assert (parsed.measured, parsed.max_samples, parsed.learner) == ((1, 2, 3, 4, 5, 6), 3, "m")


def device_without_limits(d):
    return Device(
        d.cpu_hz, d.rate_bps, d.tx_power_w, capacitance=d.capacitance, exponent=d.exponent, name=d.name
    )
