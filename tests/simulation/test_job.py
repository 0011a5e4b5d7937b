"""What a configuration comes to: samples, costs, partitions, the dry run."""

from dataclasses import replace

import numpy as np
import pytest
from mel_simulation.scenario import job
from mel_simulation.scenario.config import RunConfig
from mel_simulation.scenario.dry_run import rehearse

from flwr_mel.allocation.solution import Infeasible


def test_the_subset_is_costed_like_the_papers_samples():
    config = RunConfig(learners=20)
    assert (job.total_samples(config), job.min_samples(config), job.batch_size(config)) == (4000, 7, 16)
    assert job.workload_of(config).operations_per_sample == 15 * 1_123_736
    assert job.total_samples(replace(config, mode="fl")) == 2000
    assert job.min_samples(replace(config, learners=1000)) == 2  # half of 4 samples each
    assert job.min_samples(replace(config, min_samples=3)) == 3


def test_partitions_are_kept_for_other_processes(tmp_path):
    config = RunConfig(mode="fl", alpha=0.5)
    parts = [job.local_indices(config, k, 20) for k in range(20)]
    assert sorted(np.concatenate(parts)) == list(range(4000))
    [kept] = (tmp_path / "cache" / "partitions").iterdir()
    job._partitions.cache_clear()
    assert all(np.array_equal(a, job.local_indices(config, k, 20)) for k, a in enumerate(parts))
    kept.write_bytes(b"damaged")
    job._partitions.cache_clear()
    assert all(np.array_equal(a, job.local_indices(config, k, 20)) for k, a in enumerate(parts))


def test_rehearsal_passes_sensible_runs_and_refuses_idle_ones():
    rehearse(RunConfig(), 20)
    rehearse(RunConfig(mode="fl", alpha=0.5), 20)
    rehearse(RunConfig(scheme="hu-sync", energy=30.0, cycle_time=30.0), 20)
    rehearse(RunConfig(), 1000)
    rehearse(RunConfig(mode="fl"), 1000)
    with pytest.raises(Infeasible):
        rehearse(RunConfig(scheme="hu-sync"), 20)
    with pytest.raises(ValueError, match="no learner can take part"):
        rehearse(RunConfig(mode="fl", min_samples=250, samples=3000), 20)  # nobody holds that many


def test_a_dry_run_says_nothing(caplog):
    caplog.set_level("INFO")
    rehearse(RunConfig(), 20)
    assert [r.getMessage() for r in caplog.records if r.name == "flwr.mel"] == []
