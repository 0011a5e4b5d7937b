"""The virtual fleet, what a configuration comes to, and how messages reach the learners."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from mel_simulation.app.message_window import Windowed
from mel_simulation.app.server_app import wait_for_nodes
from mel_simulation.scenario import job
from mel_simulation.scenario.config import RunConfig
from mel_simulation.scenario.job import learners_of, names_of

from flwr_mel.allocation import Infeasible
from flwr_mel.devices import Measured
from flwr_mel.paper import paper_fleet
from flwr_mel.tools.fleetfile import Fleet, write_fleet


def test_the_fleet_follows_from_seed_and_cycle():
    config = RunConfig()
    assert learners_of(config, 3) == learners_of(replace(config, cycles=99), 3)
    assert learners_of(config, 3) != learners_of(replace(config, seed=1), 3)
    limits = [[d.energy_limit_j for d in learners_of(config, cycle)] for cycle in (1, 2)]
    assert all(7.5 < limit < 12.5 for some in limits for limit in some)
    assert limits[0] != limits[1]
    assert all(d.energy_limit_j is None for d in learners_of(replace(config, energy=0.0), 1))


def test_learners_declare_what_they_can_and_hold():
    config = RunConfig(mode="fl", alpha=0.5)
    words = job.capability(config, 4, 3)
    assert words["mel-learner"] == learners_of(config, 3)[4].name
    assert words["mel-energy-limit-j"] == learners_of(config, 3)[4].energy_limit_j
    assert words["mel-max-samples"] == len(job.local_indices(config, 4))
    assert "mel-max-samples" not in job.capability(replace(config, mode="pl", alpha=0.0), 4, 3)


def test_fleets_from_files(tmp_path):
    known = paper_fleet(np.random.default_rng(5), 6)
    (tmp_path / "f.toml").write_text(write_fleet(Fleet(known)))
    config = RunConfig(learners=6, fleet=str(tmp_path / "f.toml"))
    assert learners_of(config, 1) == learners_of(config, 2) == tuple(known)
    with pytest.raises(ValueError, match=r"learners must be 6, as many as .* has, got 20"):
        learners_of(replace(config, learners=20), 1)
    told = Measured(1e-4, 1e-3, 1.0, 1e-4, 0.0, 0.1, energy_limit_j=9.0, max_samples=80)
    (tmp_path / "m.toml").write_text(write_fleet(Fleet([told])))
    config = RunConfig(learners=1, fleet=str(tmp_path / "m.toml"))
    for mode in ("pl", "fl"):  # the one learner holds all 4,000 samples, more than its limit
        words = job.capability(replace(config, mode=mode), 0, 1)
        assert words["mel-learner"] == names_of(config)[0] == "device-1"
        assert (words["mel-c2"], words["mel-energy-limit-j"], words["mel-max-samples"]) == (1e-4, 9.0, 80)


def test_the_subset_is_costed_like_the_papers_samples():
    config = RunConfig()
    assert (job.total_samples(config), job.min_samples(config), job.batch_size(config)) == (4000, 7, 16)
    assert job.workload_of(config).operations_per_sample == 15 * 1_123_736
    assert job.total_samples(replace(config, mode="fl")) == 2000
    assert job.min_samples(replace(config, learners=1000)) == 2  # half of 4 samples each


def test_partitions_are_kept_for_other_processes(monkeypatch):
    config = RunConfig(mode="fl", alpha=0.5)
    parts = [job.local_indices(config, k) for k in range(20)]
    assert sorted(np.concatenate(parts)) == list(range(4000))
    job._partitions.cache_clear()
    monkeypatch.setattr(job, "partition", None)
    assert all(np.array_equal(part, job.local_indices(config, k)) for k, part in enumerate(parts))


def test_problems_of_a_run():
    config = RunConfig(mode="fl", alpha=0.5)
    held = [len(job.local_indices(config, k)) for k in range(20)]
    assert job.problem_of(config, 1).max_samples.tolist() == held
    straight, turned = (job.problem_of(RunConfig(), 1, order) for order in (None, range(19, -1, -1)))
    assert turned.coefficients.c2.tolist() == straight.coefficients.c2.tolist()[::-1]
    with pytest.raises(Infeasible):
        job.check_feasible(RunConfig(scheme="hu-sync"))


class FakeGrid:
    def __init__(self, *counts):
        self.counts = list(counts)

    def get_node_ids(self):
        return range(self.counts.pop(0) if len(self.counts) > 1 else self.counts[0])


def test_the_server_waits_for_all_nodes():
    wait_for_nodes(FakeGrid(0, 3, 20), 20)
    with pytest.raises(ValueError, match="num-supernodes=20"):
        wait_for_nodes(FakeGrid(2), 20, patience_s=0.1)


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
        return [SimpleNamespace(metadata=SimpleNamespace(reply_to_message_id=i)) for i in answered]


def test_messages_go_out_a_few_at_a_time(monkeypatch):
    slept = []
    clock = SimpleNamespace(sleep=slept.append, monotonic=lambda: sum(slept))
    monkeypatch.setattr("mel_simulation.app.message_window.time", clock)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    inner = SlowGrid()
    replies = Windowed(inner).send_and_receive(range(200))
    assert sorted(int(r.metadata.reply_to_message_id) for r in replies) == list(range(200))
    assert inner.most == 32
    assert len(Windowed(SlowGrid(lost=("3",))).send_and_receive(range(5), timeout=0.3)) == 4
    assert Windowed(inner).held == []  # everything else is the grid's own
