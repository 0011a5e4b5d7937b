"""Every rival learns, keeps the books straight and repeats itself; each does what its paper says."""

from dataclasses import replace
from unittest import mock

import flwr.common as flower
import flwr.server.strategy as flwr
import numpy as np
import pytest
from mel_simulation.arena.bout import Bout, fight
from mel_simulation.arena.rivals import OURS, RIVALS, fedzero, tifl
from mel_simulation.arena.rivals.fedadam import FedAdam
from mel_simulation.arena.rivals.fedasync import FedAsync
from mel_simulation.arena.rivals.fedavg import FedAvg
from mel_simulation.arena.rivals.fedavgm import FedAvgM
from mel_simulation.arena.rivals.fedbuff import FedBuff
from mel_simulation.arena.rivals.fedcompass import FedCompass
from mel_simulation.arena.rivals.fednova import FedNova
from mel_simulation.arena.rivals.fedprox import FedProx
from mel_simulation.arena.rivals.fedzero import FedZero
from mel_simulation.arena.rivals.oort import Oort
from mel_simulation.arena.rivals.ours import Allocated
from mel_simulation.arena.rivals.rate import BestRounds
from mel_simulation.arena.rivals.tifl import TiFL
from mel_simulation.arena.rounds import average, epoch_seconds
from mel_simulation.arena.setting import Setting
from mel_simulation.arena.world import World
from mel_simulation.scenario.config import ADAM

from flwr_mel.cycle.options import Average

SMALL = Setting("small", "Small", "digits", samples=400, learners=8, targets=(0.99,), rounds=3)


def played(rival, setting=SMALL, seed=0):
    world = World(setting, seed)
    rival.run(world)
    assert world.over
    return world


def sends(world):
    return [event for event in world.log if event.what == "send"]


def rounds(world):
    """Split the jobs by the model they begin with."""
    found = {}
    for event in sends(world):
        found.setdefault(event.version, []).append(event)
    return list(found.values())


def lasted(world, jobs):
    """Return how long the jobs of a round took."""
    ends = {event.job: event.at_s for event in world.log if event.what == "arrive"}
    return max(ends[job.job] for job in jobs) - jobs[0].at_s


@pytest.mark.parametrize("name", RIVALS)
def test_learns_with_straight_books_and_repeats_itself(name):
    bout = Bout(SMALL, name, 0, 0)
    outcome, log = fight(bout)  # which audits the log
    again, same = fight(bout)
    assert outcome == again
    assert log == same
    curve = [accuracy for _, accuracy, _ in outcome["curve"]]
    assert max(curve) > curve[0] + 0.1
    assert outcome["reached"] == [None]


def test_all_are_tuned_alike():
    assert {len(set(choices)) for choices in RIVALS.values()} == {4}


@pytest.mark.parametrize("choice", [1, *(pytest.param(k, marks=pytest.mark.slow) for k in (2, 3))])
@pytest.mark.parametrize("name", RIVALS)
def test_other_settings_run_too(name, choice):
    fight(Bout(replace(SMALL, rounds=1.5), name, choice, 0))


def test_tifl_asks_the_less_accurate_tiers_more_often():
    accuracy, some = np.array([0.9, 0.5, 0.7]), np.array([2, 2, 2])
    assert tifl._by_need(accuracy, some) == pytest.approx([0, 2 / 3, 1 / 3])
    assert tifl._by_need(accuracy, np.array([1, 0, 1])) == pytest.approx([0, 0, 1])
    assert tifl._by_need(accuracy, np.array([1, 0, 0])) == pytest.approx([1, 0, 0])


def test_tifl_goes_on_when_all_credits_are_spent():
    """Two tiers, one of them soon without credits; accuracies are looked at after every round."""
    world = played(TiFL(2, interval=1), replace(SMALL, rounds=6))
    tiers = np.array_split(np.argsort(epoch_seconds(world, 1), kind="stable"), 2)
    asked = [{event.learner for event in jobs} for jobs in rounds(world)]
    assert all(jobs in [set(tier.tolist()) for tier in tiers] for jobs in asked)
    assert len({tuple(sorted(jobs)) for jobs in asked}) == 2


def test_fedavg_is_the_mean_of_what_all_do():
    world = played(FedAvg(1), replace(SMALL, rounds=1.01))
    other = World(SMALL, 0)
    for k in range(8):
        other.send(k, 1)
    back = sorted((other.wait() for _ in range(8)), key=lambda a: a.job.number)
    wanted = average(other, back)
    assert world.version == 1
    assert all((a == b).all() for a, b in zip(world.model, wanted, strict=True))


def test_fedavg_that_drops_waits_for_its_share_only():
    world = played(FedAvg(1, 0.5))
    assert sum(event.what == "stop" for event in world.log) >= 4
    first = [event.learner for event in world.log if event.what == "arrive"][:4]
    assert set(first) == set(np.argsort(epoch_seconds(world))[:4])


def test_fedprox_gives_what_fits_and_pulls_back():
    world = played(FedProx(0.01, 1.0, 5))
    by_speed = np.argsort(epoch_seconds(world))
    epochs = {event.learner: event.epochs for event in sends(world)}
    assert [epochs[k] for k in by_speed] == sorted(epochs.values(), reverse=True)
    assert epochs[by_speed[-1]] == 1 < epochs[by_speed[0]]
    free, held = (played(FedProx(mu), replace(SMALL, rounds=1.01)) for mu in (0.0, 10.0))
    start = World(SMALL, 0).model

    def far(world):
        return sum(float(((a - b) ** 2).sum()) for a, b in zip(world.model, start, strict=True))

    assert far(held) < far(free)


def test_fednova_with_equal_work_is_fedavg():
    short = replace(SMALL, rounds=1.01)
    nova, plain = played(FedNova(1.0, 1), short), played(FedAvg(1), short)
    for a, b in zip(nova.model, plain.model, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("rival", [FedProx(0.01, 0.3), FedNova(0.3)])
def test_a_deadline_too_short_for_all_data_is_filled_with_samples(rival):
    world = played(rival)
    first = rounds(world)[0]
    alone = np.array([event.epochs * event.samples for event in first]) / world.held
    assert len(first) == 8
    assert min(alone) < 1 <= max(alone)
    assert lasted(world, first) <= 0.3 * world.round_s
    some = next(event for event in first if event.samples < world.held[event.learner])
    more = np.where(np.arange(8) == some.learner, some.samples + 1, 0)
    assert world.seconds(np.ones(8, dtype=int), more)[some.learner] > 0.3 * world.round_s


def test_where_time_is_for_one_epoch_only_ours_is_to_fill_it():
    free = replace(SMALL, power_w=0.0)
    ours, filled = played(Allocated("ha-asyn", 0.1, average=Average.NOVA), free), played(FedNova(0.1), free)
    assert {event.epochs for event in sends(ours)} == {1}
    assert ours.log == filled.log
    assert ours.looks == filled.looks


@pytest.mark.parametrize("rival", [FedProx(0.01, 1e-3), FedNova(1e-3), Allocated("ha-asyn", 1e-3)])
def test_where_nobody_can_do_anything_the_bout_ends(rival):
    world = played(rival)
    assert world.version == 0
    assert not sends(world)


@pytest.mark.parametrize("name", RIVALS)
def test_devices_that_throttle_themselves_keep_the_limit_whoever_asks(name):
    setting = replace(SMALL, power_w=0.2, throttled=True, rounds=1.5)
    _, log = fight(Bout(setting, name, 0, 0))  # which audits the log, with the limit
    sent = {event.job: event for event in log if event.what == "send"}
    back = [event for event in log if event.what == "arrive"]
    assert back
    powers = [event.energy_j / (event.at_s - sent[event.job].at_s) for event in back]
    assert max(powers) == pytest.approx(0.2)


def test_oort_overcommits_and_takes_the_first():
    world = played(Oort(0.5))
    first = rounds(world)[0]
    assert len(first) == 6  # 1.3 times half of 8, rounded up
    at = next(i for i, event in enumerate(world.log) if event.what == "model")
    assert sum(event.what == "arrive" for event in world.log[:at]) == 4


def test_fedzero_keeps_time_and_energy_of_its_round():
    world = played(FedZero(0.5, 5), replace(SMALL, rounds=24))
    power = world.setting.power_w
    needs = np.maximum(epoch_seconds(world), world.costs.energy_j(np.ones(8, dtype=int), world.held) / power)
    for some in rounds(world)[:-1]:
        length = max(needs[event.learner] for event in some)
        assert lasted(world, some) <= length * (1 + 1e-9)
        assert max(event.energy_j for event in some) <= power * length * (1 + 1e-9)
    assert len({event.learner for event in sends(world)}) == 8


def test_fedasync_mixes_every_arrival_in_and_keeps_all_busy():
    world = played(FedAsync())
    arrivals = sum(event.what == "arrive" for event in world.log)
    assert world.version == arrivals
    assert len(sends(world)) == 8 + arrivals


def test_fedbuff_moves_when_the_buffer_is_full():
    world = played(FedBuff(3))
    kinds = [event.what for event in world.log if event.what in ("arrive", "model")]
    assert kinds[: 4 * (len(kinds) // 4)] == ["arrive", "arrive", "arrive", "model"] * (len(kinds) // 4)


def test_fedcompass_brings_groups_home_together():
    world = played(FedCompass(2.0), replace(SMALL, rounds=6))
    work = {k: [event.samples for event in sends(world) if event.learner == k] for k in range(8)}
    speed = np.argsort(epoch_seconds(world))
    assert np.mean(work[int(speed[0])]) > np.mean(work[int(speed[-1])])
    models = sum(event.what == "model" for event in world.log)
    assert models < sum(event.what == "arrive" for event in world.log)


@pytest.mark.parametrize("name", [name for name in OURS if not name.startswith("rate")])
def test_ours_keeps_time_energy_and_staleness(name):
    ours = RIVALS[name][0]
    staleness = 0 if name == "ha-sync" else 2
    world = played(ours)
    cycle_s = world.round_s * (ours.inner if isinstance(ours, FedAvgM | FedAdam) else ours).cycle
    for some in rounds(world)[:-1]:
        epochs = [event.epochs for event in some]
        assert max(epochs) - min(epochs) <= staleness
        assert max(event.energy_j for event in some) <= cycle_s * world.setting.power_w
        assert lasted(world, some) <= cycle_s * (1 + 1e-9)


@pytest.mark.parametrize("power_w", [0.0, 1.0, 0.2])
def test_rate_asks_all_in_rounds_of_one_length_that_keep_the_power(power_w):
    world = played(BestRounds(), replace(SMALL, power_w=power_w, rounds=12))
    starts = [some[0].at_s for some in rounds(world)]
    lengths = np.diff(starts)
    assert len(starts) > 2
    assert lengths == pytest.approx(lengths[0])
    for some in rounds(world):
        assert len({event.learner for event in some}) == 8
        assert all(event.epochs == 1 and event.samples >= 16 for event in some)
        if power_w:
            assert max(event.energy_j for event in some) <= power_w * lengths[0] * (1 + 1e-9)


def test_frugality_saves_energy():
    free = replace(SMALL, power_w=0.0)
    fast, frugal = (played(BestRounds(f), free).energy_j() for f in (0.0, 0.25))
    assert frugal < fast / 2


SERVERS = [
    (FedAvgM(FedAvg(1), 0.7), flwr.FedAvgM, {"server_momentum": 0.7}),
    (FedAdam(FedAvg(1), 0.01), flwr.FedAdam, {"eta": 0.01, **ADAM}),
]


@pytest.mark.parametrize(("rival", "kind", "values"), SERVERS)
def test_the_server_steps_as_flowers_strategy_does(rival, kind, values):
    """Three rounds of FedAvg's averages, given to Flower's own strategy."""
    world, averages = World(replace(SMALL, rounds=3.5), 0), []
    flowers = kind(initial_parameters=flower.ndarrays_to_parameters(world.model), min_fit_clients=1, **values)
    step = World.publish

    def watched(self, weights):
        averages.append(weights)
        # From the same bits: Adam makes large steps of tiny differences.
        flowers.current_weights = self.model
        step(self, weights)
        result = flower.FitRes(
            flower.Status(flower.Code.OK, ""), flower.ndarrays_to_parameters(weights), 1, {}
        )
        parameters, _ = flowers.aggregate_fit(len(averages), [(None, result)], [])
        for ours, theirs in zip(self.model, flower.parameters_to_ndarrays(parameters), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)

    with mock.patch.object(World, "publish", watched):
        rival.run(world)
    assert len(averages) == 3
    # The third step does not lead to the average any more.
    assert any(abs(a - b).max() > 1e-3 for a, b in zip(averages[-1], world.model, strict=True))


def test_fedzero_lets_in_again_by_how_much_more_than_the_mean_somebody_was_used():
    used = np.array([0, 1, 2, 3, 6, 0])
    assert fedzero._released(used, 1.0).tolist() == pytest.approx([1, 1, 1, 1, 1 / 4, 1])
    assert fedzero._released(used, 2.0).tolist() == pytest.approx([1, 1, 1, 1, 1 / 16, 1])
