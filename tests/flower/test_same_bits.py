"""One algorithm, three ways to run it: classic strategy, Message strategy, plain torch loop."""

import numpy as np
import pytest
from mel_simulation.scenario.data import embedded

from tests.flower import lab

CYCLES = 3


@pytest.mark.parametrize("mode", ["federated", "parallelized"])
def test_both_apis_and_the_reference_loop_give_the_same_bits(mode, message_run, classic_run):
    data = embedded()
    weights, work = lab.reference(data.train_x, data.train_y, CYCLES, shipped=mode == "parallelized")
    for run in (message_run, classic_run):
        records = run.records(mode)
        done = [([r.epochs for r in c.learners], [r.samples for r in c.learners]) for c in records]
        assert done == work
        for ours, plain in zip(run.weights(mode), weights, strict=True):
            assert ours.dtype == plain.dtype
            np.testing.assert_array_equal(ours, plain)


def test_the_work_differs_between_learners_and_cycles(message_run):
    records = message_run.records("federated")
    assert len(records) == CYCLES
    for record in records:
        epochs = [row.epochs for row in record.learners if row.epochs]
        assert 0 < max(epochs) - min(epochs) <= lab.STALENESS
        assert len({row.samples for row in record.learners}) > 5
        assert sum(row.samples for row in record.learners) == lab.TOTAL


def test_a_learner_without_energy_is_left_out_and_comes_back(run):
    rows = [record.learners[7] for record in run.records("federated")]
    assert [row.learner for row in rows] == ["7"] * 3
    assert [bool(row.samples) for row in rows] == [True, False, True]
    assert "energy" in rows[1].reason


def test_equal_devices_and_data_reproduce_plain_fedavg(run):
    """MelStrategy(FedAvg()) against FedAvg(), in which every client reads its own ``local-epochs``."""
    record = run.records("equal")[-1]
    assert {(row.epochs, row.samples, row.weight) for row in record.learners} == {(3, 60, 60)}
    for ours, plain in zip(run.weights("equal"), run.weights("plain"), strict=True):
        np.testing.assert_array_equal(ours, plain)
    moved = [np.abs(a - b).max() for a, b in zip(run.weights("equal"), lab.initial_weights(), strict=True)]
    assert min(moved) > 0
