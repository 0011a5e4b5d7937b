"""The virtual fleet, and how messages reach it."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from mel_simulation.app.message_window import Windowed
from mel_simulation.app.server_app import count_nodes
from mel_simulation.scenario.config import RunConfig
from mel_simulation.scenario.dry_run import rehearse
from mel_simulation.scenario.fleet import VirtualFleet

from flwr_mel.learners import Measured, PaperFleet, paper_fleet
from flwr_mel.learners.paper import PAPER_CLASSES, PAPER_RADIUS_M
from flwr_mel.tools.fleetfile import Fleet, write_fleet, write_fleet_csv


def test_the_fleet_follows_from_seed_and_cycle():
    config = RunConfig(mobility=20.0)
    assert VirtualFleet(20, config).devices(3) == VirtualFleet(20, replace(config, cycles=99)).devices(3)
    assert VirtualFleet(20, config).devices(3) != VirtualFleet(20, replace(config, seed=1)).devices(3)
    words = VirtualFleet(20, config).words(4, 3, None)
    assert words["mel-energy-limit-j"] == VirtualFleet(20, config).devices(3)[4].energy_limit_j
    assert VirtualFleet(20, config).words(4, 3, 150)["mel-max-samples"] == 150


def test_energy_is_drawn_anew_within_the_spread():
    fleet = VirtualFleet(500, RunConfig(energy=20.0, energy_spread=4.0))
    limits = np.array([[d.energy_limit_j for d in fleet.devices(cycle)] for cycle in (1, 2, 3)])
    assert (limits > 16).all()
    assert (limits < 24).all()
    assert limits.min() < 16.2
    assert limits.max() > 23.8
    assert (limits[0] != limits[1]).all()
    assert (limits[1] != limits[2]).all()
    rates = [[d.rate_bps for d in fleet.devices(cycle)] for cycle in (1, 2)]
    assert rates[0] == rates[1]  # nobody moves
    assert all(d.energy_limit_j is None for d in VirtualFleet(20, RunConfig(energy=0.0)).devices(1))


@pytest.mark.parametrize("step_m", [5.0, 100.0, 2000.0])
def test_movers_stay_in_the_disc(step_m):
    fleet = VirtualFleet(200, RunConfig(mobility=step_m))
    walk = PaperFleet(learners=200, mobility_m=step_m)
    places = np.array([walk.distances_m(cycle) for cycle in range(1, 8)])
    assert (places >= 1).all()
    assert (places <= PAPER_RADIUS_M).all()
    assert (places[0] != places[1]).all()
    still = VirtualFleet(200, RunConfig()).devices(1)
    assert np.allclose([d.rate_bps for d in fleet.devices(1)], [d.rate_bps for d in still])
    assert [d.rate_bps for d in fleet.devices(2)] != [d.rate_bps for d in fleet.devices(1)]
    assert [d.cpu_hz for d in fleet.devices(7)] == [d.cpu_hz for d in still]


def test_classes_have_equal_shares():
    names = [d.name.rsplit("-", 1)[0] for d in VirtualFleet(1000, RunConfig()).devices(1)]
    assert {name: names.count(name) for name in PAPER_CLASSES} == dict.fromkeys(PAPER_CLASSES, 250)


def test_fleets_from_files(tmp_path):
    devices = paper_fleet(np.random.default_rng(5), 6)
    (tmp_path / "f.toml").write_text(write_fleet(Fleet(devices)))
    (tmp_path / "f.csv").write_text(write_fleet_csv(Fleet(devices)))
    for name in ("f.toml", "f.csv"):
        fleet = VirtualFleet(6, RunConfig(fleet=str(tmp_path / name)))
        assert fleet.devices(1) == fleet.devices(2) == devices
        rehearse(replace(fleet.config, samples=2000), 6)
        with pytest.raises(ValueError, match=r"learners must be 6, as many as .* has, got 20"):
            VirtualFleet(20, fleet.config).devices(1)
    told = Measured(1e-4, 1e-3, 1.0, 1e-4, 0.0, 0.1, name="bench", energy_limit_j=9.0, max_samples=80)
    (tmp_path / "m.toml").write_text(write_fleet(Fleet([told])))
    words = VirtualFleet(1, RunConfig(fleet=str(tmp_path / "m.toml"))).words(0, 1, 100)
    assert words["mel-learner"] == "bench"
    assert (words["mel-c2"], words["mel-energy-limit-j"], words["mel-max-samples"]) == (1e-4, 9.0, 80)


class FakeGrid:
    def __init__(self, *counts):
        self.counts = list(counts)

    def get_node_ids(self):
        return range(self.counts.pop(0) if len(self.counts) > 1 else self.counts[0])


def test_nodes_are_counted_when_all_are_there():
    assert count_nodes(FakeGrid(0, 3, 20), 0) == 20
    assert count_nodes(FakeGrid(0, 3, 20), 20) == 20
    with pytest.raises(ValueError, match="num-supernodes=20"):
        count_nodes(FakeGrid(2), 20, patience_s=0.6)


class SlowGrid:
    """Answers messages one at a time and remembers how many it held."""

    def __init__(self, lost=()):
        self.held, self.most, self.lost = [], 0, lost

    def push_messages(self, messages):
        ids = [str(m) for m in messages]
        self.held += ids
        self.most = max(self.most, len(self.held))
        return ids

    def pull_messages(self, ids):
        answered = [i for i in self.held if i not in self.lost][:1]
        self.held = [i for i in self.held if i not in answered]
        assert set(answered) <= set(ids)
        return [SimpleNamespace(metadata=SimpleNamespace(reply_to_message_id=i)) for i in answered]


def test_messages_go_out_a_few_at_a_time(monkeypatch):
    slept = []
    clock = SimpleNamespace(sleep=slept.append, monotonic=lambda: sum(slept))
    monkeypatch.setattr("mel_simulation.app.message_window.time", clock)
    monkeypatch.setattr("mel_simulation.app.message_window._cpus", lambda: 2)
    inner = SlowGrid()
    replies = Windowed(inner).send_and_receive(range(200))
    assert sorted(int(r.metadata.reply_to_message_id) for r in replies) == list(range(200))
    assert inner.most == 32
    assert len(Windowed(SlowGrid(lost=("3",))).send_and_receive(range(5), timeout=0.3)) == 4
    assert sum(slept) == pytest.approx(0.3, abs=0.021)
    assert Windowed(SlowGrid()).send_and_receive([]) == []
    assert Windowed(inner).held == []  # everything else is the grid's own
