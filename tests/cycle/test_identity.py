"""Who a client is: its node id in a deployment, its partition id in a simulation. Labels are only labels."""

from dataclasses import replace

import pytest

from flwr_mel import Coefficients, Device, Measured, Workload, wire
from flwr_mel.cycle.estimate import Estimate
from flwr_mel.cycle.options import Estimation, Options
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
    assert (state.of("71").key, state.of("71").label, state.of("71").identity.node) == ("3", "3", "71")
    assert "71" not in state.learners


def test_a_deployed_client_returns_with_what_was_learned_of_it():
    state = known({"71": {wire.MODDED: 1, **declared()}})
    x = state.of("71")
    learned = x.estimate.missed()
    state = state.with_learners([replace(x, estimate=learned)])
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
    assert silent == before
    absurd = with_answers(state, OPTIONS, {"71": {wire.MODDED: 1, wire.CPU_HZ: -5.0}}).of("71")
    assert (absurd.profile.costs, absurd.estimate) == (before.profile.costs, before.estimate)
    assert absurd.data == 50
    assert "mel-cpu-hz" in absurd.profile.problem


def test_new_costs_start_a_new_estimate_where_nothing_is_learned():
    state = known({"71": {wire.MODDED: 1, **declared()}})
    faster = (1e-4, *COSTS[1:])
    state = with_answers(state, OPTIONS, {"71": {wire.MODDED: 1, **declared(faster)}})
    assert state.of("71").estimate == Estimate.declared(faster, None)


def test_what_was_learned_is_relative_to_what_is_declared():
    options = Options(cycle_time_s=10.0, estimation=Estimation())
    state = with_answers(State(), options, {"71": {wire.MODDED: 1, **declared()}})
    x = state.of("71")
    learned = x.estimate.observe(1000, 500, 4.0, Estimation())
    state = state.with_learners([replace(x, estimate=learned)])
    twice = (2 * COSTS[0], *COSTS[1:])
    state = with_answers(state, options, {"71": {wire.MODDED: 1, **declared(twice)}})
    assert state.of("71").estimate == learned.rebased(COSTS, twice)


def test_declared_costs_replace_measured_ones():
    """Among them the energy, which was not known before."""
    run = Run([App(), App()], cycle_time_s=10.0)
    run.round()
    assert run.learner(0).estimate.costs()[3:] == (0.0, 0.0, 0.0)
    run.state = with_answers(run.state, run.options, {"1000": {wire.MODDED: 1, **declared()}})
    assert run.learner(0).estimate == Estimate.declared(COSTS, None)


def test_an_error_changes_nothing_that_is_known():
    """The words of an error are none of the mod's."""
    answer = {**SIMULATED, wire.PARTITION: 3, wire.LEARNER: "pi", **declared(), wire.MAX_SAMPLES: 50}
    before = known({"71": answer}).of("71")
    after = with_answers(known({"71": answer}), OPTIONS, {"71": {}}).of("71")
    assert after == before


def test_a_profile_holds_as_a_whole():
    """A limit that is not declared any more does not hold any more; a probe's answer is a profile, too."""
    words = {wire.MODDED: 1, **declared(), wire.MAX_SAMPLES: 50, wire.ENERGY_LIMIT_J: 3.0}
    state = known({"71": words})
    assert (state.of("71").profile.energy_limit_j, state.of("71").data) == (3.0, 50)
    state = with_answers(state, OPTIONS, {"71": {wire.MODDED: 1, **declared()}})
    assert (state.of("71").profile.energy_limit_j, state.of("71").data) == (None, None)


def test_the_default_device_stands_in():
    options = Options(cycle_time_s=1.0, default_device=Measured(*COSTS, max_samples=40))
    state = with_answers(with_nodes(State(), ["1"]), options, {"1": {wire.MODDED: 1}})
    assert state.of("1").profile.costs == COSTS
    assert state.of("1").data == 40


def test_physical_values_need_a_workload():
    words = {wire.MODDED: 1, wire.CPU_HZ: 1e9, wire.RATE_BPS: 1e6, wire.TX_POWER_W: 0.2}
    without = with_answers(with_nodes(State(), ["1"]), OPTIONS, {"1": words}).of("1")
    assert without.estimate is None
    assert "needs workload=" in without.profile.problem
    options = Options(cycle_time_s=10.0, total_samples=10, workload=Workload.mlp((4, 3)))
    given = with_answers(with_nodes(State(), ["1"]), options, {"1": words}).of("1")
    c = Coefficients.from_devices([Device(1e9, 1e6, 0.2)], Workload.mlp((4, 3)))
    assert given.profile.costs == pytest.approx([x[0] for x in (c.c2, c.c1, c.c0, c.g2, c.g1, c.g0)])
    assert given.estimate.mean == given.profile.costs[:3]


@pytest.mark.parametrize("data", [{}, {"learners": 3}, {"learners": {"1": {}}}, None, []])
def test_what_is_no_checkpoint_is_refused(data):
    with pytest.raises(ValueError, match="state"):
        State.from_dict(data)


def test_only_so_many_absent_clients_are_remembered():
    state = with_answers(State(), OPTIONS, {str(k): {wire.MODDED: 1} for k in range(3000)})
    kept = with_nodes(state, ["1", "2"]).learners
    assert len(kept) == 1002
    assert {"1", "2", "2999"} <= kept.keys()  # those that left first are forgotten
