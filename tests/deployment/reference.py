"""What a training must come to, computed from its records: the test's own data, seeds and average."""

import sys

import numpy as np

from flwr_mel.clientapp import Assignment
from flwr_mel.orchestrator.planning import draw_seeds
from flwr_mel.records import Outcome, read_jsonl
from tests.deployment.tools import CLASSES, DATA_SEEDS, DEPLOY, FEATURES, blobs

sys.path.insert(0, str(DEPLOY / "app"))
from mel_fleet.model import initial_weights, train


def records_of(run_dir):
    return list(read_jsonl(run_dir / "cycles.jsonl"))


def model_of(run_dir):
    with np.load(run_dir / "model.npz") as data:
        return [data[key] for key in data.files]


def work_of(record):
    """Epochs times samples by learner."""
    return {row.learner: row.epochs * row.samples for row in record.learners}


def reference(records, seed=0, dataset=None, batch=32, rate=0.1):
    """Train and average as the records say; `dataset` is the server's in parallelized mode."""
    weights = initial_weights(FEATURES, 8, CLASSES, np.random.default_rng(seed))
    for record in records:
        seeds = draw_seeds(seed, record.cycle, len(record.learners))
        held = 0 if dataset is None else len(dataset[1])
        order = np.random.default_rng([seed, record.cycle]).permutation(held)
        total, weight, place = [np.zeros(w.shape) for w in weights], 0, 0
        for row, own_seed in zip(record.learners, seeds, strict=True):
            if not row.samples:
                continue
            task = Assignment(row.epochs, row.samples, record.cycle, own_seed)
            if dataset is None:
                x, y = blobs(DATA_SEEDS[row.learner])
                rows = task.choose(len(y))
            else:
                x, y = dataset
                rows, place = order[place : place + row.samples], place + row.samples
            if row.outcome is not Outcome.USED:
                continue
            new, _ = train(weights, x[rows], y[rows], row.epochs, batch, rate, task.rng())
            total = [t + row.samples * n.astype(np.float64) for t, n in zip(total, new, strict=True)]
            weight += row.samples
        if weight:
            weights = [(t / weight).astype(np.float32) for t in total]
    return weights


def same_model(run_dir, **about):
    """Assert that a run's model is the reference's; return its records."""
    records = records_of(run_dir)
    for got, wanted in zip(model_of(run_dir), reference(records, **about), strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-6)
    return records
