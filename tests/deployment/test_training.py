"""Real processes over TLS: shards are shipped, work follows speed, the cycle time holds, the model is right.

Data that devices hold themselves are in `test_truth` and `test_faults`.
"""

from pathlib import Path

import numpy as np
import pytest

from flwr_mel._processes import tree
from flwr_mel.records import Outcome
from tests.deployment.reference import records_of, same_model, work_of
from tests.deployment.tools import blobs, save_data

NAMES = [f"device-{k}" for k in range(3)]
DATASET = blobs(7, 150)


@pytest.fixture(scope="module")
def trained(federation):
    run_dir, data = federation.root / "parallelized", federation.root / "server-data"
    save_data(data, *DATASET)
    save_data(data, *blobs(8, 200), prefix="test-")
    config = {"mode": "parallelized", "learning": False, "cycle_time": 6.0, "overhead": 0.0}
    federation.complete(cycles=2, data_dir=str(data), run_dir=str(run_dir), staleness=3, **config)
    return run_dir


def test_faster_devices_get_more_work(trained):
    for record in records_of(trained):
        assert [row.learner for row in record.learners] == NAMES
        work = work_of(record)
        # Each device is a third as fast as the one before.
        assert work["device-0"] > 1.3 * work["device-1"] > 1.3**2 * work["device-2"] > 0
        assert record.total_samples == 150


def test_everybody_reports_within_the_cycle_time(trained):
    for record in records_of(trained):
        for row in record.learners:
            assert row.outcome is Outcome.USED
            assert 0 < row.reported_time_s <= record.cycle_time_s
            assert row.weight == row.samples


def test_the_model_is_the_weighted_average_of_the_devices_work(trained):
    assert len(same_model(trained, dataset=DATASET)) == 2


def test_messages_are_answered_by_forks_of_one_process(federation, trained):
    """See `flwr_mel.deployment.ready`: it has done what the run asked of this device, and Flower nothing."""
    words = {seen.pid: words_of(seen.pid) for seen in tree(federation.nodes["device-0"].pid)}
    (parent,) = (pid for pid, each in words.items() if "flwr_mel.deployment.ready" in each)
    stat = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()
    assert sum(map(int, stat[13:15])) > 0  # processor time of children that have ended
    assert len(records_of(trained)) == 2


def words_of(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")


def test_larger_shards_are_shipped_to_faster_devices(trained):
    for record in records_of(trained):
        assert np.argsort([-row.samples for row in record.learners]).tolist() == [0, 1, 2]
        assert record.metrics["accuracy"] > 0.5
