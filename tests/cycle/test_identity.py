"""Who a client is: its node id in a deployment, its partition id in a simulation. Labels are only labels."""

import pytest

from flwr_mel import Device, Measured, Workload, wire
from flwr_mel.cycle.estimate import Estimate
from flwr_mel.cycle.options import Options
from flwr_mel.cycle.plan import plan
from flwr_mel.cycle.state import State, with_answers, with_nodes
from tests.cycle.tools import COSTS, App, Run, declared

SIMULATED = {wire.MODDED: 1, wire.SIMULATED: 1}
OPTIONS = Options(cycle_time_s=10.0, total_samples=100)


def known(answers, state=None):
    return with_answers(with_nodes(state or State(), list(answers)), OPTIONS, answers)


def test_a_node_is_itself_in_a_deployment():
    state = known({"71": {wire.MODDED: 1, wire.LEARNER: "pi", wire.PARTITION: 3, **declared()}})
    assert state.of("71").key == "71"
    assert state.of("71").label == "pi"


def test_a_partition_is_the_identity_in_a_simulation():
    state = known({"71": {**SIMULATED, wire.PARTITION: 3}})
    assert (state.of("71").key, state.of("71").label, state.of("71").node) == ("3", "3", "71")
    assert "71" not in state.learners


def test_a_deployed_client_returns_with_what_was_learned_of_it():
    state = known({"71": {wire.MODDED: 1, **declared()}})
    learned = state.of("71").estimate.missed(None)
    x = state.of("71")
    state = state.with_learners([x.__class__("71", "71", "71", estimate=learned, costs=x.costs)])
    state = with_nodes(state, ["72"])  # 71 is away
    state = known({"71": {wire.MODDED: 1, **declared()}, "72": {wire.MODDED: 1}}, state)
    assert state.of("71").estimate == learned


@pytest.mark.parametrize("partition", [5, 2**63 - 1, 1844, -1, True, "1844", 1844.0, b"x", [1844]])
def test_nobody_takes_the_identity_of_another(partition):
    """Neither of a client that is there, nor of one that is away; node ids have 64 bits."""
    away, here, liar = str(2**63 - 1), "1844", "99"
    state = known({away: {wire.MODDED: 1, wire.LEARNER: "away", **declared()}})
    state = known({here: {wire.MODDED: 1, wire.LEARNER: "here", **declared()}}, state)
    state = known({here: {wire.MODDED: 1}, liar: {**SIMULATED, wire.PARTITION: partition}}, state)
    assert state.of(here).label == "here"
    assert state.of(liar).key not in (here, away)
    assert state.learners[away].label == "away"


def test_two_nodes_of_one_partition_stay_two():
    words = {**SIMULATED, wire.PARTITION: 0, **declared()}
    state = known({"71": words, "72": words})
    assert {state.of("71").key, state.of("72").key} == {"0", "72"}
    _, tasks, record = plan(state, OPTIONS, 1, ["71", "72"], 2)
    assert {task.node for task in tasks} == {"71", "72"}
    assert len(record.learners) == 2


def test_equal_labels_are_two_clients():
    words = {wire.MODDED: 1, wire.LEARNER: "pi", **declared()}
    state = known({"71": words, "72": words})
    _, tasks, record = plan(state, OPTIONS, 1, ["71", "72"], 2)
    assert [row.learner for row in record.learners] == ["pi", "pi"]
    assert {task.node for task in tasks} == {"71", "72"}


def test_numbers_come_in_their_order():
    state = known({str(90 - k): {**SIMULATED, wire.PARTITION: k} for k in range(12)})
    assert [x.label for x in state.present(state.keys)] == [str(k) for k in range(12)]


def test_silence_and_nonsense_change_nothing_that_is_known():
    state = known({"71": {wire.MODDED: 1, **declared(), wire.MAX_SAMPLES: 50}})
    before = state.of("71")
    silent = with_answers(state, OPTIONS, {"71": None}).of("71")
    assert (silent.capability, silent.estimate) == (before.capability, before.estimate)
    absurd = with_answers(state, OPTIONS, {"71": {wire.MODDED: 1, wire.CPU_HZ: -5.0}}).of("71")
    assert (absurd.capability, absurd.estimate) == (before.capability, before.estimate)
    assert "mel-cpu-hz" in absurd.problem


def test_new_costs_start_a_new_estimate():
    state = known({"71": {wire.MODDED: 1, **declared()}})
    faster = (1e-4, *COSTS[1:])
    state = with_answers(state, OPTIONS, {"71": {wire.MODDED: 1, **declared(faster)}})
    assert state.of("71").estimate == Estimate.declared(faster, None)


def test_declared_costs_replace_measured_ones():
    """Among them the energy, which was not known before."""
    run = Run([App(), App()], cycle_time_s=10.0)
    run.round()
    assert run.learner(0).estimate.costs()[3:] == (0.0, 0.0, 0.0)
    run.state = with_answers(run.state, run.options, {"1000": {wire.MODDED: 1, **declared()}})
    assert run.learner(0).estimate == Estimate.declared(COSTS, None)


def test_the_default_device_stands_in():
    options = Options(cycle_time_s=1.0, default_device=Measured(*COSTS, max_samples=40))
    state = with_answers(with_nodes(State(), ["1"]), options, {"1": {wire.MODDED: 1}})
    assert state.of("1").costs == COSTS
    assert state.of("1").data == 40


def test_physical_values_need_a_workload():
    words = {wire.MODDED: 1, wire.CPU_HZ: 1e9, wire.RATE_BPS: 1e6, wire.TX_POWER_W: 0.2}
    without = with_answers(with_nodes(State(), ["1"]), OPTIONS, {"1": words}).of("1")
    assert without.estimate is None
    options = Options(cycle_time_s=10.0, total_samples=10, workload=Workload.mlp((4, 3)))
    given = with_answers(with_nodes(State(), ["1"]), options, {"1": words}).of("1")
    assert given.capability.device == Device(1e9, 1e6, 0.2)
    assert given.costs is not None


@pytest.mark.parametrize("data", [{}, {"learners": 3}, {"learners": {"1": {}}}, None, []])
def test_what_is_no_checkpoint_is_refused(data):
    with pytest.raises(ValueError, match="state"):
        State.from_dict(data)


def test_only_so_many_absent_clients_are_remembered():
    state = with_nodes(State(), [str(k) for k in range(3000)])
    assert len(with_nodes(state, ["1", "2"]).learners) == 1002
